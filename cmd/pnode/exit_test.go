package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"pnode/checkpoint"
	"pnode/node"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/dataset/shard"
	"pnode/node/local"
	"pnode/node/progress"
	"pnode/swarm/listen"
)

func TestExitCode(t *testing.T) {
	other := errors.New("other")
	for _, tt := range []struct {
		err  error
		want int
	}{
		{other, exitFailure},
		{usageError{"pnode", other}, exitUsage},
		{config.ErrInvalid, exitUsage},
		{config.ErrNoRun, exitUsage},
		{config.ErrDirTaken, exitUsage},
		{listen.ErrPortInUse, exitFailure},
		{progress.ErrDamaged, exitFailure},
		{node.ErrBadInvite, exitUsage},
		{node.ErrRefused, exitUnreachable},
		{node.ErrUnreachable, exitUnreachable},
		{fmt.Errorf("%w: %w", node.ErrUnreachable, node.ErrBadInvite), exitUnreachable}, // a member did not understand
		{&fs.PathError{Op: "open", Path: "a", Err: syscall.EACCES}, exitUsage},
		{&fs.PathError{Op: "open", Path: "a", Err: fs.ErrPermission}, exitUsage}, // what Windows' numbers are, too
		{node.ErrFinished, exitFinished},
		{checkpoint.ErrOccupied, exitUsage},
		{shard.ErrExists, exitUsage},
		{api.ErrNoNode, exitUnreachable},
		{api.ErrUnreachable, exitUnreachable},
		{api.ErrRefused, exitUnreachable},
		{api.ErrNotReady, exitUnreachable},
		{local.ErrForced, exitFailure},
		{&local.NodeError{Code: exitUnreachable}, exitUnreachable},
		{&local.NodeError{Code: -1}, exitFailure},
	} {
		for _, err := range []error{tt.err, errors.Join(tt.err, other)} {
			if exitCode(err) != tt.want {
				t.Errorf("%v: exit code %d, want %d", err, exitCode(err), tt.want)
			}
		}
	}
	for _, fine := range []error{nil, node.ErrInterrupted, errors.Join(node.ErrInterrupted, nil)} {
		if exitCode(fine) != exitOK {
			t.Errorf("%v: no success", fine)
		}
	}
	if exitCode(errors.Join(node.ErrInterrupted, other)) != exitFailure {
		t.Error("a node that was interrupted and could not close its folder has not failed")
	}
}

// TestRefusedAFileInTheRun: a service starts a node again that was refused a file after it had begun, since nothing in its command is wrong.
func TestRefusedAFileInTheRun(t *testing.T) {
	var i interrupts
	i.starts()
	refused := &fs.PathError{Op: "open", Path: "a", Err: syscall.EACCES}
	if code := exitCode(i.ended(refused)); code != exitUsage {
		t.Errorf("before it has begun: exit code %d", code)
	}
	i.follow(api.Event{Kind: api.KindState, Message: "training"})
	for err, want := range map[error]int{
		refused:                                exitFailure,
		errors.Join(refused, node.ErrFinished): exitFinished,
		node.ErrNoRun:                          exitUsage,
		node.ErrInterrupted:                    exitOK,
	} {
		ended := i.ended(err)
		if code := exitCode(errors.Join(ended, nil)); code != want || sentence(ended) != sentence(err) {
			t.Errorf("%v: exit code %d with %q, want %d", err, code, sentence(ended), want)
		}
	}
}
