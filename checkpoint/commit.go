package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// Commit stores a manifest durably, after the chunks of layers that this node holds. These must be
// here with their right sizes, or the error wraps ErrNotFound. A manifest of the same step
// is replaced unless its generation is newer (ErrStale); one of another run gives
// ErrForeign.
func (s *Store) Commit(m Manifest) error {
	return s.during(fmt.Sprintf("commit step %d generation %d", m.Step, m.Generation), func() error {
		if err := m.Validate(); err != nil {
			return err
		}
		encoded := m.Encode()
		if len(encoded) > maxManifestBytes {
			return fmt.Errorf("%w: manifest of %d bytes, at most %d are accepted", ErrTooLarge, len(encoded), maxManifestBytes)
		}
		hashes := m.Hashes()
		s.guard.hold(hashes...)
		defer s.guard.release(hashes...)
		if err := s.missing(m); err != nil {
			return err
		}
		s.commits.Lock()
		defer s.commits.Unlock()
		if err := s.mayReplace(m); err != nil {
			return err
		}
		return s.catalog.putManifest(m, encoded)
	})
}

// missing says which chunk is the first that is not here, or which layer is not of its size, of the layers that this node holds. Those that
// are here are durable then, whatever is missing of others.
func (s *Store) missing(m Manifest) (first error) {
	for _, l := range m.States() {
		if s.holds(l) {
			if err := s.chunks.settleLayer(l); first == nil {
				first = err
			}
		}
	}
	return first
}

// settleLayer makes a layer durable whose chunks are all here.
func (c *chunkFolder) settleLayer(l LayerState) error {
	var found int64
	for i, h := range l.Chunks {
		size := c.size(h)
		if size < 1 || size > ChunkBytes {
			return fmt.Errorf("layer %d chunk %d of %d: %s: %w (found %d bytes)", l.Layer, i, len(l.Chunks), h, ErrNotFound, max(size, 0))
		}
		if err := c.settle(h); err != nil {
			return fmt.Errorf("layer %d chunk %d of %d: %s: %w", l.Layer, i, len(l.Chunks), h, err)
		}
		found += size
	}
	if found != l.SizeBytes {
		return fmt.Errorf("layer %d of %d bytes: %w (found %d bytes)", l.Layer, l.SizeBytes, ErrNotFound, found)
	}
	return nil
}

// holds reports whether this node answers for a layer's chunks.
func (s *Store) holds(l LayerState) bool {
	return s.self == "" || len(l.Holders) == 0 || slices.Contains(l.Holders, s.self)
}

// mayReplace compares with the stored manifests of this step and later ones, and the next
// older one. Damaged manifests do not stand in the way.
func (s *Store) mayReplace(m Manifest) error {
	var refused error
	err := s.catalog.eachManifest(func(step plan.Step, old Manifest, err error) bool {
		switch {
		case errors.Is(err, ErrVersion):
			refused = err
		case err != nil:
			return true
		case old.Run != m.Run:
			refused = fmt.Errorf("run %s: the directory %s %w: %s; choose another directory", m.Run, s.dir, ErrForeign, old.Run)
		case step == m.Step && old.Generation > m.Generation:
			refused = fmt.Errorf("%w: %d", ErrStale, old.Generation)
		}
		return refused == nil && step > m.Step
	})
	return errors.Join(err, refused)
}

// Manifests lists the stored manifests, newest step first. Damaged ones are left out, with an
// error that wraps ErrCorrupt; the others are returned all the same.
func (s *Store) Manifests() (all []Manifest, err error) {
	err = s.during("list manifests", func() error {
		all, err = s.catalog.manifests()
		return err
	})
	return all, err
}

// Manifest returns the stored manifest of a step, or ErrNotFound.
func (s *Store) Manifest(step plan.Step) (m Manifest, err error) {
	err = s.during(fmt.Sprintf("manifest of step %d", step), func() error {
		m, err = s.catalog.manifest(step)
		return err
	})
	return m, err
}

// Retain removes all manifests but those of the newest keep steps and of the steps in also, damaged
// ones among them. Their chunks go with the next Sweep.
func (s *Store) Retain(keep int, also ...plan.Step) error {
	if keep < 1 {
		return fmt.Errorf("checkpoint: retain %d manifests: at least 1 must stay", keep)
	}
	return s.removeManifests("retain", func(step plan.Step) bool {
		keep--
		return keep < 0 && !slices.Contains(also, step)
	})
}

// Drop removes the manifests of some steps.
func (s *Store) Drop(steps ...plan.Step) error {
	return s.removeManifests("drop", func(step plan.Step) bool { return slices.Contains(steps, step) })
}

// removeManifests removes those manifests of which goes says so, asked for the newest first.
func (s *Store) removeManifests(operation string, goes func(plan.Step) bool) error {
	return s.during(operation, func() error {
		s.commits.Lock()
		defer s.commits.Unlock()
		steps, err := s.catalog.steps()
		if err != nil {
			return err
		}
		return s.catalog.dropManifests(slices.DeleteFunc(steps, func(step plan.Step) bool { return !goes(step) }))
	})
}

// maxPinName bounds names of pins in bytes.
const maxPinName = 256

// Pin keeps chunks, present or not yet, from every sweep until Unpin or a Pin of the same
// name, which replaces the list. It is durable: a node that is to hold chunks of others
// pins them before it fetches them.
func (s *Store) Pin(name string, hashes []plan.Hash) error {
	return s.during("pin "+name, func() error {
		value := encodePin(hashes)
		if name == "" || len(name) > maxPinName || len(value) > MaxValueBytes {
			return fmt.Errorf("%w: a name of %d bytes and %d chunks, at most %d and %d are accepted",
				ErrTooLarge, len(name), len(hashes), maxPinName, MaxValueBytes/len(plan.Hash{}))
		}
		s.guard.hold(hashes...)
		defer s.guard.release(hashes...)
		return s.catalog.apply([]Op{{Key: pinKey(name), Value: value}})
	})
}

// Unpin removes a pin; one that does not exist is no error.
func (s *Store) Unpin(name string) error {
	return s.during("unpin "+name, func() error { return s.catalog.apply([]Op{{Key: pinKey(name), Delete: true}}) })
}

// Pins returns the names of the pins, sorted.
func (s *Store) Pins() (names []string, err error) {
	err = s.during("list pins", func() error {
		return s.catalog.eachPin(func(name string, _ []plan.Hash) { names = append(names, name) })
	})
	return names, err
}
