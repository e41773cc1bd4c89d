package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"pnode/kernels"
	"pnode/node/dataset"
	"pnode/planner/plan"
)

// ErrNotFinite says that a parameter is infinite or no number.
var ErrNotFinite = errors.New("not a finite number")

// Store puts parameters and files into chunks, as a run starts from them. put must not keep
// the slice; progress, if not nil, is told the layers that are done. The error wraps
// ErrNotFinite for a model that cannot be trained.
func (m *Model) Store(ctx context.Context, put func([]byte) (plan.Hash, error), progress func(done, total int)) (plan.InitSpec, error) {
	spec := plan.InitSpec{Adapters: m.Config.LoRA.On()}
	total := m.Config.Layers()
	for layer := range total {
		params := make([]float32, m.Config.LayerLen(layer))
		if err := m.FiniteLayer(ctx, layer, params); err != nil {
			return plan.InitSpec{}, err
		}
		var l plan.LayerInit
		var err error
		l.Chunks, l.SizeBytes, err = dataset.StoreChunks(ctx, put, func(w io.Writer) error {
			_, err := w.Write(kernels.Float32Bytes(params))
			return err
		})
		if err != nil {
			return plan.InitSpec{}, err
		}
		spec.Layers = append(spec.Layers, l)
		if progress != nil {
			progress(layer+1, total)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		f, err := dataset.StoreFile(ctx, put, name, bytes.NewReader(m.Files[name]))
		if err != nil {
			return plan.InitSpec{}, err
		}
		spec.Files = append(spec.Files, f)
	}
	return spec, nil
}

// FiniteLayer is Layer for callers that compute with the parameters. The error wraps ErrNotFinite and names the tensor
// where one is infinite or no number.
func (m *Model) FiniteLayer(ctx context.Context, layer int, dst []float32) error {
	if err := m.Layer(ctx, layer, dst); err != nil {
		return err
	}
	for _, t := range m.Config.LayerTensors(layer) {
		for i, v := range dst[t.Off : t.Off+t.Len()] {
			if v-v != 0 { // also for what is no number
				return fmt.Errorf("weights: %s: element %d of tensor %s is %v: %w", m.From, i, t.Name, v, ErrNotFinite)
			}
		}
	}
	return nil
}
