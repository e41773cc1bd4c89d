package weights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pnode/checkpoint"
	"pnode/checkpoint/safetensors"
	"pnode/node/dataset"
	"pnode/node/dataset/files"
	"pnode/node/dataset/tokenizer"
	"pnode/pipeline/model"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

const (
	// importedFile is what makes a folder an imported model; it is written last.
	importedFile = "model.json"
	// storeDir holds the chunks.
	storeDir = "store"
	// pinName keeps the chunks.
	pinName          = "weights"
	importedVersion  = 1
	maxImportedBytes = 4 << 20
)

// ErrBadImport says that importedFile is not what Import writes.
var ErrBadImport = errors.New("not an imported model")

// imported is the content of importedFile.
type imported struct {
	Version int               `json:"version"`
	From    string            `json:"from"`
	DType   safetensors.DType `json:"dtype"`
	Model   model.Config      `json:"model"`
	Init    plan.InitSpec     `json:"init"`
}

// decodeImported is strict; the error wraps ErrBadImport.
func decodeImported(text []byte) (imported, error) {
	var i imported
	err := strict.Decode(text, &i)
	if err == nil && i.Version != importedVersion {
		err = fmt.Errorf("version %d, this program reads %d", i.Version, importedVersion)
	}
	if err == nil && !i.DType.Converts() {
		err = fmt.Errorf("dtype %q", i.DType)
	}
	if err == nil && i.Model.LoRA.On() {
		err = errors.New("a model with adapters apart")
	}
	if err == nil {
		err = i.Model.Validate()
	}
	if err == nil {
		err = CheckInit(i.Model, i.Init)
	}
	if err != nil {
		return imported{}, fmt.Errorf("%w: %w; import the model again", ErrBadImport, err)
	}
	return i, nil
}

// CheckInit returns an error unless initial weights fit a model: each layer has the size of its parameters and of its
// chunks.
func CheckInit(c model.Config, spec plan.InitSpec) error {
	if len(spec.Layers) != c.Layers() {
		return fmt.Errorf("weights of %d layers, the model has %d", len(spec.Layers), c.Layers())
	}
	for i, l := range spec.Layers {
		size := 4 * int64(c.LayerLen(i))
		if l.SizeBytes != size || int64(len(l.Chunks)) != (size+checkpoint.ChunkBytes-1)/checkpoint.ChunkBytes {
			return fmt.Errorf("layer %d has %d bytes in %d chunks, its parameters have %d", i, l.SizeBytes, len(l.Chunks), size)
		}
	}
	return nil
}

// Import checks all of a model and makes the folder dir of it, complete or not at all; one that is
// there must be empty. `pnode train --init` starts from it, without the folder that the model came
// from. A model without a tokenizer, or with one of a kind that is not supported, is imported for its
// weights; the error of a damaged one wraps tokenizer.ErrFormat.
func Import(ctx context.Context, m *Model, dir string, progress func(done, total int)) error {
	if err := importInto(ctx, m, dir, progress); err != nil {
		return fmt.Errorf("weights: import into %s: %w", dir, err)
	}
	return nil
}

func importInto(ctx context.Context, m *Model, dir string, progress func(done, total int)) error {
	if errors.Is(m.NoWords, tokenizer.ErrFormat) {
		return fmt.Errorf("%w; get that file again, or take the tokenizer's files out of the folder to import the weights alone", m.NoWords)
	}
	return checkpoint.InNewFolder(dir, func(tmp string) error {
		if err := os.Chmod(tmp, 0o700); err != nil {
			return err
		}
		store, err := checkpoint.Open(filepath.Join(tmp, storeDir), checkpoint.Options{})
		if err != nil {
			return err
		}
		spec, err := m.Store(ctx, store.PutChunk, progress)
		if err == nil {
			err = store.Pin(pinName, spec.AllChunks())
		}
		if err = errors.Join(err, store.Close()); errors.Is(err, checkpoint.ErrDiskFull) { // which is about one write
			err = fmt.Errorf("the model takes %.1f MB there, and %.1f MB of the disk stay free: %w",
				4*float64(m.Config.Params())/1e6, checkpoint.DefaultReserveBytes/1e6, err)
		}
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(imported{Version: importedVersion, From: m.From, DType: m.DType, Model: m.Config, Init: spec}, "", "  ")
		if err != nil {
			return err
		}
		return files.Replace(filepath.Join(tmp, importedFile), append(text, '\n'))
	})
}

func openImported(ctx context.Context, dir string) (*Model, error) {
	fail := func(err error) (*Model, error) { return nil, fmt.Errorf("weights: open %s: %w", dir, err) }
	text, err := files.Read(filepath.Join(dir, importedFile), maxImportedBytes)
	if err != nil {
		return fail(err)
	}
	i, err := decodeImported(text)
	if err != nil {
		return fail(fmt.Errorf("%s: %w", importedFile, err))
	}
	store, err := checkpoint.Open(filepath.Join(dir, storeDir), checkpoint.Options{ReadOnly: true})
	if err != nil {
		return fail(err)
	}
	shelf := Shelf{store}
	m := &Model{From: "the imported model in " + dir, Config: i.Model, DType: i.DType, DocumentEnd: plan.NoToken, layer: reader(shelf, i.Init.Layers), close: shelf.Close}
	if m.Files, err = dataset.ReadFiles(ctx, shelf, i.Init.Files); err != nil {
		return fail(errors.Join(err, shelf.Close()))
	}
	m.Words, m.NoWords = wordsOf(m.Files, m.Config.Vocab)
	return m, nil
}

var _ dataset.ChunkSource = Shelf{}
