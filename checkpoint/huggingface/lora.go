package huggingface

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// LoRA is low-rank adaptation (Hu et al. 2021): to the product of an adapted matrix
// [out,in] comes Scale * B A, with A [Rank,in] and B [out,Rank].
type LoRA struct {
	Rank  int
	Alpha float64
	// Targets are the last parts of the adapted layers' names: `q_proj`, `c_attn`; or more
	// of their ends: `mlp.c_proj`.
	Targets []string
}

// Scale is the weight of B A.
func (l LoRA) Scale() float32 { return float32(l.Alpha / float64(l.Rank)) }

// maxRank bounds what an adapter can ask for.
const maxRank = 1 << 14

// Validate names the field that does not fit, and what is accepted for this model.
func (l LoRA) Validate(c model.Config) error {
	if l.Rank < 1 || l.Rank > maxRank {
		return fmt.Errorf("%w: LoRA rank %d; accepted: 1 to %d", ErrUnsupported, l.Rank, maxRank)
	}
	if !(l.Alpha > 0 && l.Alpha <= 1e6) {
		return fmt.Errorf("%w: LoRA alpha %g; accepted: above 0, to 1e6", ErrUnsupported, l.Alpha)
	}
	for _, target := range l.Targets {
		one := LoRA{Targets: []string{target}}
		if len(one.Adapted(c, 1)) == 0 && len(one.Adapted(c, c.Layers()-1)) == 0 {
			return fmt.Errorf("%w: LoRA target %q; accepted: %s", ErrUnsupported, target, strings.Join(linearNames(c), ", "))
		}
	}
	if len(l.Targets) == 0 {
		return fmt.Errorf("%w: LoRA without targets; accepted: %s", ErrUnsupported, strings.Join(linearNames(c), ", "))
	}
	return nil
}

// Adapted are the matrices of a layer that have an adapter. A tied head has none: it is
// the embedding.
func (l LoRA) Adapted(c model.Config, layer int) []model.Tensor {
	return slices.DeleteFunc(linears(c, layer), func(t model.Tensor) bool {
		return !slices.ContainsFunc(l.Targets, func(target string) bool {
			return strings.HasSuffix("."+moduleOf(t), "."+target)
		})
	})
}

// linears are the matrices of a layer's linear products.
func linears(c model.Config, layer int) []model.Tensor {
	if layer == 0 {
		return nil
	}
	return slices.DeleteFunc(c.LayerTensors(layer), func(t model.Tensor) bool {
		return len(t.Shape) != 2 || layer == c.Layers()-1 && t.Name != headTensor
	})
}

func linearNames(c model.Config) []string {
	var names []string
	for _, layer := range []int{1, c.Layers() - 1} {
		for _, t := range linears(c, layer) {
			module := moduleOf(t)
			names = append(names, module[strings.LastIndex(module, ".")+1:])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func moduleOf(t model.Tensor) string { return strings.TrimSuffix(t.Name, ".weight") }

const (
	adapterFile = "adapter_config.json"
	adapterBase = "adapter_model"
)

// adapterNames are the tensors A and B of a matrix in a file of PEFT.
func (of family) adapterNames(t model.Tensor) (a, b string) {
	module := "base_model.model." + strings.TrimSuffix(of.stored(t, true).name, ".weight")
	return module + ".lora_A.weight", module + ".lora_B.weight"
}

// Adapter is an opened folder of PEFT's layout: adapter_config.json and
// adapter_model.safetensors.
type Adapter struct {
	lora   LoRA
	config model.Config
	family family
	set    *safetensors.Set
}

// OpenAdapter reads and checks everything but the values. Errors wrap ErrUnsupported,
// ErrFormat, safetensors.ErrFormat or fs.ErrNotExist.
func OpenAdapter(dir string, c model.Config) (*Adapter, error) {
	a := &Adapter{config: c}
	err := a.open(dir)
	if err != nil && a.set != nil {
		err = errors.Join(err, a.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("huggingface: open adapter %s: %w", dir, err)
	}
	return a, nil
}

func (a *Adapter) open(dir string) error {
	text, err := readFile(dir, adapterFile, maxConfigBytes)
	if err != nil {
		return err
	}
	if a.lora, err = ParseAdapterConfig(text); err != nil {
		return err
	}
	if err := a.lora.Validate(a.config); err != nil {
		return fmt.Errorf("%s: %w", adapterFile, err)
	}
	if a.family, err = familyOf(a.config); err != nil {
		return err
	}
	if a.set, err = safetensors.OpenSet(dir, adapterBase); err != nil {
		return err
	}
	return a.check()
}

// check compares the tensors of the file with those that the targets ask for.
func (a *Adapter) check() error {
	known := map[string]bool{}
	for layer := range a.config.Layers() {
		for _, t := range a.lora.Adapted(a.config, layer) {
			down, up := a.family.adapterNames(t)
			known[down], known[up] = true, true
			for _, want := range []stored{
				{name: down, shape: []int{a.lora.Rank, t.Shape[1]}},
				{name: up, shape: []int{t.Shape[0], a.lora.Rank}},
			} {
				if err := checkTensor(a.set, want); err != nil {
					return err
				}
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

// LoRA is what adapter_config.json says.
func (a *Adapter) LoRA() LoRA { return a.lora }

// Close closes the file.
func (a *Adapter) Close() error { return a.set.Close() }

// Pair fills A [Rank,in] and B [out,Rank] of an adapted matrix.
func (a *Adapter) Pair(t model.Tensor, down, up []float32) error {
	downName, upName := a.family.adapterNames(t)
	return errors.Join(a.floats(downName, down), a.floats(upName, up))
}

func (a *Adapter) floats(name string, dst []float32) error {
	f, err := a.set.File(name)
	if err != nil {
		return err
	}
	return f.Floats(name, 0, dst)
}

// Merge adds the adapter to a layer's parameters, [LayerLen].
func (a *Adapter) Merge(layer int, params []float32) error {
	for _, t := range a.lora.Adapted(a.config, layer) {
		down, up := make([]float32, a.lora.Rank*t.Shape[1]), make([]float32, t.Shape[0]*a.lora.Rank)
		if err := a.Pair(t, down, up); err != nil {
			return err
		}
		a.lora.MergeInto(params[t.Off:t.Off+t.Len()], down, up)
	}
	return nil
}

// MergeInto adds Scale * B A to a matrix [out,in].
func (l LoRA) MergeInto(matrix, down, up []float32) {
	in := len(down) / l.Rank
	for o := range len(matrix) / in {
		row := matrix[o*in : (o+1)*in]
		for r := range l.Rank {
			factor := l.Scale() * up[o*l.Rank+r]
			for i, v := range down[r*in : (r+1)*in] {
				row[i] += factor * v
			}
		}
	}
}

// AdapterExport is what WriteAdapter makes a folder of.
type AdapterExport struct {
	Config model.Config
	LoRA   LoRA
	// Pair gives A [Rank,in] and B [out,Rank] of an adapted matrix.
	Pair func(t model.Tensor) (down, up []float32, err error)
	// Base is what the adapter's users load the model from: a folder or a name.
	Base string
}

// WriteAdapter makes the folder dir in PEFT's layout, complete or not at all; one that is
// there must be empty. Weights are F32.
func WriteAdapter(dir string, e AdapterExport) error {
	err := e.LoRA.Validate(e.Config)
	if err == nil {
		err = inNewFolder(filepath.Clean(dir), e.fill)
	}
	if err != nil {
		return fmt.Errorf("huggingface: write adapter %s: %w", dir, err)
	}
	return nil
}
