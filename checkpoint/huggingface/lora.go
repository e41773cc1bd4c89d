package huggingface

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

const (
	adapterFile = "adapter_config.json"
	adapterBase = "adapter_model"
)

// Adapter is an opened folder of PEFT's layout: adapter_config.json and
// adapter_model.safetensors. It is safe for concurrent use.
type Adapter struct {
	dir    string
	config model.Config
	family family
	set    *safetensors.Set
}

// OpenAdapter reads adapters of the model base, and checks everything but the values. Errors
// wrap ErrUnsupported, ErrFormat, safetensors.ErrFormat or fs.ErrNotExist.
func OpenAdapter(dir string, base model.Config) (*Adapter, error) {
	a := &Adapter{dir: dir, config: base.Base()}
	err := a.open()
	if err != nil && a.set != nil {
		err = errors.Join(err, a.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("huggingface: open adapter %s: %w", dir, err)
	}
	return a, nil
}

func (a *Adapter) open() error {
	text, err := readFile(a.dir, adapterFile, maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w; name a folder in PEFT's layout, with %s and %s.safetensors", ErrFormat, err, adapterFile, adapterBase)
	}
	if err != nil {
		return err
	}
	if a.config.LoRA, err = parseAdapterConfig(text); err != nil {
		return err
	}
	if err := a.config.Validate(); err != nil {
		return fmt.Errorf("%w: %s: %s", ErrUnsupported, adapterFile, asWritten.Replace(err.Error()))
	}
	if a.family, err = familyOf(a.config.Base()); err != nil {
		return err
	}
	if a.set, err = safetensors.OpenSet(a.dir, adapterBase); err != nil {
		return getAgain(a.dir, err)
	}
	return a.check()
}

// adapterTensors are A and B of a layer's adapted matrices.
func adapterTensors(c model.Config, layer int) []model.Tensor {
	frozen := len(c.Base().LayerTensors(layer))
	return c.LayerTensors(layer)[frozen:]
}

// adapterName returns a tensor's name in PEFT's files.
func (of family) adapterName(t model.Tensor) string { return "base_model.model." + of.fullName(t.Name) }

// asWritten names in errors of package model the fields as adapterFile has them.
var asWritten = strings.NewReplacer("lora_targets", "target_modules", "lora_rank", "r")

// check compares the tensors of the file with those that the targets ask for.
func (a *Adapter) check() error {
	known := map[string]bool{}
	for layer := range a.config.Layers() {
		for _, t := range adapterTensors(a.config, layer) {
			want := stored{name: a.family.adapterName(t), shape: t.Shape}
			known[want.name] = true
			if err := checkTensor(a.set, want); err != nil {
				return err
			}
		}
	}
	for _, t := range a.set.Tensors() {
		if !known[t.Name] {
			return fmt.Errorf("%w: tensor %q %v belongs to no target of %s", ErrUnsupported, t.Name, t.Shape, adapterFile)
		}
	}
	return nil
}

// Config is the base model with the adapters.
func (a *Adapter) Config() model.Config { return a.config }

// Close closes the file.
func (a *Adapter) Close() error { return a.set.Close() }

// Layer fills dst, [TrainedLen] of Config, with a layer's adapters.
func (a *Adapter) Layer(layer int, dst []float32) error {
	front := a.config.FrozenLen(layer)
	for _, t := range adapterTensors(a.config, layer) {
		name := a.family.adapterName(t)
		f, err := a.set.File(name)
		if err == nil {
			err = f.Floats(name, 0, dst[t.Off-front:t.Off-front+t.Len()])
		}
		if err != nil {
			return fmt.Errorf("huggingface: read adapter %s: layer %d: %w", a.dir, layer, err)
		}
	}
	return nil
}
