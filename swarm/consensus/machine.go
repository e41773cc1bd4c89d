package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// machine is raft's view of the state: it applies committed entries and takes snapshots.
type machine struct {
	state   atomic.Pointer[State]
	changed func() // called after each change, and after the raft configuration's
	// halted is set when the store has failed: raft may then leave entries out.
	halted atomic.Bool
}

var (
	_ raft.FSM                = (*machine)(nil)
	_ raft.ConfigurationStore = (*machine)(nil)
)

func newMachine(changed func()) *machine {
	m := &machine{changed: changed}
	m.state.Store(&State{})
	return m
}

// Apply carries out one committed entry and gives the refusal, or nil, to its proposer.
func (m *machine) Apply(l *raft.Log) any {
	if m.halted.Load() {
		return fmt.Errorf("%w: %w", errRetry, ErrClosed)
	}
	e, err := DecodeEntry(l.Data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	next, err := Apply(*m.state.Load(), e)
	if err != nil {
		return err
	}
	m.state.Store(&next)
	m.changed()
	return nil
}

// StoreConfiguration is called when a change of the servers is committed.
func (m *machine) StoreConfiguration(uint64, raft.Configuration) { m.changed() }

// Snapshot captures the state, which is never changed afterwards.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.halted.Load() {
		return nil, ErrClosed
	}
	return snapshot{m.state.Load()}, nil
}

// Restore replaces the state by a snapshot's.
func (m *machine) Restore(r io.ReadCloser) error {
	s, err := DecodeState(r)
	if err != nil {
		return err
	}
	m.state.Store(&s)
	m.changed()
	return nil
}

type snapshot struct{ state *State }

// Persist writes the state.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	b, err := EncodeState(*s.state)
	if err == nil {
		_, err = sink.Write(b)
	}
	if err != nil {
		sink.Cancel()
		return err
	}
	return sink.Close()
}

// Release does nothing: the state is shared.
func (snapshot) Release() {}
