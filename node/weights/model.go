package weights

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pnode/checkpoint/huggingface"
	"pnode/checkpoint/safetensors"
	"pnode/node/dataset/tokenizer"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// ErrNoModel says that a folder holds no weights.
var ErrNoModel = errors.New("no model")

// ErrNotWhole says that only some layers of a run's checkpoints are there.
var ErrNotWhole = errors.New("layers are missing or damaged")

// Model holds weights at rest. It belongs to one goroutine.
type Model struct {
	// From says what it is, for people: `step 300 of run abc`.
	From string
	// Config is without adapters, but for a model that Apart gave.
	Config model.Config
	// Step is that of a run's checkpoint; 0 for other models.
	Step plan.Step
	// DocumentEnd ends a document. In training attention saw nothing of a document after its end;
	// plan.NoToken where it saw all.
	DocumentEnd int32
	// Words are missing where nothing describes the tokens; then NoWords says why.
	Words   *Words
	NoWords error
	// Files belong to the model as its weights do, by name: the tokenizer's, and the
	// config.json it came with.
	Files map[string][]byte
	// DType is the type of an export that changes no value.
	DType safetensors.DType
	// Warnings are sentences about what was passed over, such as a damaged checkpoint.
	Warnings []string

	layer   func(ctx context.Context, layer int, dst []float32) error
	adapted *adapted // nil without adapters
	close   func() error
}

// Layer fills dst, [LayerLen] of Config, with a layer's parameters.
func (m *Model) Layer(ctx context.Context, layer int, dst []float32) error {
	if layer < 0 || layer >= m.Config.Layers() || len(dst) != m.Config.LayerLen(layer) {
		return fmt.Errorf("weights: read layer %d of %d into %d elements", layer, m.Config.Layers(), len(dst))
	}
	if err := m.layer(ctx, layer, dst); err != nil {
		return fmt.Errorf("weights: read %s: layer %d: %w", m.From, layer, err)
	}
	return nil
}

// Shorten cuts learned positions to so many, at most Config.Context; rotary ones stay.
func (m *Model) Shorten(positions int) {
	whole, read := m.Config, m.layer
	m.Config.Context = positions
	m.layer = func(ctx context.Context, layer int, dst []float32) error {
		all := dst
		if n := whole.LayerLen(layer); n > len(dst) { // the embedding, which ends with the positions
			all = make([]float32, n)
		}
		err := read(ctx, layer, all)
		copy(dst, all)
		return err
	}
}

// Masked reports whether attention is to stay within documents.
func (m *Model) Masked() bool { return m.DocumentEnd != plan.NoToken }

// Close closes the files. What was read stays valid.
func (m *Model) Close() error { return m.close() }

const (
	// configFile is in every folder in Hugging Face's layout.
	configFile = "config.json"
	// generationFile says there how text is generated.
	generationFile = "generation_config.json"
	// adapterFile is in every folder in PEFT's layout.
	adapterFile = "adapter_config.json"
	// mergedType holds what adapters make of weights of any type.
	mergedType = safetensors.F32
)

// Kind says what Open would read in a folder.
type Kind int

// The kinds of folders.
const (
	Nothing Kind = iota
	HuggingFace
	Imported
	Adapters // of another folder's model, in PEFT's layout
)

// KindOf looks at a folder.
func KindOf(dir string) Kind {
	switch {
	case regular(filepath.Join(dir, importedFile)):
		return Imported
	case regular(filepath.Join(dir, configFile)):
		return HuggingFace
	case regular(filepath.Join(dir, adapterFile)):
		return Adapters
	}
	return Nothing
}

func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Open opens a folder in Hugging Face's layout or one that Import made. The error wraps
// ErrNoModel, or is that of the folder's reader.
func Open(ctx context.Context, dir string) (*Model, error) {
	switch KindOf(dir) {
	case Imported:
		return openImported(ctx, dir)
	case HuggingFace:
		return openHuggingFace(dir)
	case Adapters:
		return nil, fmt.Errorf("weights: %w in %s, which holds adapters alone: name the folder of the model that they change, and this one with --lora", ErrNoModel, dir)
	}
	return nil, fmt.Errorf("weights: %w in %s: it has neither %s with model.safetensors nor %s", ErrNoModel, dir, configFile, importedFile)
}

func openHuggingFace(dir string) (*Model, error) {
	f, err := huggingface.Open(dir)
	if err != nil {
		return nil, err
	}
	files, err := f.Files(tokenizer.Files)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m := &Model{
		From: "the model in " + dir, Config: f.Config(), DocumentEnd: plan.NoToken, Files: files, DType: f.DType(), close: f.Close,
		layer: func(_ context.Context, layer int, dst []float32) error { return f.Layer(layer, dst) },
	}
	m.Words, m.NoWords = wordsOf(files, m.Config.Vocab)
	m.Warnings = f.Notes()
	return m, nil
}
