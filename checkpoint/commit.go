package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// Commit stores a manifest durably. The chunks of layers that this node holds must be
// here with their right sizes, or the error wraps ErrNotFound. A manifest of the same step
// is replaced unless its generation is newer (ErrStale); one of another run gives
// ErrForeign.
func (s *Store) Commit(m Manifest) error {
	if err := s.users.enter(); err != nil {
		return fmt.Errorf("checkpoint: commit step %d generation %d: %w", m.Step, m.Generation, err)
	}
	defer s.users.leave()
	if err := s.commit(m); err != nil {
		return fmt.Errorf("checkpoint: commit step %d generation %d: %w", m.Step, m.Generation, err)
	}
	return nil
}

func (s *Store) commit(m Manifest) error {
	if err := m.Validate(); err != nil {
		return err
	}
	encoded := m.Encode()
	if len(encoded) > MaxManifestBytes {
		return fmt.Errorf("%w: manifest of %d bytes, at most %d are accepted", ErrTooLarge, len(encoded), MaxManifestBytes)
	}
	hashes := m.Hashes()
	s.guard.hold(hashes...)
	defer s.guard.release(hashes...)
	if missing := s.missing(m, s.holds); missing != nil {
		return missing
	}
	s.commits.Lock()
	defer s.commits.Unlock()
	if err := s.mayReplace(m); err != nil {
		return err
	}
	return s.writeIndex([]Op{{Key: manifestKey(m.Step), Value: encoded}})
}

// holds tells whether this node answers for a layer's chunks.
func (s *Store) holds(l LayerState) bool {
	return s.self == "" || len(l.Holders) == 0 || slices.Contains(l.Holders, s.self)
}

// mayReplace compares with the stored manifests of this step and later ones, and the next
// older one. Damaged manifests do not stand in the way.
func (s *Store) mayReplace(m Manifest) error {
	var refused error
	err := s.walkManifests(func(step plan.Step, old Manifest, err error) bool {
		switch {
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

// Manifests lists the stored manifests, newest step first. Damaged ones are left out and
// told by an error that wraps ErrCorrupt; the others are given all the same.
func (s *Store) Manifests() ([]Manifest, error) {
	if err := s.users.enter(); err != nil {
		return nil, fmt.Errorf("checkpoint: list manifests: %w", err)
	}
	defer s.users.leave()
	return s.manifests()
}

func (s *Store) manifests() ([]Manifest, error) {
	var all []Manifest
	var damaged error
	err := s.walkManifests(func(step plan.Step, m Manifest, err error) bool {
		if err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("checkpoint: manifest of step %d: %w", step, err))
			return true
		}
		all = append(all, m)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoint: list manifests: %w", err)
	}
	return all, damaged
}

// Manifest gives the stored manifest of a step, or ErrNotFound.
func (s *Store) Manifest(step plan.Step) (Manifest, error) {
	if err := s.users.enter(); err != nil {
		return Manifest{}, fmt.Errorf("checkpoint: manifest of step %d: %w", step, err)
	}
	defer s.users.leave()
	encoded, err := s.index.get(manifestKey(step))
	if err != nil {
		return Manifest{}, fmt.Errorf("checkpoint: manifest of step %d: %w", step, err)
	}
	m, err := decodeAt(step, encoded)
	if err != nil {
		return Manifest{}, fmt.Errorf("checkpoint: manifest of step %d: %w", step, err)
	}
	return m, nil
}

// Retain removes all manifests but those of the newest keep steps, damaged ones among
// them. Their chunks go with the next Sweep.
func (s *Store) Retain(keep int) error {
	if err := s.users.enter(); err != nil {
		return fmt.Errorf("checkpoint: retain: %w", err)
	}
	defer s.users.leave()
	if keep < 1 {
		return fmt.Errorf("checkpoint: retain %d manifests: at least 1 must stay", keep)
	}
	s.commits.Lock()
	defer s.commits.Unlock()
	var drop []Op
	err := s.index.walk([]byte{manifestKeys}, nil, true, func(key []byte, _ func() ([]byte, error)) (bool, error) {
		if keep--; keep < 0 {
			drop = append(drop, Op{Key: slices.Clone(key), Delete: true})
		}
		return true, nil
	})
	for batch := range slices.Chunk(drop, MaxBatchOps) {
		if err == nil {
			err = s.writeIndex(batch)
		}
	}
	if err != nil {
		return fmt.Errorf("checkpoint: retain: %w", err)
	}
	return nil
}

// walkManifests visits the manifests, newest step first, each with the error of its own
// record, until fn returns false.
func (s *Store) walkManifests(fn func(step plan.Step, m Manifest, err error) bool) error {
	return s.index.walk([]byte{manifestKeys}, nil, true, func(key []byte, value func() ([]byte, error)) (bool, error) {
		if len(key) != 9 {
			return false, fmt.Errorf("%w: manifest key %q", ErrCorrupt, key)
		}
		step := plan.Step(binary.BigEndian.Uint64(key[1:]))
		encoded, err := value()
		var m Manifest
		if err == nil {
			m, err = decodeAt(step, encoded)
		}
		return fn(step, m, err), nil
	})
}

func decodeAt(step plan.Step, encoded []byte) (Manifest, error) {
	m, err := DecodeManifest(encoded)
	if err == nil && m.Step != step {
		return Manifest{}, fmt.Errorf("%w: it says step %d", ErrCorrupt, m.Step)
	}
	return m, err
}

func manifestKey(step plan.Step) []byte {
	return binary.BigEndian.AppendUint64([]byte{manifestKeys}, uint64(step))
}
