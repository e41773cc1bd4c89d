package weights

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pnode/checkpoint"
	"pnode/checkpoint/huggingface"
	"pnode/checkpoint/safetensors"
	"pnode/kernels"
	"pnode/node/dataset/tokenizer"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// references are models that Python's transformers saved.
const references = "../../checkpoint/huggingface/testdata"

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func open(t testing.TB, dir string) *Model {
	t.Helper()
	m := must[*Model](t)(Open(t.Context(), dir))
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// write makes a folder in Hugging Face's layout with a random model whose tokens are bytes;
// spoil may change a layer.
func write(t testing.TB, c model.Config, spoil func(layer int, params []float32)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	err := huggingface.Write(dir, huggingface.Export{
		Config: c, Files: tokenizer.Bytes{}.Files(),
		Layer: func(layer int, dst []float32) error {
			c.InitLayer(layer, 7, dst)
			spoil(layer, dst)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func unspoiled(int, []float32) {}

var byteModel = model.Config{Vocab: 256, Context: 16, Blocks: 2, Heads: 2, Channels: 16}

// tensors are types and values of all tensors of a folder by name; float32 holds those of every
// type exactly.
func tensors(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	set := must[*safetensors.Set](t)(safetensors.OpenSet(dir, "model"))
	defer set.Close()
	all := map[string][]byte{}
	for _, tensor := range set.Tensors() {
		file := must[*safetensors.File](t)(set.File(tensor.Name))
		values := make([]float32, tensor.Len())
		if err := file.Floats(tensor.Name, 0, values); err != nil {
			t.Fatal(err)
		}
		all[tensor.Name] = append([]byte(tensor.DType), kernels.Float32Bytes(values)...)
	}
	return all
}

// TestImportAndExportKeepEveryByte: into chunks and out again; with -short one model of each family.
func TestImportAndExportKeepEveryByte(t *testing.T) {
	names := []string{"gpt2-untied", "llama-scaled", "mistral", "qwen2", "gpt2", "llama", "llama-linear"}
	if testing.Short() {
		names = names[:4]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			source, imported, out := filepath.Join(references, name), filepath.Join(t.TempDir(), "imported"), filepath.Join(t.TempDir(), "out")
			done := 0
			if err := Import(t.Context(), open(t, source), imported, func(n, _ int) { done = n }); err != nil {
				t.Fatal(err)
			}
			m := open(t, imported)
			if done != m.Config.Layers() || m.Config != open(t, source).Config {
				t.Errorf("%d layers, %+v", done, m.Config)
			}
			dtype := must[safetensors.DType](t)(m.Export(t.Context(), out, ExportOptions{}))
			if dtype != open(t, source).DType {
				t.Errorf("exported as %s", dtype)
			}
			want, got := tensors(t, source), tensors(t, out)
			for name, bytesOf := range want {
				if !bytes.Equal(bytesOf, got[name]) {
					t.Errorf("%s differs", name)
				}
			}
			if len(got) != len(want) || len(want) == 0 {
				t.Errorf("%d tensors, want %d", len(got), len(want))
			}
		})
	}
}

// TestShortenCutsLearnedPositions: a model with fewer positions is exported as such, with the same values.
func TestShortenCutsLearnedPositions(t *testing.T) {
	dir := write(t, byteModel, unspoiled)
	whole, m := open(t, dir), open(t, dir)
	m.Shorten(5)
	c := byteModel
	c.Context = 5
	if m.Config.Resolved() != c.Resolved() {
		t.Fatalf("%+v", m.Config)
	}
	for layer := range c.Layers() {
		want, got := make([]float32, whole.Config.LayerLen(layer)), make([]float32, c.LayerLen(layer))
		if err := errors.Join(whole.Layer(t.Context(), layer, want), m.Layer(t.Context(), layer, got)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want[:len(got)]) || layer > 0 && len(got) != len(want) {
			t.Errorf("layer %d differs", layer)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	if _, err := m.Export(t.Context(), out, ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if back := open(t, out); back.Config.Context != 5 {
		t.Errorf("exported with %d positions", back.Config.Context)
	}
}

// TestSeveralTypesLoseNothing: a folder with one tensor of float32 among those of bfloat16 keeps
// every value on its way through an import.
func TestSeveralTypesLoseNothing(t *testing.T) {
	dir := write(t, byteModel, unspoiled)
	values := map[string][]float32{}
	var list []safetensors.Tensor
	for i, name := range slices.Sorted(maps.Keys(tensors(t, dir))) {
		set := must[*safetensors.Set](t)(safetensors.OpenSet(dir, "model"))
		file := must[*safetensors.File](t)(set.File(name))
		tensor := must[safetensors.Tensor](t)(file.Tensor(name))
		values[name] = slices.Repeat([]float32{1 + 1.0/128}, tensor.Len())
		if tensor.DType = safetensors.BF16; i == 3 {
			tensor.DType = safetensors.F32
			values[name][0] = 1 + 1.0/(1<<20) // more digits than the others have
		}
		list = append(list, tensor)
		if err := set.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w := must[*safetensors.Writer](t)(safetensors.Create(filepath.Join(dir, "model.safetensors"), list, nil))
	for name, v := range values {
		if err := w.Append(name, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	imported, out := filepath.Join(t.TempDir(), "imported"), filepath.Join(t.TempDir(), "out")
	if err := Import(t.Context(), open(t, dir), imported, nil); err != nil {
		t.Fatal(err)
	}
	if dtype := must[safetensors.DType](t)(open(t, imported).Export(t.Context(), out, ExportOptions{})); dtype != safetensors.F32 {
		t.Errorf("exported as %s", dtype)
	}
	for name, got := range tensors(t, out) {
		if !bytes.Equal(got, append([]byte(safetensors.F32), kernels.Float32Bytes(values[name])...)) {
			t.Errorf("%s has lost digits", name)
		}
	}
}

func TestImportRefuses(t *testing.T) {
	used := t.TempDir()
	if err := os.WriteFile(filepath.Join(used, "mine.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sound := write(t, byteModel, unspoiled)
	infinite := write(t, byteModel, func(layer int, params []float32) {
		if layer == 1 {
			params[3] = float32(math.Inf(1))
		}
	})
	for _, tt := range []struct {
		name, source, dir, want string
		is                      error
	}{
		{"a value", infinite, filepath.Join(t.TempDir(), "new"), "element 3 of tensor h.0.ln_1.weight is +Inf", ErrNotFinite},
		{"a used folder", sound, used, "the folder is not empty: it holds mine.txt; name a new or an empty one", os.ErrExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Import(t.Context(), open(t, tt.source), tt.dir, nil)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("want %q: %v", tt.want, err)
			}
			if KindOf(tt.dir) != Nothing {
				t.Error("it looks like a model all the same")
			}
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	dir := filepath.Join(t.TempDir(), "cancelled")
	if err := Import(cancelled, open(t, sound), dir, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cancelled import leaves its folder: %v", err)
	}
}

// TestImportSparesOtherFiles: a folder that only looks like what an import was killed in stays as
// it is.
func TestImportSparesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	photo := filepath.Join(dir, storeDir, "photo.jpg")
	if err := errors.Join(os.Mkdir(filepath.Dir(photo), 0o755), os.WriteFile(photo, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m := open(t, write(t, byteModel, unspoiled))
	if err := Import(t.Context(), m, dir, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("a folder with another's store: %v", err)
	}
	if _, err := os.Stat(photo); err != nil {
		t.Error(err)
	}
}

func TestExportRefusesWhatF16CannotHold(t *testing.T) {
	large := write(t, byteModel, func(layer int, params []float32) {
		if layer == 0 {
			params[5] = -70000
		}
	})
	m, out := open(t, large), filepath.Join(t.TempDir(), "out")
	if _, err := m.Export(t.Context(), out, ExportOptions{DType: "f16"}); !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "element 5 of tensor wte.weight is -70000") {
		t.Error(err)
	}
	if KindOf(out) != Nothing {
		t.Error("half an export is left")
	}
	if _, err := m.Export(t.Context(), out, ExportOptions{DType: "bf16"}); err != nil {
		t.Error(err)
	}
	if _, err := m.Export(t.Context(), out, ExportOptions{DType: "i8"}); err == nil {
		t.Error("i8 is accepted")
	}
}

func TestExportRefusesWhatIsNoNumber(t *testing.T) {
	spoiled := write(t, byteModel, func(layer int, params []float32) {
		if layer == 1 {
			params[3] = float32(math.NaN())
		}
	})
	out := filepath.Join(t.TempDir(), "out")
	if _, err := open(t, spoiled).Export(t.Context(), out, ExportOptions{}); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "element 3 of tensor h.0.ln_1.weight is NaN") {
		t.Error(err)
	}
	if KindOf(out) != Nothing {
		t.Error("half an export is left")
	}
}

func TestOpenRefuses(t *testing.T) {
	empty := t.TempDir()
	if _, err := Open(t.Context(), empty); !errors.Is(err, ErrNoModel) {
		t.Error(err)
	}
	dir := filepath.Join(t.TempDir(), "imported")
	if err := Import(t.Context(), open(t, write(t, byteModel, unspoiled)), dir, nil); err != nil {
		t.Fatal(err)
	}
	chunks := must[[]string](t)(filepath.Glob(filepath.Join(dir, storeDir, "chunks", "*", "*")))
	for _, chunk := range chunks {
		if err := os.WriteFile(chunk, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := Open(t.Context(), dir); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("%v, %v", m, err)
	}
}

// TestAnImportedModelHasSeveralReaders: generate and eval at once.
func TestAnImportedModelHasSeveralReaders(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("one process at a time")
	}
	dir := filepath.Join(t.TempDir(), "imported")
	if err := Import(t.Context(), open(t, write(t, byteModel, unspoiled)), dir, nil); err != nil {
		t.Fatal(err)
	}
	var read [2][]float32
	for i, m := range []*Model{open(t, dir), open(t, dir)} {
		read[i] = make([]float32, byteModel.LayerLen(1))
		if err := m.Layer(t.Context(), 1, read[i]); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(read[0], read[1]) {
		t.Error("they read different weights")
	}
}

func TestWords(t *testing.T) {
	bytesModel := open(t, write(t, byteModel, unspoiled))
	if w := bytesModel.Words; w == nil || w.Hash() != (tokenizer.Bytes{}).Hash() || !slices.Equal(w.Prompt(nil), []int32{'\n'}) {
		t.Errorf("%+v, %v", w, bytesModel.NoWords)
	}
	if m := open(t, filepath.Join(references, "gpt2")); m.Words != nil || !errors.Is(m.NoWords, ErrNoWords) {
		t.Errorf("%+v, %v", m.Words, m.NoWords)
	}
	for _, tt := range []struct {
		config string
		want   []int32
	}{
		{`{"eos_token_id": 3}`, []int32{3}},
		{`{"eos_token_id": [4, 999, 5]}`, []int32{4, 5}},
		{`{"eos_token_id": null}`, nil},
		{`{"eos_token_id": 300}`, nil},
		{`{}`, nil},
		{`damaged`, nil},
	} {
		if got := ends(map[string][]byte{configFile: []byte(tt.config)}, 256); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.config, got, tt.want)
		}
	}
}

func TestCheckInit(t *testing.T) {
	fits := func() plan.InitSpec {
		var spec plan.InitSpec
		for l := range byteModel.Layers() {
			spec.Layers = append(spec.Layers, plan.LayerInit{SizeBytes: 4 * int64(byteModel.LayerLen(l)), Chunks: make([]plan.Hash, 1)})
		}
		return spec
	}
	if err := CheckInit(byteModel, fits()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*plan.InitSpec){
		"a layer too few": func(s *plan.InitSpec) { s.Layers = s.Layers[1:] },
		"a size":          func(s *plan.InitSpec) { s.Layers[1].SizeBytes-- },
		"a chunk more":    func(s *plan.InitSpec) { s.Layers[0].Chunks = make([]plan.Hash, 2) },
	} {
		spec := fits()
		spoil(&spec)
		if CheckInit(byteModel, spec) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func FuzzImported(f *testing.F) {
	f.Add([]byte(`{"version":1,"dtype":"F32","model":{"vocab":256},"init":{"layers":[]}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		i, err := decodeImported(text)
		if err != nil {
			if !errors.Is(err, ErrBadImport) {
				t.Error(err)
			}
			return
		}
		if err := CheckInit(i.Model, i.Init); err != nil {
			t.Error(err)
		}
	})
}
