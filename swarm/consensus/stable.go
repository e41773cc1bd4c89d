package consensus

import (
	"bytes"
	"errors"
	"sync/atomic"
)

// termKey is raft's name for the current term.
var termKey = []byte("CurrentTerm")

var errFenced = errors.New("consensus: nothing is written after the term could not be")

// stableStore is a logStore for raft's term and vote. Raft panics when its term cannot be
// written; this store fences the node off instead and lets raft run on, to be shut down.
type stableStore struct {
	logStore
	fence *fence
}

// SetUint64 stores a number. A term that cannot be stored raises the fence: what raft does
// from then on reaches neither the store nor another node, so it may believe in it.
func (s stableStore) SetUint64(name []byte, v uint64) error {
	err := s.logStore.SetUint64(name, v)
	if err != nil && bytes.Equal(name, termKey) {
		s.fence.raise(err)
		return nil
	}
	return err
}

// fence is the KV that raft's stores share; once raised it refuses every write.
type fence struct {
	KV
	up     atomic.Bool
	cut    func() // ends the streams to other nodes
	failed chan error
}

func newFence(kv KV, cut func()) *fence {
	return &fence{KV: kv, cut: cut, failed: make(chan error, 1)}
}

// raise returns when no message of raft's can leave this node any more.
func (f *fence) raise(err error) {
	if f.up.Swap(true) {
		return
	}
	f.cut()
	f.failed <- err
}

// Write refuses when the fence is up.
func (f *fence) Write(changes []Change) error {
	if f.up.Load() {
		return errFenced
	}
	return f.KV.Write(changes)
}
