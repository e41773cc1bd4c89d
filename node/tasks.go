package node

import (
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// tasks are the proposals that the run loop has made in the background.
type tasks struct{ rejoin, wish, finish, check single }

// single runs one thing at a time in the background.
type single struct{ running atomic.Bool }

// start runs f unless the one before still runs.
func (s *single) start(group *errgroup.Group, f func()) {
	if !s.running.CompareAndSwap(false, true) {
		return
	}
	group.Go(func() error {
		defer s.running.Store(false)
		f()
		return nil
	})
}
