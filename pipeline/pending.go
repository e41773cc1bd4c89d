package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
)

// pending is the one thing of its kind that may be under way beside training.
type pending struct{ done chan error }

func (p *pending) start(f func() error) {
	done := make(chan error, 1)
	p.done = done
	go func() { done <- f() }()
}

// poll gives the error of what has ended, without waiting.
func (p *pending) poll() error {
	select {
	case err := <-p.done:
		p.done = nil
		return err
	default:
		return nil
	}
}

// wait waits for what is under way and returns its error once.
func (p *pending) wait() error {
	if p.done == nil {
		return nil
	}
	err := <-p.done
	p.done = nil
	return err
}

// saving is the one save that may run beside training.
type saving struct {
	pending
	unread *unread
}

func (s *saving) start(f func() error, unread *unread) {
	s.unread = unread
	s.pending.start(func() error {
		defer unread.end()
		return f()
	})
}

// read waits until the save under way, if there is one, reads no state any more.
func (s *saving) read(ctx context.Context) error {
	if s.unread == nil {
		return nil
	}
	select {
	case <-s.unread.none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unread counts the layers that a save has still to read.
type unread struct {
	left atomic.Int64
	none chan struct{} // closed when all are read, or the save has given up
	once sync.Once
}

func newUnread(layers int) *unread {
	u := &unread{none: make(chan struct{})}
	u.left.Store(int64(layers))
	return u
}

// one notes that a layer is read.
func (u *unread) one() {
	if u.left.Add(-1) == 0 {
		u.end()
	}
}

func (u *unread) end() { u.once.Do(func() { close(u.none) }) }
