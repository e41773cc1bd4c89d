// Package tasks holds the goroutines of a swarm together, so that its Close can wait for them. It imports
// nothing of the project.
package tasks

import (
	"context"
	"sync"
)

// Group owns all goroutines that a swarm starts, and counts the handlers that libp2p starts for it. Unlike
// errgroup it takes callbacks that race with the end: after Close they are turned away.
type Group struct {
	// Context ends with Close.
	Context context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	// mu guards closed.
	mu     sync.Mutex
	closed bool
}

// New returns an empty group.
func New() *Group {
	ctx, cancel := context.WithCancel(context.Background())
	return &Group{Context: ctx, cancel: cancel}
}

// Enter counts the calling goroutine in until it calls Leave; false after Close.
func (t *Group) Enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.wg.Add(1)
	}
	return !t.closed
}

// Leave ends what Enter began.
func (t *Group) Leave() { t.wg.Done() }

// Run starts f unless the group is closed, and reports whether it did. f must return when ctx ends.
func (t *Group) Run(f func(ctx context.Context)) bool {
	if !t.Enter() {
		return false
	}
	go func() {
		defer t.Leave()
		f(t.Context)
	}()
	return true
}

// Close ends Context and lets no more in. It reports whether this call was the first.
func (t *Group) Close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.closed
	t.closed = true
	t.cancel()
	return !was
}

// Wait blocks until all have left.
func (t *Group) Wait() { t.wg.Wait() }
