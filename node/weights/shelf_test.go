package weights

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/checkpoint"
	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// storedRun is a run whose layers' parameters are all the number of the step.
type storedRun struct {
	spec  plan.RunSpec
	shelf Shelf
	dirs  []string
}

func newStoredRun(t *testing.T, stores int) *storedRun {
	t.Helper()
	r := &storedRun{spec: plan.RunSpec{Run: "r", Model: byteModel}}
	for range stores {
		dir := t.TempDir()
		r.dirs = append(r.dirs, dir)
		r.shelf = append(r.shelf, must[*checkpoint.Store](t)(checkpoint.Open(dir, checkpoint.Options{Self: plan.PeerID(dir)})))
	}
	t.Cleanup(func() {
		if err := r.shelf.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// save stores a step, its layers dealt out to the stores, and gives the first chunk of each.
func (r *storedRun) save(t *testing.T, step plan.Step) []plan.Hash {
	t.Helper()
	m := checkpoint.Manifest{Run: r.spec.Run, Step: step, Generation: 1}
	var first []plan.Hash
	for layer := range r.spec.Model.Layers() {
		at := layer % len(r.shelf)
		state := make([]float32, 3*r.spec.Model.LayerLen(layer))
		for i := range state {
			state[i] = float32(step) + float32(layer)/16
		}
		w := r.shelf[at].Begin()
		hashes, size, err := w.WriteLayer(t.Context(), bytes.NewReader(kernels.Float32Bytes(state)), checkpoint.Cut{})
		if err != nil {
			t.Fatal(err)
		}
		m.Layers = append(m.Layers, checkpoint.LayerState{Layer: layer, SizeBytes: size, Chunks: hashes, Holders: []plan.PeerID{plan.PeerID(r.dirs[at])}})
		first = append(first, hashes[0])
	}
	for _, store := range r.shelf {
		if err := store.Commit(m); err != nil {
			t.Fatal(err)
		}
	}
	return first
}

func (r *storedRun) file(layer int, h plan.Hash) string {
	name := h.String()
	return filepath.Join(r.dirs[layer%len(r.dirs)], "chunks", name[:2], name)
}

// TestOfRunTakesTheNewestWholeCheckpoint of all that the stores have together.
func TestOfRunTakesTheNewestWholeCheckpoint(t *testing.T) {
	r := newStoredRun(t, 3)
	if _, err := OfRun(t.Context(), r.shelf, r.spec); !errors.Is(err, ErrNoModel) || !strings.Contains(err.Error(), "nothing has been saved yet") {
		t.Errorf("of no checkpoint: %v", err)
	}
	older, newer := r.save(t, 4), r.save(t, 8)
	for _, tt := range []struct {
		name    string
		damage  func() error
		step    plan.Step
		warning string
	}{
		{"all whole", func() error { return nil }, 8, ""},
		{"a damaged chunk", func() error { return os.WriteFile(r.file(2, newer[2]), []byte("damaged"), 0o600) }, 4, "the checkpoint of step 8 is not whole here: layer 2"},
	} {
		if err := tt.damage(); err != nil {
			t.Fatal(err)
		}
		m := must[*Model](t)(OfRun(t.Context(), r.shelf, r.spec))
		for layer := range r.spec.Model.Layers() {
			params := make([]float32, r.spec.Model.LayerLen(layer))
			if err := m.Layer(t.Context(), layer, params); err != nil {
				t.Fatal(err)
			}
			if want := float32(tt.step) + float32(layer)/16; params[0] != want || params[len(params)-1] != want {
				t.Errorf("%s: layer %d has %v, want %v", tt.name, layer, params[0], want)
			}
		}
		if told := strings.Join(m.Warnings, "\n"); !strings.HasPrefix(told, tt.warning) || (tt.warning == "") != (told == "") {
			t.Errorf("%s: warned %q, want %q", tt.name, told, tt.warning)
		}
	}
	if err := os.Remove(r.file(0, older[0])); err != nil {
		t.Fatal(err)
	}
	if _, err := OfRun(t.Context(), r.shelf, r.spec); !errors.Is(err, ErrNoModel) || !strings.Contains(err.Error(), "step 8 is not whole") {
		t.Errorf("of none that is whole: %v", err)
	}
	for _, dir := range r.dirs {
		if err := os.RemoveAll(filepath.Join(dir, "manifests")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OfRun(t.Context(), r.shelf, r.spec); !errors.Is(err, ErrNotWhole) || !strings.Contains(err.Error(), "manifest of step 8") {
		t.Errorf("of checkpoints without manifests: %v", err)
	}
}

// TestAdaptersAreWorkedIn: what comes out is the model without adapters.
func TestAdaptersAreWorkedIn(t *testing.T) {
	r := newStoredRun(t, 1)
	r.spec.Model.LoRA = model.LoRA{Rank: 2, Alpha: 4, Targets: "c_attn"}
	r.save(t, 1)
	m := must[*Model](t)(OfRun(t.Context(), r.shelf, r.spec))
	if m.Config != byteModel {
		t.Fatalf("%+v", m.Config)
	}
	stored := make([]float32, r.spec.Model.LayerLen(1))
	for i := range stored {
		stored[i] = 1 + 1.0/16
	}
	want, got := r.spec.Model.Merge(1, stored), make([]float32, byteModel.LayerLen(1))
	if err := m.Layer(t.Context(), 1, got); err != nil {
		t.Fatal(err)
	}
	for i, v := range want {
		if got[i] != v {
			t.Fatalf("element %d is %v, want %v", i, got[i], v)
		}
	}
}

func TestDescribeAddsWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		files map[string][]byte
		class string
	}{
		{map[string][]byte{"vocab.json": nil, "merges.txt": nil}, "GPT2Tokenizer"},
		{map[string][]byte{"tokenizer.json": []byte("{}")}, "PreTrainedTokenizerFast"},
		{map[string][]byte{"tokenizer.json": []byte("{}"), "tokenizer_config.json": []byte("its own")}, "its own"},
	} {
		describe(tt.files, 7)
		if got := string(tt.files["tokenizer_config.json"]); !strings.Contains(got, tt.class) {
			t.Errorf("%q, want %s", got, tt.class)
		}
		if got := ends(tt.files, 8); len(got) != 1 || got[0] != 7 {
			t.Errorf("a text ends with %v", got)
		}
	}
}
