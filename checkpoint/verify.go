package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// Report is the result of Verify.
type Report struct {
	// Chunks and Bytes were read and are right.
	Chunks int
	Bytes  int64
	// Missing and Corrupt chunks are referred to; each is named once. Corrupt ones are in
	// the quarantine now, unless the store is open to read alone.
	Missing []plan.Hash
	Corrupt []plan.Hash
	// Unfinished are the copies that were under way when the store was closed, by step.
	Unfinished []Unfinished
	// Manifests newest first, damaged ones left out.
	Manifests []ManifestReport
	// Unnamed chunk files, of UnnamedBytes, are referred to by nothing: an interrupted save leaves them, and the next sweep
	// removes them.
	Unnamed      int
	UnnamedBytes int64
	// Damaged says which manifests and pins cannot be read; nil when all can.
	Damaged error
	// Folder is where the chunks lie.
	Folder string
	// Index says what is damaged in the index, and what helps; nil for nothing. Checkpoints may be whole all the same.
	Index error
}

// Path returns the file of a chunk.
func (r Report) Path(h plan.Hash) string { return chunkPath(r.Folder, h) }

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

// Unfinished is a pin of chunks that were being fetched: Here of Chunks have come. Step is that of the checkpoint that has them; 0
// where it is not known.
type Unfinished struct {
	Step         plan.Step
	Here, Chunks int
}

// OK reports that nothing this node holds is missing or damaged.
func (r Report) OK() bool { return r.Whole() && r.Index == nil }

// Whole reports that no checkpoint that this node holds is damaged.
func (r Report) Whole() bool {
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
// layers held by other nodes may be absent, as may those of pins that Options call coming; other pinned ones may not. progress, if not nil, is
// called after each chunk. The error is nil unless the verification itself could not be
// carried out.
func (s *Store) Verify(ctx context.Context, progress func(Progress)) (Report, error) {
	if err := s.users.enter(); err != nil {
		return Report{}, fmt.Errorf("checkpoint: verify: %w", err)
	}
	defer s.users.leave()
	manifests, wanted, coming, damaged := s.holdAll()
	defer s.guard.release(wanted.order...)
	r := Report{Damaged: damaged, Folder: s.chunks.dir, Index: s.IndexDamage()}
	whole := map[plan.Hash]bool{}
	for i, h := range wanted.order {
		data, err := []byte(nil), ctx.Err()
		if err == nil {
			data, err = s.Chunk(h)
		}
		switch {
		case err == nil:
			whole[h] = true
			r.Chunks, r.Bytes = r.Chunks+1, r.Bytes+int64(len(data))
		case errors.Is(err, ErrCorrupt):
			r.Corrupt = append(r.Corrupt, h)
		case errors.Is(err, ErrNotFound):
			if wanted.required[h] {
				r.Missing = append(r.Missing, h)
			}
		default:
			return r, fmt.Errorf("checkpoint: verify: %w", err)
		}
		if progress != nil {
			progress(Progress{Chunks: i + 1, TotalChunks: len(wanted.order), Bytes: r.Bytes})
		}
	}
	for _, m := range manifests {
		r.Manifests = append(r.Manifests, s.judge(m, whole))
	}
	for _, hashes := range coming {
		if u := unfinished(manifests, hashes, whole); u.Here < u.Chunks {
			r.Unfinished = append(r.Unfinished, u)
		}
	}
	slices.SortFunc(r.Unfinished, func(a, b Unfinished) int { return cmp.Compare(a.Step, b.Step) })
	err := s.chunks.walk(func(h plan.Hash, size int64) error {
		if _, named := wanted.required[h]; !named {
			r.Unnamed, r.UnnamedBytes = r.Unnamed+1, r.UnnamedBytes+size
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("checkpoint: verify: %w", err)
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

// unfinished counts the chunks of a pin that are here.
func unfinished(manifests []Manifest, hashes []plan.Hash, whole map[plan.Hash]bool) Unfinished {
	u := Unfinished{Chunks: len(hashes)}
	of := map[plan.Hash]bool{}
	for _, h := range hashes {
		of[h] = true
		if whole[h] {
			u.Here++
		}
	}
	lacks := func(h plan.Hash) bool { return of[h] && !whole[h] }
	for _, m := range manifests { // what is shared with older checkpoints is here
		if u.Step == 0 && slices.ContainsFunc(m.Hashes(), lacks) {
			u.Step = m.Step
		}
	}
	return u
}

// holdAll lists what is referred to and holds it, without a sweep in between. Last are the pins of what was being fetched.
func (s *Store) holdAll() (_ []Manifest, w wanted, coming [][]plan.Hash, _ error) {
	s.sweeps.Lock()
	defer s.sweeps.Unlock()
	manifests, damaged := s.catalog.manifests()
	w = wanted{required: map[plan.Hash]bool{}}
	for _, m := range manifests {
		for _, l := range m.States() {
			w.add(l.Chunks, s.holds(l))
		}
	}
	var err error
	if s.catalog.broken == nil {
		err = s.catalog.eachPin(func(name string, hashes []plan.Hash) {
			comes := s.coming != nil && s.coming(name)
			if comes {
				coming = append(coming, hashes)
			}
			w.add(hashes, !comes)
		})
	}
	s.guard.hold(w.order...)
	return manifests, w, coming, errors.Join(damaged, err)
}

func (s *Store) judge(m Manifest, whole map[plan.Hash]bool) ManifestReport {
	r := ManifestReport{Step: m.Step, Generation: m.Generation, Layers: len(m.Layers), OK: true}
	for i, l := range m.States() {
		here := true
		for _, h := range l.Chunks {
			here = here && whole[h]
		}
		if here && i < len(m.Layers) {
			r.Here++
		} else if !here && s.holds(l) {
			r.OK = false
		}
	}
	return r
}
