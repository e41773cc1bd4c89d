package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// parking is the log and stable store that raft gets. Raft panics over a term that it cannot save and over
// an entry that it cannot read, and goes on after other failures. Here the first failure is reported
// and every caller it concerns is parked: as after a power cut, nothing follows from what was not stored.
// Once the node is isolated the parked callers return, so that raft can be shut down and waited for.
type parking struct {
	logStore
	report   func(error)         // called with the first failure; must not wait
	wrote    func(time.Duration) // called after each write with how long it took
	isolated chan struct{}       // closed when no peer can be heard or reached any more
	broken   chan struct{}       // closed by the first failure

	mu      sync.Mutex // guards the rest
	failure error      // the first one
	// term is raft's name for the term of the vote that it is about to store, and that term; nil for none.
	term *Change
}

var (
	_ raft.LogStore          = (*parking)(nil)
	_ raft.StableStore       = (*parking)(nil)
	_ raft.MonotonicLogStore = (*parking)(nil)
)

func newParking(kv KV, report func(error), wrote func(time.Duration)) *parking {
	return &parking{
		logStore: logStore{kv}, report: report, wrote: wrote,
		isolated: make(chan struct{}), broken: make(chan struct{}),
	}
}

// park blocks until the node is isolated, and returns the store's first failure.
func (p *parking) park(err error) error {
	p.mu.Lock()
	if p.failure == nil {
		p.failure = err
		p.report(err)
		close(p.broken)
	}
	p.mu.Unlock()
	<-p.isolated
	return p.failure
}

// write carries out a change, unless an earlier one failed, and parks the caller when it is not done.
func (p *parking) write(change func() error) error {
	p.mu.Lock()
	err := p.failure
	p.mu.Unlock()
	if err == nil {
		began := time.Now()
		err = change()
		p.wrote(time.Since(began))
	}
	if err != nil {
		return p.park(err)
	}
	return nil
}

// IsMonotonic reports that the log has no gaps: raft deletes the old entries when it installs a snapshot.
func (p *parking) IsMonotonic() bool { return true }

// GetLog reads one entry. Outside of the log the error is raft.ErrLogNotFound. An entry inside that
// cannot be read parks the caller. Afterwards it is an empty entry: raft ends over an error, and what it
// makes of this one reaches neither a peer nor the state.
func (p *parking) GetLog(index uint64, l *raft.Log) error {
	err := p.logStore.GetLog(index, l)
	if err == nil {
		return nil
	}
	// Raft deletes the whole log backwards where a snapshot takes its place, and its beginning forwards: in this order no log is seen that
	// begins with the one before and ends with the one after.
	last, lastErr := p.LastIndex()
	first, firstErr := p.FirstIndex()
	if firstErr == nil && lastErr == nil && (index < first || index > last) {
		return raft.ErrLogNotFound
	}
	if errors.Is(err, raft.ErrLogNotFound) {
		// Raft may have replaced the end of the log between the reads: a loop that sends the log of a term
		// that is over reads concurrently with the first entries of the next leader.
		if err = p.logStore.GetLog(index, l); err == nil {
			return nil
		}
	}
	if errors.Is(err, raft.ErrLogNotFound) {
		err = fmt.Errorf("%w: log entry %d is missing between %d and %d", ErrCorrupt, index, first, last)
	}
	_ = p.park(err)
	*l = raft.Log{Index: index, Type: raft.LogNoop}
	return nil
}

// StoreLog appends one entry.
func (p *parking) StoreLog(l *raft.Log) error { return p.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends entries.
func (p *parking) StoreLogs(logs []*raft.Log) error {
	return p.write(func() error { return p.logStore.StoreLogs(logs) })
}

// DeleteRange deletes the entries from first to last.
func (p *parking) DeleteRange(first, last uint64) error {
	return p.write(func() error { return p.logStore.DeleteRange(first, last) })
}

// Set stores a value, and the term of a vote with whom it is for.
func (p *parking) Set(name, value []byte) error {
	changes := []Change{{Key: stableKey(name), Value: value}}
	p.mu.Lock()
	if p.term != nil && string(name) == voteFor {
		changes, p.term = append(changes, *p.term), nil
	}
	p.mu.Unlock()
	return p.write(func() error { return p.logStore.set(changes) })
}

// Raft's names for a vote: it stores the term first and then, at once, whom the vote is for.
const (
	voteTerm = "LastVoteTerm"
	voteFor  = "LastVoteCand"
)

// SetUint64 stores a number; the term of a vote with whom it is for, in one write. It returns no error: raft panics over one, and a term that was not saved is
// heard of by nobody, since the caller is parked until the node is isolated.
func (p *parking) SetUint64(name []byte, v uint64) error {
	value := binary.BigEndian.AppendUint64(nil, v)
	if string(name) != voteTerm {
		_ = p.Set(name, value)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = &Change{Key: stableKey(name), Value: value}
	return nil
}
