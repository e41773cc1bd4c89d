package checkpoint

import (
	"errors"
	"fmt"
	"time"
)

// watchInterval is how often an open store looks at the free space.
const watchInterval = 200 * time.Millisecond

// watch reports when other programs have taken the room that the index needs. Every write
// looks for itself; the watch is for a node that would learn it only at its next write.
func (s *Store) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-tick.C:
		}
		if err := s.catalog.lookAtSpace(); errors.Is(err, ErrDiskFull) { // another error may pass
			s.failed <- err
			return
		}
	}
}

// lookAtSpace fails as a write of nothing into the index would.
func (c catalog) lookAtSpace() error {
	done, err := c.space.takeBeside(c.tableBytes(), 0, forIndex)
	if err != nil {
		return fmt.Errorf("checkpoint: watch the space: %w", err)
	}
	done()
	return nil
}
