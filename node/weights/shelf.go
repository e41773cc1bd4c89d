package weights

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"pnode/checkpoint"
	"pnode/kernels"
	"pnode/node/dataset"
	"pnode/planner/plan"
)

// Shelf reads chunks out of the first store that has them whole.
type Shelf []*checkpoint.Store

// Chunk implements dataset.ChunkSource.
func (s Shelf) Chunk(ctx context.Context, h plan.Hash) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	errs := []error{fmt.Errorf("chunk %s: %w", h, checkpoint.ErrNotFound)}
	for _, store := range s {
		chunk, err := store.Chunk(h)
		if err == nil {
			return chunk, nil
		}
		if !errors.Is(err, checkpoint.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(errs...)
}

// Close closes the stores.
func (s Shelf) Close() error {
	var errs []error
	for _, store := range s {
		errs = append(errs, store.Close())
	}
	return errors.Join(errs...)
}

// params fills dst with the parameters, out of a source's chunks, with which a layer's state begins. The optimizer's moments after them are not
// read.
func params(ctx context.Context, src dataset.ChunkSource, l plan.LayerInit, dst []float32) error {
	rest := kernels.Float32Bytes(dst)
	if l.SizeBytes < int64(len(rest)) {
		return fmt.Errorf("%w: %d bytes are stored, the parameters have %d", checkpoint.ErrCorrupt, l.SizeBytes, len(rest))
	}
	for _, h := range l.Chunks {
		if len(rest) == 0 {
			return nil
		}
		chunk, err := src.Chunk(ctx, h)
		if err != nil {
			return err
		}
		rest = rest[copy(rest, chunk):]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: the chunks end %d bytes before the parameters do", checkpoint.ErrCorrupt, len(rest))
	}
	return nil
}

// newest returns the newest checkpoint of a run whose parameters are all here and whole, and a warning for each newer
// one. The error wraps ErrNoModel when there is none.
func (s Shelf) newest(ctx context.Context, spec plan.RunSpec) (checkpoint.Manifest, []string, error) {
	manifests, damage, err := s.manifests()
	if err != nil {
		return checkpoint.Manifest{}, nil, err
	}
	var warnings []string
	for _, m := range manifests {
		var err error
		if len(m.Layers) != spec.Model.Layers() {
			err = fmt.Errorf("%w: it has %d layers of %d", checkpoint.ErrCorrupt, len(m.Layers), spec.Model.Layers())
		} else {
			for i, l := range stored(m) {
				if err = params(ctx, s, l, make([]float32, spec.Model.LayerLen(i))); err != nil {
					err = fmt.Errorf("layer %d: %w", i, err)
					break
				}
			}
		}
		switch {
		case err == nil:
			return m, warnings, nil
		case ctx.Err() != nil:
			return m, nil, err
		}
		warnings = append(warnings, fmt.Sprintf("the checkpoint of step %d is not whole here: %v", m.Step, err))
	}
	if len(warnings) > 0 {
		return checkpoint.Manifest{}, nil, fmt.Errorf("weights: %w in run %s: %w: %s", ErrNoModel, spec.Run, ErrNotWhole, warnings[0])
	}
	if damage != nil {
		return checkpoint.Manifest{}, nil, fmt.Errorf("weights: %w in run %s: %w: %w", ErrNoModel, spec.Run, ErrNotWhole, damage)
	}
	return checkpoint.Manifest{}, nil, fmt.Errorf("weights: %w in run %s: nothing has been saved yet: let it train on to its first checkpoint", ErrNoModel, spec.Run)
}

// manifests returns the manifests of all stores, newest first, each once, and what is wrong with the first store that has damaged ones.
func (s Shelf) manifests() (all []checkpoint.Manifest, damage, err error) {
	for _, store := range s {
		list, err := store.Manifests()
		if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) {
			return nil, nil, err
		}
		damage = cmp.Or(damage, err)
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b checkpoint.Manifest) int {
		return cmp.Or(cmp.Compare(b.Step, a.Step), cmp.Compare(b.Generation, a.Generation))
	})
	return slices.CompactFunc(all, func(a, b checkpoint.Manifest) bool { return bytes.Equal(a.Encode(), b.Encode()) }), damage, nil
}

// stored returns the layers of a checkpoint, which manifests have in order.
func stored(m checkpoint.Manifest) []plan.LayerInit {
	var layers []plan.LayerInit
	for _, l := range m.Layers {
		layers = append(layers, plan.LayerInit{SizeBytes: l.SizeBytes, Chunks: l.Chunks})
	}
	return layers
}

// reader returns a function that fills dst with the parameters of a layer out of a source's chunks.
func reader(src dataset.ChunkSource, layers []plan.LayerInit) func(ctx context.Context, layer int, dst []float32) error {
	return func(ctx context.Context, layer int, dst []float32) error { return params(ctx, src, layers[layer], dst) }
}
