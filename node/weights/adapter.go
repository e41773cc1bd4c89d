package weights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pnode/checkpoint/huggingface"
	"pnode/pipeline/model"
)

// ErrNoAdapter says that weights have no adapters.
var ErrNoAdapter = errors.New("no adapter")

// adapted are the layers of a model before its adapters are worked in.
type adapted struct {
	config model.Config // with adapters
	layer  func(ctx context.Context, layer int, dst []float32) error
}

// ExportAdapter writes the adapters alone, in PEFT's layout, complete or not at all; a folder
// that is there must be empty. Base is what their users load the model from: a folder or a
// name. The error wraps ErrNoAdapter when there are none.
func (m *Model) ExportAdapter(ctx context.Context, dir, base string) error {
	if m.adapted == nil {
		return fmt.Errorf("weights: %w in %s: export the model, or train one with lora_rank", ErrNoAdapter, m.From)
	}
	l := m.adapted.config.LoRA
	return huggingface.WriteAdapter(dir, huggingface.AdapterExport{
		Config: m.Config, Base: base, Pair: m.adapted.pairs(ctx),
		LoRA: huggingface.LoRA{Rank: l.Rank, Alpha: l.Alpha, Targets: strings.Split(l.Targets, ",")},
	})
}

// pairs gives A and B of one matrix after the other; a layer is read once for all of its
// matrices where they come one behind the other.
func (a adapted) pairs(ctx context.Context) func(t model.Tensor) (down, up []float32, err error) {
	homes := map[string]int{} // layer of a matrix
	for layer := range a.config.Layers() {
		for _, t := range a.config.LayerTensors(layer) {
			homes[t.Name] = layer
		}
	}
	at, params := -1, []float32(nil)
	return func(t model.Tensor) (down, up []float32, err error) {
		if layer := homes[t.Name]; layer != at {
			params = make([]float32, a.config.LayerLen(layer))
			if err := a.layer(ctx, layer, params); err != nil {
				return nil, nil, err
			}
			at = layer
		}
		module := strings.TrimSuffix(t.Name, ".weight")
		down, up = a.tensor(at, module+".lora_A.weight", params), a.tensor(at, module+".lora_B.weight", params)
		if down == nil || up == nil {
			return nil, nil, fmt.Errorf("weights: %w for %s", ErrNoAdapter, t.Name)
		}
		return down, up, nil
	}
}

// tensor is the part of a layer's parameters that has that name, nil if there is none.
func (a adapted) tensor(layer int, name string, params []float32) []float32 {
	tensors := a.config.LayerTensors(layer)
	i := slices.IndexFunc(tensors, func(t model.Tensor) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return params[tensors[i].Off : tensors[i].Off+tensors[i].Len()]
}
