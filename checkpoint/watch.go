package checkpoint

import (
	"fmt"
	"time"
)

// watchInterval is how often an open store looks whether its folder is still there.
const watchInterval = 500 * time.Millisecond

// watch reports that the store's files were removed or replaced. A write into them finds that out by itself; the watch is for a
// node that would learn it only at its next write.
func (s *Store) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-tick.C:
		}
		if err := s.gone(); err != nil {
			s.failed <- err
			return
		}
	}
}

// gone returns an error that wraps ErrGone once the store's files are not at their paths any more.
func (s *Store) gone() error {
	if isAt(s.lock, s.lock.Name()) && !s.catalog.journal.Gone() {
		return nil
	}
	return fmt.Errorf("checkpoint: %w: %s; what was in it is lost to this node: restore it from a copy, or enter the run anew "+
		"with `pnode join INVITE` and another folder for --dir", ErrGone, s.dir)
}
