package local

import (
	"context"
	"errors"
	"slices"
	"time"

	"pnode/node/api"
)

// graces bound how long a run takes to end.
type graces struct {
	// ask is for some node to take the request to stop; without a majority of voters none
	// can.
	ask time.Duration
	// stop is what the nodes then have: each gives up by itself after two minutes.
	stop time.Duration
	// last is what the others have when one has ended: one that was still on its way in finds
	// nobody to let it in any more.
	last time.Duration
	// hangUp is what a node has once its standard input is closed, before it is killed.
	hangUp time.Duration
}

// defaultGraces are documented in this package and in the help of `pnode train`: 30 s
// where the request cannot be taken, three minutes where it can.
var defaultGraces = graces{ask: 10 * time.Second, stop: 160 * time.Second, last: 15 * time.Second, hangUp: 20 * time.Second}

// end stops the run: by asking one node; when none takes the request, or they are still
// there after a while, by closing their standard inputs; and in the end by killing them,
// which costs the steps since the last checkpoint. A run that did not begin, or is
// finished, has nothing to save: then none is asked.
func (s *Supervisor) end(cause error, over <-chan struct{}) {
	s.mu.Lock()
	s.closed = true // no more nodes are started
	s.mu.Unlock()
	nothing := errors.As(cause, &plainError{})
	if !nothing && s.askToStop() && s.stopped(over) {
		return
	}
	for _, c := range s.started() {
		_ = c.stdin.Close() // which ends the child
	}
	if ended(over, s.graces.hangUp) {
		return
	}
	s.mu.Lock()
	s.forced = true
	s.mu.Unlock()
	s.Kill()
}

// stopped waits until all nodes have ended that were asked to stop, for a bounded time, and reports whether they have.
func (s *Supervisor) stopped(over <-chan struct{}) bool {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < s.graces.stop; {
		select {
		case <-over:
			return true
		case <-tick.C:
		}
		if slices.ContainsFunc(s.started(), (*child).finished) {
			return ended(over, s.graces.last)
		}
	}
	return false
}

// ended waits until over is closed, for a bounded time, and reports whether it is.
func ended(over <-chan struct{}, grace time.Duration) bool {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-timer.C:
		return false
	}
}

// askToStop asks all nodes at once to stop the run; one that takes the request is enough.
func (s *Supervisor) askToStop() bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.graces.ask)
	defer cancel()
	children := s.started()
	answers := make(chan error, len(children))
	for _, c := range children {
		s.asking.Go(func() error {
			client, err := api.Dial(ctx, c.dir)
			if err == nil {
				defer client.Close()
				if err = errEnded; client.PID() == c.pid() {
					err = client.Stop(ctx)
				}
			}
			answers <- err
			return nil
		})
	}
	taken := false
	for range children {
		if taken = <-answers == nil; taken {
			break
		}
	}
	cancel()
	_ = s.asking.Wait() // the errors are in answers
	return taken
}

// started returns the nodes so far.
func (s *Supervisor) started() []*child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.children)
}

// Kill ends all nodes at once, and any that would start later.
func (s *Supervisor) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.children {
		c.kill()
	}
}
