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
		{fmt.Errorf("%w: %w", config.ErrInvalid, syscall.EADDRINUSE), exitFailure},
		{&fs.PathError{Op: "open", Path: "a", Err: syscall.EACCES}, exitUsage},
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
