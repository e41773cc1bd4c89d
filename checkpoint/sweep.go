package checkpoint

import (
	"errors"
	"fmt"

	"pnode/planner/plan"
)

// Sweep removes the chunks that nothing refers to: no manifest, no pin, no Writing, no
// put or commit since the sweep began. It returns the bytes of the files removed. While a
// manifest or pin is unreadable it removes nothing and says which one it is. After a
// restart it must come after the consensus log has been replayed, whose manifests may not
// have been committed here yet.
func (s *Store) Sweep() (freedBytes int64, err error) {
	err = s.during("sweep", func() error {
		if s.reads {
			return ErrReadOnly
		}
		s.sweeps.Lock()
		defer s.sweeps.Unlock()
		s.guard.sweeping(true) // before the references are read
		defer s.guard.sweeping(false)
		live, err := s.catalog.references()
		if err != nil {
			return fmt.Errorf("%w; nothing was removed", err)
		}
		err = s.chunks.walk(func(h plan.Hash, size int64) error {
			if live[h] {
				return nil
			}
			removed, err := s.guard.collect(h, func() error { return s.chunks.disk.Remove(s.chunks.path(h)) })
			if removed && err == nil {
				freedBytes += size
			}
			return ignoreMissing(err) // a damaged one is in the quarantine by now
		})
		for _, h := range s.chunks.behind.all() {
			if err == nil && !live[h] {
				_, err = s.guard.collect(h, func() error { return s.chunks.drop(h) })
			}
		}
		if err == nil {
			err = s.chunks.sweepQuarantine(live)
		}
		return err
	})
	return freedBytes, err
}

// Release removes chunks although manifests name them: those of layers that this node keeps no longer. It leaves those
// that are held. A chunk that is not here is no error.
func (s *Store) Release(hashes []plan.Hash) error {
	return s.during("release chunks", func() error {
		if s.reads {
			return ErrReadOnly
		}
		for _, h := range hashes {
			if _, err := s.guard.collect(h, func() error {
				return errors.Join(s.chunks.drop(h), ignoreMissing(s.chunks.disk.Remove(s.chunks.path(h))))
			}); err != nil {
				return err
			}
		}
		return nil
	})
}
