package checkpointer

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"pnode/checkpoint"
	"pnode/checkpoint/disk"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// saver returns what saves the only stage of a run of one node, whose store changes its files by d.
func saver(t *testing.T, d disk.Disk) (PlanSaver, *told, *bytes.Buffer) {
	t.Helper()
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{Disk: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	current := plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}}}}
	log, warned := &told{state: consensus.State{Run: &plan.RunSpec{}, Plan: current, StopWanted: true}}, &bytes.Buffer{}
	c := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.NewTextHandler(warned, nil))})
	return c.For(current), log, warned
}

func stateAt(step plan.Step, last bool, layers ...io.Reader) pipeline.State {
	s := pipeline.State{Step: step, Last: last}
	for i, r := range layers {
		s.Layers = append(s.Layers, pipeline.LayerState{Layer: i, Reader: r})
	}
	return s
}

// TestAFullDiskLeavesCheckpointsOut: training goes on, what is missing is told, and the next checkpoint is saved when there is
// room again. The last one fails: the run must not end without it.
func TestAFullDiskLeavesCheckpointsOut(t *testing.T) {
	var full atomic.Bool
	s, log, warned := saver(t, disk.Disk{Before: func(change disk.Change, path string) error {
		if full.Load() && change == disk.Write && strings.Contains(path, "/tmp/") {
			return unix.ENOSPC
		}
		return nil
	}})
	save := func(step plan.Step, last bool) error {
		return s.Save(t.Context(), stateAt(step, last, strings.NewReader("state "+strings.Repeat("x", int(step)))))
	}
	full.Store(true)
	if err := save(1, false); err != nil || len(log.acts) > 0 || !strings.Contains(warned.String(), "no room for a checkpoint") {
		t.Errorf("a full disk: %v, reported %v, told %s", err, log.acts, warned)
	}
	if got := s.LeftOut(); got != 1 {
		t.Errorf("step %d is told as left out", got)
	}
	if err := save(2, true); !errors.Is(err, checkpoint.ErrDiskFull) {
		t.Errorf("the last one: %v", err)
	}
	full.Store(false)
	if err := save(1, false); err != nil || s.LeftOut() != 1 {
		t.Errorf("another stage of the same step is saved: %v, step %d told as left out, want 1", err, s.LeftOut())
	}
	log.acts = nil
	if err := save(3, false); err != nil || !slices.Equal(log.acts, []string{"report 3 of 1: [me]"}) || s.LeftOut() != 0 {
		t.Errorf("with room: %v, reported %v, step %d told as left out", err, log.acts, s.LeftOut())
	}
	full.Store(true)
	if err := save(4, false); err != nil || s.LeftOut() != 4 {
		t.Errorf("full again: %v, step %d told as left out", err, s.LeftOut())
	}
	if s.Cadence(s.plan, nil); s.LeftOut() != 0 {
		t.Errorf("step %d of a plan before is told as left out", s.LeftOut())
	}
}

// TestASlowDiskHoldsNoStateBack: all layers are read from the device before the disk has written the first byte.
func TestASlowDiskHoldsNoStateBack(t *testing.T) {
	var slow atomic.Bool
	goOn := make(chan struct{})
	s, _, _ := saver(t, disk.Disk{Before: func(change disk.Change, _ string) error {
		if slow.Load() && change == disk.Write {
			<-goOn
		}
		return nil
	}})
	slow.Store(true)
	var layers []io.Reader
	read := make(chan struct{}, 3)
	for i := range cap(read) {
		text := bytes.Repeat([]byte{byte(i)}, checkpoint.ChunkBytes+i)
		layers = append(layers, io.MultiReader(bytes.NewReader(text), endReader{read}))
	}
	saved := make(chan error, 1)
	go func() { saved <- s.Save(t.Context(), stateAt(1, false, layers...)) }()
	for range cap(read) {
		<-read
	}
	select {
	case err := <-saved:
		t.Errorf("saved before the disk wrote anything: %v", err)
	default:
	}
	close(goOn)
	if err := <-saved; err != nil {
		t.Error(err)
	}
}

// endReader is empty, and says when it was read.
type endReader struct{ read chan<- struct{} }

func (r endReader) Read([]byte) (int, error) {
	r.read <- struct{}{}
	return 0, io.EOF
}

// TestReadAhead gives the same bytes and errors as the layers themselves.
func TestReadAhead(t *testing.T) {
	broken := errors.New("device lost")
	text := bytes.Repeat([]byte("0123456789"), pieceBytes/4)
	ahead, stop := readAhead(t.Context(), stateAt(1, false,
		bytes.NewReader(text), strings.NewReader(""), io.MultiReader(strings.NewReader("half"), brokenReader{broken})).Layers)
	defer stop()
	if got, err := io.ReadAll(ahead[0]); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	if got, err := io.ReadAll(ahead[1]); err != nil || len(got) > 0 {
		t.Errorf("empty: %q, %v", got, err)
	}
	if got, err := io.ReadAll(ahead[2]); !errors.Is(err, broken) || string(got) != "half" {
		t.Errorf("broken: %q, %v", got, err)
	}
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }
