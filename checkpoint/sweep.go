package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pnode/planner/plan"
)

// Sweep removes the chunks that nothing refers to: no manifest, no pin, no Writing, no
// put or commit since the sweep began. It gives the bytes of the files removed. While a
// manifest or pin is unreadable it removes nothing and says which one it is. After a
// restart it must come after the consensus log has been replayed, whose manifests may not
// have been committed here yet.
func (s *Store) Sweep() (freedBytes int64, err error) {
	if err := s.users.enter(); err != nil {
		return 0, fmt.Errorf("checkpoint: sweep: %w", err)
	}
	defer s.users.leave()
	if s.reads {
		return 0, fmt.Errorf("checkpoint: sweep: %w", ErrReadOnly)
	}
	s.sweeps.Lock()
	defer s.sweeps.Unlock()
	s.guard.beginSweep() // before the references are read
	defer s.guard.endSweep()
	live, err := s.references()
	if err != nil {
		return 0, fmt.Errorf("checkpoint: sweep: %w; nothing was removed", err)
	}
	err = s.walkChunks(func(h plan.Hash, size int64) error {
		if live[h] {
			return nil
		}
		removed, err := s.guard.collect(h, func() error { return os.Remove(s.chunkPath(h)) })
		if removed && err == nil {
			freedBytes += size
		}
		return ignoreMissing(err)
	})
	if err == nil {
		err = s.sweepQuarantine(live)
	}
	if err == nil {
		err = s.collectValueLog()
	}
	if err != nil {
		return freedBytes, fmt.Errorf("checkpoint: sweep: %w", err)
	}
	return freedBytes, nil
}

// references are the chunks of all manifests and pins.
func (s *Store) references() (map[plan.Hash]bool, error) {
	manifests, err := s.manifests()
	if err != nil {
		return nil, err
	}
	pins, err := s.pins()
	if err != nil {
		return nil, err
	}
	live := map[plan.Hash]bool{}
	for _, m := range manifests {
		for _, h := range m.Hashes() {
			live[h] = true
		}
	}
	for _, p := range pins {
		for _, h := range p.hashes {
			live[h] = true
		}
	}
	return live, nil
}

// walkChunks visits the chunk files in order of their names; files of other names are
// not ours to judge.
func (s *Store) walkChunks(fn func(h plan.Hash, size int64) error) error {
	for i := range 256 {
		entries, err := os.ReadDir(filepath.Join(s.dir, "chunks", fmt.Sprintf("%02x", i)))
		if err != nil {
			return err
		}
		for _, e := range entries {
			var h plan.Hash
			if h.UnmarshalText([]byte(e.Name())) != nil || int(h[0]) != i {
				continue
			}
			info, err := e.Info()
			if errors.Is(err, os.ErrNotExist) {
				continue // moved to the quarantine meanwhile
			}
			if err != nil {
				return err
			}
			if err := fn(h, info.Size()); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepQuarantine removes damaged chunks that are no longer needed or are here again.
func (s *Store) sweepQuarantine(live map[plan.Hash]bool) error {
	entries, err := os.ReadDir(filepath.Join(s.dir, "quarantine"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		var h plan.Hash
		if h.UnmarshalText([]byte(e.Name())) != nil || live[h] && !s.HasChunk(h) {
			continue
		}
		if err := ignoreMissing(os.Remove(s.quarantinePath(h))); err != nil {
			return err
		}
	}
	return nil
}

// collectValueLog rewrites live values before it removes a file; without room for that it
// waits for another sweep.
func (s *Store) collectValueLog() error {
	done, err := s.space.take(valueLogBytes, forDeletes)
	if errors.Is(err, ErrDiskFull) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	return s.index.collectValueLog()
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
