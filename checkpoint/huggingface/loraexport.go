package huggingface

import (
	"fmt"
	"os"
	"path/filepath"

	"pnode/checkpoint"
	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// AdapterExport is the input of WriteAdapter.
type AdapterExport struct {
	Config model.Config // with adapters
	// Layer fills dst, [LayerLen] of Config, with a layer's parameters. Layers are asked for
	// in order, those without adapters are not.
	Layer func(layer int, dst []float32) error
	// Base is what the adapter's users load the model from: a folder or a name.
	Base string
}

// WriteAdapter makes the folder dir in PEFT's layout, complete or not at all; one that is
// there must be empty. Weights are F32.
func WriteAdapter(dir string, e AdapterExport) error {
	if err := checkpoint.InNewFolder(dir, e.fill); err != nil {
		return fmt.Errorf("huggingface: write adapter %s: %w", dir, err)
	}
	return nil
}

func (e AdapterExport) fill(dir string) error {
	of, err := familyOf(e.Config.Base())
	if err != nil {
		return err
	}
	config, err := e.formatAdapterConfig(of)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, adapterFile), config, 0o666); err != nil {
		return err
	}
	var tensors []safetensors.Tensor
	for layer := range e.Config.Layers() {
		for _, t := range adapterTensors(e.Config, layer) {
			tensors = append(tensors, safetensors.Tensor{Name: of.adapterName(t), DType: safetensors.F32, Shape: t.Shape})
		}
	}
	w, err := safetensors.CreateSet(tensors, safetensors.Layout{Dir: dir, Base: adapterBase, Metadata: fromTorch})
	if err != nil {
		return err
	}
	return writeLayers(w, e.Config.Layers(), func(layer int) error {
		tensors := adapterTensors(e.Config, layer)
		if len(tensors) == 0 {
			return nil
		}
		params := make([]float32, e.Config.LayerLen(layer))
		if err := e.Layer(layer, params); err != nil {
			return err
		}
		for _, t := range tensors {
			if err := w.Append(of.adapterName(t), params[t.Off:t.Off+t.Len()]); err != nil {
				return err
			}
		}
		return nil
	})
}
