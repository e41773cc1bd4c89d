package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"pnode/planner/plan"
)

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
// one whose manifest is damaged, or tells that the verification could not be carried out.
func (s *Store) VerifyStep(ctx context.Context, step plan.Step, progress func(Progress)) ([]Damage, error) {
	if err := s.users.enter(); err != nil {
		return nil, fmt.Errorf("checkpoint: verify step %d: %w", step, err)
	}
	defer s.users.leave()
	m, release, err := s.holdStep(step)
	if err != nil {
		return nil, err
	}
	defer release()
	var found []Damage
	read := reading{s: s, progress: progress, total: len(m.Hashes())}
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

// holdStep reads a manifest and protects its chunks, without a sweep in between.
func (s *Store) holdStep(step plan.Step) (m Manifest, release func(), err error) {
	s.sweeps.Lock()
	defer s.sweeps.Unlock()
	if m, err = s.Manifest(step); err != nil {
		return Manifest{}, nil, err
	}
	hashes := m.Hashes()
	s.guard.hold(hashes...)
	return m, func() { s.guard.release(hashes...) }, nil
}

// missing is the first chunk, of the layers that count, that is not here with its size.
func (s *Store) missing(m Manifest, counts func(LayerState) bool) *Damage {
	for _, l := range m.Layers {
		if !counts(l) {
			continue
		}
		for i, h := range l.Chunks {
			want := l.chunkBytes(i)
			if size := s.chunkSize(h); size != want {
				err := fmt.Errorf("%s of %d bytes: %w (found %d bytes)", h, want, ErrNotFound, max(size, 0))
				return &Damage{Step: m.Step, Layer: l.Layer, Index: i, Chunks: len(l.Chunks), Chunk: h, Err: err}
			}
		}
	}
	return nil
}

// reading reads chunks one by one and tells how far it is.
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
