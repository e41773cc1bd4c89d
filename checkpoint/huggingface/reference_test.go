package huggingface

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pnode/checkpoint/safetensors"
	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/pipeline/model"
)

var references = []string{"gpt2", "gpt2-untied", "llama", "llama-linear", "llama-scaled", "mistral", "qwen2"}

func openReference(t testing.TB, name string) *Model {
	t.Helper()
	m, err := Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// forward computes logits [T,V] of tokens [T] on the CPU.
func forward(t *testing.T, c model.Config, layer func(int, []float32) error, tokens []int32) []float32 {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	device, err := cpu.New(cpu.Options{Threads: 1})
	must(err)
	queue, err := device.NewQueue()
	must(err)
	defer func() { must(queue.Close()) }()
	stack, err := model.NewStack(model.StackConfig{Device: device, Model: c, End: c.Layers(), MicroBatch: 1, Slots: 1})
	must(err)
	defer stack.Close()
	for l := range c.Layers() {
		params := make([]float32, c.LayerLen(l))
		must(layer(l, params))
		queue.Write(stack.Params(l), kernels.Float32Bytes(params))
		must(queue.Sync())
	}
	stack.Slot(0).SetTokens(queue, tokens)
	stack.Slot(0).Forward(queue, model.Noise{})
	logits := make([]float32, len(tokens)*c.Vocab)
	for row := range tokens {
		queue.Read(kernels.Float32Bytes(logits[row*c.Vocab:(row+1)*c.Vocab]), stack.Slot(0).Logits(queue, row, 1))
		must(queue.Sync())
	}
	return logits
}

// TestLogitsEqualTransformers: what transformers saved computes here what it computed
// there.
func TestLogitsEqualTransformers(t *testing.T) {
	for _, name := range references {
		m := openReference(t, name)
		compareLogits(t, filepath.Join("testdata", name), m.Config(), m.Layer)
	}
}

// compareLogits holds a model to the logits of a folder, within 1e-4 of the largest.
func compareLogits(t *testing.T, folder string, c model.Config, layer func(int, []float32) error) {
	t.Helper()
	var want struct {
		Tokens []int32     `json:"tokens"`
		Logits [][]float32 `json:"logits"`
	}
	text, err := os.ReadFile(filepath.Join(folder, "logits.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	got, all := forward(t, c, layer, want.Tokens), slices.Concat(want.Logits...)
	if len(got) != len(all) || len(all) == 0 {
		t.Fatalf("%s: %d logits, want %d", folder, len(got), len(all))
	}
	worst, largest := 0.0, 0.0
	for i := range all {
		if d := math.Abs(float64(got[i] - all[i])); !(d <= worst) { // NaN too
			worst = d
		}
		largest = max(largest, math.Abs(float64(all[i])))
	}
	t.Logf("%s: largest error %.1e of the largest logit %.2f", folder, worst/largest, largest)
	if !(worst <= 1e-4*largest) {
		t.Errorf("%s: off by %g where the largest logit is %g", folder, worst, largest)
	}
}

// TestRoundTrip imports and exports in the same type, with and without the original
// config.json: every tensor has the same type and values, and a single file is the same file.
func TestRoundTrip(t *testing.T) {
	for _, name := range references {
		m := openReference(t, name)
		for _, original := range []bool{true, false} {
			files, err := m.Files(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !original {
				delete(files, configFile)
			}
			dir := filepath.Join(t.TempDir(), name)
			limit := int64(0)
			if name == "llama" {
				limit = 10_000
			}
			err = Write(dir, Export{Config: m.Config(), Layer: m.Layer, DType: m.DType(), Files: files, MaxShardBytes: limit})
			if err != nil {
				t.Fatal(err)
			}
			sameTensors(t, filepath.Join("testdata", name), dir)
			sameConfig(t, m, dir)
		}
	}
}

func sameTensors(t *testing.T, wantDir, gotDir string) {
	t.Helper()
	want, got := openSet(t, wantDir), openSet(t, gotDir)
	if a, b := len(got.Tensors()), len(want.Tensors()); a != b || b == 0 {
		t.Errorf("%s: %d tensors, want %d", gotDir, a, b)
	}
	for _, tensor := range want.Tensors() {
		if !bytes.Equal(content(t, got, tensor.Name), content(t, want, tensor.Name)) {
			t.Errorf("%s: %s has other values", gotDir, tensor.Name)
		}
	}
	single := weightsBase + ".safetensors"
	if a, err := os.ReadFile(filepath.Join(wantDir, single)); err == nil {
		if b, err := os.ReadFile(filepath.Join(gotDir, single)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: another file, %v", gotDir, err)
		}
	}
}

func openSet(t *testing.T, dir string) *safetensors.Set {
	t.Helper()
	s, err := safetensors.OpenSet(dir, weightsBase)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// content is a tensor's type and its values' bits; float32 holds those of every type exactly.
func content(t *testing.T, s *safetensors.Set, name string) []byte {
	t.Helper()
	f, err := s.File(name)
	if err != nil {
		t.Fatal(err)
	}
	tensor, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, tensor.Len())
	if err := f.Floats(name, 0, values); err != nil {
		t.Fatal(err)
	}
	return append([]byte(tensor.DType), kernels.Float32Bytes(values)...)
}

func sameConfig(t *testing.T, m *Model, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseConfig(text)
	if err != nil || s.Model.Resolved() != m.Config().Resolved() {
		t.Errorf("%s: config.json became %+v, %v; was %+v", dir, s.Model, err, m.Config())
	}
}
