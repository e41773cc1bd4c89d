package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"pnode/planner/plan"
)

// Report is the result of Verify.
type Report struct {
	// Chunks and Bytes were read and are right.
	Chunks int
	Bytes  int64
	// Missing and Corrupt chunks are referred to; each is named once. Corrupt ones are in
	// the quarantine now.
	Missing []plan.Hash
	Corrupt []plan.Hash
	// Manifests newest first, damaged ones left out.
	Manifests []ManifestReport
	// Damaged says which records of the index cannot be read; nil when all can.
	Damaged error
}

// ManifestReport is the state of one manifest on this node.
type ManifestReport struct {
	Step       plan.Step
	Generation plan.Generation
	// Layers of the manifest, of which Here are complete on this node.
	Layers int
	Here   int
	// OK reports that every layer this node holds is complete.
	OK bool
}

// OK reports that nothing this node holds is missing or damaged.
func (r Report) OK() bool {
	for _, m := range r.Manifests {
		if !m.OK {
			return false
		}
	}
	return r.Damaged == nil && len(r.Missing) == 0 && len(r.Corrupt) == 0
}

// Progress of a Verify.
type Progress struct {
	Chunks      int
	TotalChunks int
	Bytes       int64
}

// Verify reads every chunk that a manifest or pin refers to and checks its hash. Chunks of
// layers held by other nodes may be absent; pinned ones may not. progress, if not nil, is
// called after each chunk. The error is nil unless the verification itself could not be
// carried out.
func (s *Store) Verify(ctx context.Context, progress func(Progress)) (Report, error) {
	if err := s.users.enter(); err != nil {
		return Report{}, fmt.Errorf("checkpoint: verify: %w", err)
	}
	defer s.users.leave()
	manifests, wanted, damaged := s.holdAll()
	defer s.guard.release(wanted.order...)
	r := Report{Damaged: damaged}
	read := reading{s: s, progress: progress, total: len(wanted.order)}
	whole := map[plan.Hash]bool{}
	for _, h := range wanted.order {
		err := read.chunk(ctx, h, 0)
		r.Chunks, r.Bytes = read.whole, read.bytes
		switch {
		case err == nil:
			whole[h] = true
		case errors.Is(err, ErrCorrupt):
			r.Corrupt = append(r.Corrupt, h)
		case errors.Is(err, ErrNotFound):
			if wanted.required[h] {
				r.Missing = append(r.Missing, h)
			}
		default:
			return r, fmt.Errorf("checkpoint: verify: %w", err)
		}
	}
	for _, m := range manifests {
		r.Manifests = append(r.Manifests, s.judge(m, whole))
	}
	return r, nil
}

// wanted are the distinct chunks to verify.
type wanted struct {
	order    []plan.Hash
	required map[plan.Hash]bool // false: another node holds it
}

func (w *wanted) add(hashes []plan.Hash, required bool) {
	for _, h := range hashes {
		before, known := w.required[h]
		if !known {
			w.order = append(w.order, h)
		}
		w.required[h] = before || required
	}
}

// holdAll lists what is referred to and holds it, without a sweep in between.
func (s *Store) holdAll() ([]Manifest, wanted, error) {
	s.sweeps.Lock()
	defer s.sweeps.Unlock()
	manifests, damaged := s.catalog.manifests()
	w := wanted{required: map[plan.Hash]bool{}}
	for _, m := range manifests {
		for _, l := range m.Layers {
			w.add(l.Chunks, s.holds(l))
		}
	}
	pins, err := s.catalog.pins()
	for _, p := range pins {
		w.add(p.hashes, true)
	}
	s.guard.hold(w.order...)
	return manifests, w, errors.Join(damaged, err)
}

func (s *Store) judge(m Manifest, whole map[plan.Hash]bool) ManifestReport {
	r := ManifestReport{Step: m.Step, Generation: m.Generation, Layers: len(m.Layers), OK: true}
	for _, l := range m.Layers {
		here := true
		for _, h := range l.Chunks {
			here = here && whole[h]
		}
		if here {
			r.Here++
		} else if s.holds(l) {
			r.OK = false
		}
	}
	return r
}

// Damage is a chunk that keeps a checkpoint from being whole on this node.
type Damage struct {
	Step  plan.Step
	Layer int
	// Index of the chunk within its layer of Chunks chunks.
	Index  int
	Chunks int
	Chunk  plan.Hash
	// Err wraps ErrNotFound or ErrCorrupt.
	Err error
}

func (d Damage) Error() string {
	return fmt.Sprintf("step %d layer %d chunk %d of %d: %v", d.Step, d.Layer, d.Index, d.Chunks, d.Err)
}

func (d Damage) Unwrap() error { return d.Err }

// VerifyStep reads every chunk of a step, one at a time, and gives those that are missing
// or damaged, in order of layers; none means that the step can be restored from this node
// alone. Damaged ones are in the quarantine afterwards. progress, if not nil, is called
// after each chunk. The error is ErrNotFound for a step without a manifest, ErrCorrupt for
// one whose manifest is damaged, or reports that the verification could not be carried out.
func (s *Store) VerifyStep(ctx context.Context, step plan.Step, progress func(Progress)) ([]Damage, error) {
	if err := s.users.enter(); err != nil {
		return nil, fmt.Errorf("checkpoint: verify step %d: %w", step, err)
	}
	defer s.users.leave()
	s.sweeps.Lock() // no sweep between the manifest and the hold of its chunks
	m, err := s.Manifest(step)
	hashes := m.Hashes()
	s.guard.hold(hashes...)
	s.sweeps.Unlock()
	defer s.guard.release(hashes...)
	if err != nil {
		return nil, err
	}
	var found []Damage
	read := reading{s: s, progress: progress, total: len(hashes)}
	for _, l := range m.Layers {
		for i, h := range l.Chunks {
			err := read.chunk(ctx, h, l.chunkBytes(i))
			if err == nil {
				continue
			}
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotFound) {
				return found, fmt.Errorf("checkpoint: verify step %d: %w", step, err)
			}
			found = append(found, Damage{Step: step, Layer: l.Layer, Index: i, Chunks: len(l.Chunks), Chunk: h, Err: err})
		}
	}
	return found, nil
}

// reading reads chunks one by one and says how far it is.
type reading struct {
	s        *Store
	progress func(Progress) // may be nil
	total    int

	seen  int
	whole int
	bytes int64 // of the whole ones
}

// chunk reads one; size is what it must have, 0 any.
func (r *reading) chunk(ctx context.Context, h plan.Hash, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := r.s.Chunk(h)
	if err == nil && size > 0 && int64(len(data)) != size {
		err = fmt.Errorf("%w: %s has %d bytes, the manifest says %d", ErrCorrupt, h, len(data), size)
	}
	if err == nil {
		r.whole++
		r.bytes += int64(len(data))
	}
	r.seen++
	if r.progress != nil {
		r.progress(Progress{Chunks: r.seen, TotalChunks: r.total, Bytes: r.bytes})
	}
	return err
}
