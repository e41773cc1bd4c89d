package swarm

import (
	"context"
	"sync"
)

// tasks is the group of all goroutines a swarm starts, and of the handlers libp2p starts
// for it. Unlike errgroup it may be added to by callbacks that race with the end: after
// close they are turned away.
type tasks struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// mu guards closed.
	mu     sync.Mutex
	closed bool
}

func newTasks() *tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, cancel: cancel}
}

// enter counts the calling goroutine in until it calls leave; false after close.
func (t *tasks) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.wg.Add(1)
	}
	return !t.closed
}

func (t *tasks) leave() { t.wg.Done() }

// run starts f, unless the group is closed. f ends when ctx does.
func (t *tasks) run(f func(ctx context.Context)) {
	if t.enter() {
		go func() {
			defer t.leave()
			f(t.ctx)
		}()
	}
}

// close ends ctx and lets no more in; it reports whether this call did it.
func (t *tasks) close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.closed
	t.closed = true
	t.cancel()
	return !was
}

func (t *tasks) wait() { t.wg.Wait() }
