package huggingface

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

const (
	configFile  = "config.json"
	weightsBase = "model"
	// maxConfigBytes bounds config.json; real ones have a few KB.
	maxConfigBytes = 1 << 20
	// maxFileBytes bounds each of the tokenizer's files.
	maxFileBytes = 256 << 20
)

// Model is an opened folder. It is safe for concurrent use.
type Model struct {
	dir      string
	settings Settings
	family   family
	set      *safetensors.Set
	prefixed bool // names carry the family's prefix
}

// Open reads and checks everything but the values: config.json, and the names, shapes and
// types of all tensors. Errors wrap ErrUnsupported, ErrFormat, safetensors.ErrFormat,
// model.ErrBadConfig or fs.ErrNotExist.
func Open(dir string) (*Model, error) {
	m, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("huggingface: open %s: %w", dir, err)
	}
	return m, nil
}

func open(dir string) (*Model, error) {
	if err := checkRegular(dir); err != nil {
		return nil, err
	}
	text, err := readFile(dir, configFile, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	m := &Model{dir: dir}
	if m.settings, err = parseConfig(text); err != nil {
		return nil, err
	}
	all := families()
	m.family = all[slices.IndexFunc(all, func(of family) bool { return of.architecture == m.settings.Architecture })]
	if m.set, err = safetensors.OpenSet(dir, weightsBase); err != nil {
		return nil, getAgain(dir, err)
	}
	if err := m.check(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// CheckConfig returns an error unless Open reads models with this config.json. Errors are those of Open.
func CheckConfig(text []byte) error {
	if len(text) > maxConfigBytes {
		return fmt.Errorf("huggingface: %w: %s has %d bytes, at most %d are accepted", ErrFormat, configFile, len(text), maxConfigBytes)
	}
	if _, err := parseConfig(text); err != nil {
		return fmt.Errorf("huggingface: %s: %w", configFile, err)
	}
	return nil
}

// pickledFiles are weights in the form before safetensors, which is a program for Python.
var pickledFiles = []string{"pytorch_model.bin", "pytorch_model.bin.index.json"}

// getAgain adds to the error of weights that are missing, or not whole, what to do about them.
func getAgain(dir string, err error) error {
	if errors.Is(err, safetensors.ErrFormat) {
		return fmt.Errorf("%w; get the file again", err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range pickledFiles {
		if _, e := os.Stat(filepath.Join(dir, name)); e == nil {
			return fmt.Errorf("%w; %s is not read: have Python's transformers load the folder and save_pretrained it", err, name)
		}
	}
	return fmt.Errorf("%w; get the model's folder again, with every file of weights", err)
}

// checkRegular refuses a folder with pipes and the like: opening one would wait for a
// writer that may never come. Links are followed.
func checkRegular(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		st, err := os.Stat(filepath.Join(dir, e.Name()))
		if err == nil && !st.IsDir() && !st.Mode().IsRegular() {
			return fmt.Errorf("%w: %s is neither a file nor a folder; save what it gives to a file", ErrFormat, e.Name())
		}
	}
	return nil
}

// Config is the model's, without dropout.
func (m *Model) Config() model.Config { return m.settings.Model }

// Notes returns sentences about what config.json says and this program passes over.
func (m *Model) Notes() []string { return m.settings.Notes }

// Close closes the files.
func (m *Model) Close() error { return m.set.Close() }

// stored says how a tensor of package model lies in the files.
type stored struct {
	name      string
	shape     []int
	transpose bool // Conv1D: [in,out]
}

// stored names a tensor for a family; prefixed reports whether the base model's tensors
// carry its prefix.
func (of family) stored(t model.Tensor, prefixed bool) stored {
	s := stored{name: t.Name, shape: t.Shape}
	if prefixed {
		s.name = of.fullName(t.Name)
	}
	if of.architecture == GPT2 && len(t.Shape) == 2 && strings.HasPrefix(t.Name, "h.") {
		s.shape, s.transpose = []int{t.Shape[1], t.Shape[0]}, true
	}
	return s
}

// fullName is a tensor's name with the prefix of the base model, which the head is no part of.
func (of family) fullName(name string) string {
	if strings.HasPrefix(name, headModule) {
		return name
	}
	return of.prefix + name
}

const (
	headModule = "lm_head."
	headTensor = headModule + "weight"
)

// check compares the tensors of the files with those of the model.
func (m *Model) check() error {
	tensors := m.set.Tensors()
	m.prefixed = slices.ContainsFunc(tensors, func(t safetensors.Tensor) bool { return strings.HasPrefix(t.Name, m.family.prefix) })
	if _, err := m.set.File(headTensor); err != nil && !m.settings.Model.Tied() {
		return fmt.Errorf("%w: %w, and tie_word_embeddings is false: the folder holds %s without the head that predicts tokens; get or save the whole %s",
			ErrFormat, err, m.family.base, m.family.architecture)
	}
	known := map[string]bool{}
	for layer := range m.settings.Model.Layers() {
		for _, want := range m.settings.Model.LayerTensors(layer) {
			s := m.family.stored(want, m.prefixed)
			known[s.name] = true
			if err := checkTensor(m.set, s); err != nil {
				return err
			}
		}
	}
	for _, t := range tensors {
		if !known[t.Name] && !m.passedOver(t.Name) {
			return fmt.Errorf("%w: tensor %q %v belongs to no part of a %s with this config.json", ErrUnsupported, t.Name, t.Shape, m.settings.Architecture)
		}
	}
	return nil
}

func checkTensor(set *safetensors.Set, want stored) error {
	f, err := set.File(want.name)
	if err != nil {
		return fmt.Errorf("%w: %w, which the configuration asks for; get both from one place", ErrFormat, err)
	}
	got, err := f.Tensor(want.name)
	if err != nil {
		return err
	}
	if !slices.Equal(got.Shape, want.shape) {
		return fmt.Errorf("%w: tensor %q is %v, the configuration asks for %v; get both from one place", ErrFormat, want.name, got.Shape, want.shape)
	}
	if !got.DType.Converts() {
		return fmt.Errorf("%w: tensor %q holds %s; accepted: F32, F16, BF16", ErrUnsupported, want.name, got.DType)
	}
	return nil
}

// passedOver reports whether a tensor is a constant that older versions stored with the weights, or the
// second copy of a tied head, which Layer compares with the first.
func (m *Model) passedOver(name string) bool {
	if name == headTensor {
		return m.settings.Model.Tied()
	}
	for _, end := range []string{".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// DType is the type of an export that changes no value: that of all weights, or F32 where they
// are of several.
func (m *Model) DType() safetensors.DType {
	tensors := m.set.Tensors()
	tensors = slices.DeleteFunc(tensors, func(t safetensors.Tensor) bool { return m.passedOver(t.Name) })
	one := tensors[0].DType
	if slices.ContainsFunc(tensors, func(t safetensors.Tensor) bool { return t.DType != one }) {
		return safetensors.F32
	}
	return one
}

// Layer fills dst, [LayerLen] of Config, with a layer's parameters.
func (m *Model) Layer(layer int, dst []float32) error {
	if layer < 0 || layer >= m.settings.Model.Layers() || len(dst) != m.settings.Model.LayerLen(layer) {
		return fmt.Errorf("huggingface: read layer %d of %d into %d elements", layer, m.settings.Model.Layers(), len(dst))
	}
	for _, t := range m.settings.Model.LayerTensors(layer) {
		s := m.family.stored(t, m.prefixed)
		f, err := m.set.File(s.name)
		if err == nil {
			err = s.read(f, dst[t.Off:t.Off+t.Len()])
		}
		if err != nil {
			return fmt.Errorf("huggingface: read %s: layer %d: %w", m.dir, layer, err)
		}
		if last := layer == m.settings.Model.Layers()-1; last && t.Decay && m.settings.Model.Tied() {
			if err := m.checkTiedCopy(dst[t.Off : t.Off+t.Len()]); err != nil {
				return fmt.Errorf("huggingface: read %s: %w", m.dir, err)
			}
		}
	}
	return nil
}

// checkTiedCopy compares a stored copy of the tied head, if there is one.
func (m *Model) checkTiedCopy(embedding []float32) error {
	f, err := m.set.File(headTensor)
	if errors.Is(err, safetensors.ErrNoTensor) {
		return nil
	}
	block := make([]float32, m.settings.Model.Channels)
	for at := 0; err == nil && at < len(embedding); at += len(block) {
		if err = f.Floats(headTensor, at, block); err == nil && !slices.Equal(block, embedding[at:at+len(block)]) {
			err = fmt.Errorf("%w: %s differs from the embedding, to which tie_word_embeddings ties it", ErrFormat, headTensor)
		}
	}
	return err
}

// blockElements is about how much of a matrix is transposed at a time: 1 MiB of float32.
const blockElements = 256 << 10

func (s stored) read(f *safetensors.File, dst []float32) error {
	if !s.transpose {
		return f.Floats(s.name, 0, dst)
	}
	in, out := s.shape[0], s.shape[1]
	rows := max(1, blockElements/out)
	block := make([]float32, min(rows, in)*out)
	for first := 0; first < in; first += rows {
		n := min(rows, in-first)
		if err := f.Floats(s.name, first*out, block[:n*out]); err != nil {
			return err
		}
		for o := range out {
			row := dst[o*in+first : o*in+first+n]
			for i := range row {
				row[i] = block[i*out+o]
			}
		}
	}
	return nil
}

// Files are the texts that belong to a model beside its weights: config.json and those of
// names that the folder holds.
func (m *Model) Files(names []string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range append([]string{configFile, generationFile}, names...) {
		text, err := readFile(m.dir, name, maxFileBytes)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("huggingface: read %s: %w", m.dir, err)
		default:
			files[name] = text
		}
	}
	return files, nil
}

const generationFile = "generation_config.json"

func readFile(dir, name string, limit int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%w: %s is over %d bytes", ErrFormat, name, limit)
	}
	return text, err
}
