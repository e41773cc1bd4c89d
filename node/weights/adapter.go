package weights

import (
	"context"
	"errors"
	"fmt"

	"pnode/checkpoint/huggingface"
	"pnode/pipeline/model"
)

// ErrNoAdapter says that weights have no adapters.
var ErrNoAdapter = errors.New("no adapter")

// adapted is a model before its adapters are worked in.
type adapted struct {
	config model.Config // with adapters
	// layer fills dst, [LayerLen] of config: the base's parameters, then the adapters'.
	layer func(ctx context.Context, layer int, dst []float32) error
}

// merged reads a layer with its adapters worked in.
func (a adapted) merged(ctx context.Context, layer int, dst []float32) error {
	if a.config.TrainedLen(layer) == 0 {
		return a.layer(ctx, layer, dst)
	}
	params := make([]float32, a.config.LayerLen(layer))
	if err := a.layer(ctx, layer, params); err != nil {
		return err
	}
	copy(dst, a.config.Merge(layer, params))
	return nil
}

// WithAdapters returns the model with the adapters of a folder in PEFT's layout worked in. It takes m over, and closes
// it on an error, which names what does not fit.
func WithAdapters(m *Model, dir string) (*Model, error) {
	a, err := huggingface.OpenAdapter(dir, m.Config)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	both := *m
	both.From += " with the adapters in " + dir
	both.adapted = &adapted{config: a.Config(), layer: func(ctx context.Context, layer int, dst []float32) error {
		base := m.Config.LayerLen(layer)
		return errors.Join(m.layer(ctx, layer, dst[:base]), a.Layer(layer, dst[base:]))
	}}
	both.layer = both.adapted.merged
	both.DType = mergedType
	both.close = func() error { return errors.Join(a.Close(), m.close()) }
	return &both, nil
}

// Apart returns the model with its adapters apart from the weights, not worked in: Config has them, and the parameters of
// a layer end with theirs. It closes what m does. The error wraps ErrNoAdapter when there are none.
func (m *Model) Apart() (*Model, error) {
	if m.adapted == nil {
		return nil, fmt.Errorf("weights: %w in %s: train some with --lora-rank, or name their folder with --lora", ErrNoAdapter, m.From)
	}
	apart := *m
	apart.Config, apart.layer, apart.adapted = m.adapted.config, m.adapted.layer, nil
	return &apart, nil
}

// ExportAdapter writes the adapters alone, in PEFT's layout, complete or not at all; a folder
// that is there must be empty. Base is what their users load the model from: a folder or a
// name. The error wraps ErrNoAdapter when there are none.
func (m *Model) ExportAdapter(ctx context.Context, dir, base string) error {
	apart, err := m.Apart()
	if err != nil {
		return err
	}
	return huggingface.WriteAdapter(dir, huggingface.AdapterExport{
		Config: apart.Config, Base: base,
		Layer: func(layer int, dst []float32) error { return apart.Layer(ctx, layer, dst) },
	})
}
