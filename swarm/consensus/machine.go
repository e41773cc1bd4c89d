package consensus

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
	"pnode/swarm/version"
)

// machine applies raft's committed entries to the state, and takes and restores snapshots.
type machine struct {
	state   atomic.Pointer[State]
	author  *author     // checks signatures
	changed func()      // called after each change, and after the raft configuration's
	failed  func(error) // called with an entry or a snapshot that this program is too old for; must not wait
	// replaying is the state up to the last entry of a log that came in place of another one, until its entry catchUp; nil at
	// other times. Until then state is the newest by the log before. mu guards both.
	mu        sync.Mutex
	replaying *State
	catchUp   uint64
	// halted is set when the node has failed: raft may then leave entries out.
	halted atomic.Bool
	// unreadable is the error of the snapshot that the last Restore refused.
	unreadable error
}

var (
	_ raft.FSM                = (*machine)(nil)
	_ raft.ConfigurationStore = (*machine)(nil)
)

// Apply carries out one committed entry and returns the refusal, or nil, for its proposer.
func (m *machine) Apply(l *raft.Log) any {
	if m.halted.Load() {
		return fmt.Errorf("%w: %w", errRetry, ErrClosed)
	}
	p, err := m.author.open(l.Data)
	if errors.Is(err, version.Err) { // written by a newer leader, which can read it: what follows may depend on it
		m.failed(fmt.Errorf("entry %d: %w", l.Index, err))
		return fmt.Errorf("%w: %w", errRetry, ErrClosed)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	next, err := m.newest().carryOut(p, plan.Term(l.Term), l.AppendedAt)
	if !m.shows(&next, l.Index) || err != nil { // a refused proposal is counted
		return err
	}
	m.changed()
	return nil
}

// shows takes in the state after an entry, and reports whether it counts.
func (m *machine) shows(next *State, index uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.replaying != nil && index < m.catchUp {
		m.replaying = next
		return false
	}
	m.replaying = nil
	m.state.Store(next)
	return true
}

// caughtUp takes in up to which entry raft has given all to this machine. The entry catchUp may be one of raft's own, which does not come here.
func (m *machine) caughtUp(applied uint64) {
	m.mu.Lock()
	caught := m.replaying != nil && applied >= m.catchUp && m.replaying.Run != nil
	if caught {
		m.state.Store(m.replaying)
		m.replaying = nil
	}
	m.mu.Unlock()
	if caught {
		m.changed()
	}
}

// replay prepares for another log from its beginning, before raft is started with that. Its states are not shown before entry
// catchUp, or its snapshot.
func (m *machine) replay(catchUp uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaying, m.catchUp = &State{}, catchUp
}

// newest returns the state after the last entry.
func (m *machine) newest() *State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.replaying != nil {
		return m.replaying
	}
	return m.state.Load()
}

// StoreConfiguration is called when a change of the servers is committed.
func (m *machine) StoreConfiguration(uint64, raft.Configuration) { m.changed() }

// Snapshot captures the state, which is never changed afterwards.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.halted.Load() {
		return nil, ErrClosed
	}
	return snapshot{m.newest()}, nil
}

// Restore replaces the state by a snapshot's. A newer leader's snapshot, which raft would ask for again and
// again, is a failure of the node.
func (m *machine) Restore(r io.ReadCloser) error {
	s, err := DecodeState(r)
	m.unreadable = err
	if errors.Is(err, version.Err) {
		m.failed(err)
	}
	if err != nil {
		return err
	}
	m.shows(&s, math.MaxUint64)
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
