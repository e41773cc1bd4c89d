package huggingface

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"pnode/checkpoint"
	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// DefaultShardBytes is the most that goes into one file of weights.
const DefaultShardBytes = 5_000_000_000

// Export is the input of Write.
type Export struct {
	Config model.Config
	// Layer fills dst, [LayerLen] of Config, with a layer's parameters. Layers are asked
	// for in order.
	Layer func(layer int, dst []float32) error
	// DType of the weights; default F32.
	DType safetensors.DType
	// MaxShardBytes splits the weights; 0 means DefaultShardBytes.
	MaxShardBytes int64
	// Files are copied as they are, by plain name: the tokenizer's. A config.json among
	// them must describe the same model; its fields are kept.
	Files map[string][]byte
}

// Write makes the folder dir, complete or not at all; one that is there must be empty.
// Errors wrap ErrUnsupported, model.ErrBadConfig, fs.ErrExist, checkpoint.ErrLocked,
// checkpoint.ErrDiskFull or the operating system's.
func Write(dir string, e Export) error {
	if err := e.write(filepath.Clean(dir)); err != nil {
		return fmt.Errorf("huggingface: write %s: %w", dir, err)
	}
	return nil
}

func (e Export) write(dir string) error {
	if e.DType == "" {
		e.DType = safetensors.F32
	}
	if err := e.Config.Validate(); err != nil {
		return err
	}
	config, err := formatConfig(e.Config, e.DType, e.Files[configFile])
	if err != nil {
		return err
	}
	return checkpoint.InNewFolder(dir, func(tmp string) error {
		room := checkpoint.RoomAt(filepath.Dir(dir))
		err := e.writeFiles(tmp, config)
		if err == nil {
			err = e.writeWeights(tmp)
		}
		return room.Explain(err, e.weightBytes())
	})
}

// weightBytes is the size of all weights in the files.
func (e Export) weightBytes() int64 {
	var elements int64
	for layer := range e.Config.Layers() {
		for _, t := range e.owned(layer) {
			elements += int64(t.Len())
		}
	}
	if e.DType == safetensors.F32 {
		return 4 * elements
	}
	return 2 * elements // F16, BF16
}

func (e Export) writeFiles(dir string, config []byte) error {
	files := map[string][]byte{}
	maps.Copy(files, e.Files)
	files[configFile] = config
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Base(name) != name || !filepath.IsLocal(name) {
			return fmt.Errorf("%q is no plain file name", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o666); err != nil {
			return err
		}
	}
	return nil
}

func (e Export) writeWeights(dir string) error {
	of, err := familyOf(e.Config)
	if err != nil {
		return err
	}
	var tensors []safetensors.Tensor
	for layer := range e.Config.Layers() {
		for _, t := range e.owned(layer) {
			s := of.stored(t, true)
			tensors = append(tensors, safetensors.Tensor{Name: s.name, DType: e.DType, Shape: s.shape})
		}
	}
	w, err := safetensors.CreateSet(tensors, safetensors.Layout{
		Dir: dir, Base: weightsBase, MaxShardBytes: cmp.Or(e.MaxShardBytes, DefaultShardBytes), Metadata: fromTorch,
	})
	if err != nil {
		return err
	}
	return writeLayers(w, e.Config.Layers(), func(layer int) error {
		values := make([]float32, e.Config.LayerLen(layer))
		if err := e.Layer(layer, values); err != nil {
			return err
		}
		for _, t := range e.owned(layer) {
			if err := of.stored(t, true).write(w, values[t.Off:t.Off+t.Len()]); err != nil {
				return err
			}
		}
		return nil
	})
}

// fromTorch says how tensors lie in the files, as transformers asks.
var fromTorch = map[string]string{"format": "pt"}

// writeLayers writes one layer after the other, all or none.
func writeLayers(w *safetensors.SetWriter, layers int, write func(layer int) error) error {
	for layer := range layers {
		if err := write(layer); err != nil {
			return errors.Join(fmt.Errorf("layer %d: %w", layer, err), w.Discard())
		}
	}
	return w.Commit()
}

// owned are the tensors of a layer without the head's tied copy.
func (e Export) owned(layer int) []model.Tensor {
	tensors := e.Config.LayerTensors(layer)
	if layer == e.Config.Layers()-1 && e.Config.Tied() {
		return tensors[:len(tensors)-1]
	}
	return tensors
}

func (s stored) write(w *safetensors.SetWriter, src []float32) error {
	if !s.transpose {
		return w.Append(s.name, src)
	}
	in, out := s.shape[0], s.shape[1]
	rows := max(1, blockElements/out)
	block := make([]float32, min(rows, in)*out)
	for first := 0; first < in; first += rows {
		n := min(rows, in-first)
		for o := range out {
			row := src[o*in+first : o*in+first+n]
			for i, v := range row {
				block[i*out+o] = v
			}
		}
		if err := w.Append(s.name, block[:n*out]); err != nil {
			return err
		}
	}
	return nil
}
