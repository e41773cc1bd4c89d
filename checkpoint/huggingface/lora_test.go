package huggingface

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

var adapters = map[string]model.LoRA{
	"gpt2":  {Rank: 3, Alpha: 5, Targets: "c_attn,mlp.c_proj"},
	"llama": {Rank: 3, Alpha: 5, Targets: "down_proj,lm_head,q_proj,v_proj"},
}

func openAdapter(t *testing.T, name string) (*Model, *Adapter) {
	t.Helper()
	m := openReference(t, name)
	a, err := OpenAdapter(filepath.Join("testdata", name+"-adapter"), m.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if got := a.Config(); got.LoRA != adapters[name] || got.Base() != m.Config() {
		t.Errorf("%s: adapter_config.json says %+v, want %+v", name, got.LoRA, adapters[name])
	}
	return m, a
}

// whole reads a layer of the base and its adapters behind it.
func whole(m *Model, a *Adapter) func(layer int, dst []float32) error {
	return func(layer int, dst []float32) error {
		front := m.Config().LayerLen(layer)
		return errors.Join(m.Layer(layer, dst[:front]), a.Layer(layer, dst[front:]))
	}
}

// TestAdaptersEqualPEFT: a base with an adapter computes what PEFT computed with it, beside
// the weights as PEFT does, and worked into them.
func TestAdaptersEqualPEFT(t *testing.T) {
	for name := range adapters {
		m, a := openAdapter(t, name)
		folder := filepath.Join("testdata", name+"-adapter")
		compareLogits(t, folder, a.Config(), whole(m, a))
		compareLogits(t, folder, m.Config(), func(layer int, dst []float32) error {
			params := make([]float32, a.Config().LayerLen(layer))
			err := whole(m, a)(layer, params)
			copy(dst, a.Config().Merge(layer, params))
			return err
		})
	}
}

func TestAdapterRoundTrip(t *testing.T) {
	for name := range adapters {
		m, a := openAdapter(t, name)
		dir := filepath.Join(t.TempDir(), "adapter")
		if err := WriteAdapter(dir, AdapterExport{Config: a.Config(), Base: name, Layer: whole(m, a)}); err != nil {
			t.Fatal(err)
		}
		file := adapterBase + ".safetensors"
		want, err := os.ReadFile(filepath.Join("testdata", name+"-adapter", file))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: another file, %v", name, err)
		}
		again, err := OpenAdapter(dir, m.Config())
		if err != nil {
			t.Fatal(err)
		}
		if again.Config() != a.Config() {
			t.Errorf("%s: %+v became %+v", name, a.Config(), again.Config())
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRefusedAdapters(t *testing.T) {
	c := openReference(t, "gpt2").Config()
	sound := `"r":3,"lora_alpha":5,"target_modules":["c_attn","mlp.c_proj"],"peft_type":"LORA"`
	for _, test := range []struct {
		text, names string
		want        error
	}{
		{`{` + sound + `,"use_dora":true}`, "use_dora", ErrUnsupported},
		{`{` + sound + `,"use_rslora":true}`, "use_rslora", ErrUnsupported},
		{`{` + sound + `,"rank_pattern":{"c_attn":8}}`, "rank_pattern", ErrUnsupported},
		{`{` + sound + `,"bias":"all"}`, "bias", ErrUnsupported},
		{`{` + sound + `,"peft_type":"IA3"}`, "peft_type", ErrUnsupported},
		{`{"r":3,"lora_alpha":5,"target_modules":".*attn"}`, "target_modules", ErrUnsupported},
		{`{"r":3,"lora_alpha":5,"target_modules":["c_attn,c_proj"]}`, "target_modules", ErrUnsupported},
		{`{"r":3,"lora_alpha":5,"target_modules":["q_proj"]}`, `target_modules has "q_proj"`, ErrUnsupported},
		{`{"r":3,"lora_alpha":5,"target_modules":["lm_head"]}`, "lm_head", ErrUnsupported}, // tied
		{`{"r":3,"lora_alpha":5,"target_modules":["wte"]}`, "wte", ErrUnsupported},
		{`{"r":3,"lora_alpha":5,"target_modules":[]}`, `target_modules has ""`, ErrUnsupported},
		{`{"r":0,"lora_alpha":5,"target_modules":["c_attn"]}`, "r is 0", ErrUnsupported},
		{`{"r":3,"lora_alpha":0,"target_modules":["c_attn"]}`, "lora_alpha is 0", ErrUnsupported},
		{`{"lora_alpha":5,"target_modules":["c_attn"]}`, "lacks r", ErrFormat},
		{`{"r":4,"lora_alpha":5,"target_modules":["c_attn","mlp.c_proj"]}`, "lora_A", ErrFormat},                // other shapes
		{`{"r":3,"lora_alpha":5,"target_modules":["c_attn"]}`, "mlp.c_proj", ErrUnsupported},                    // too many tensors
		{`{"r":3,"lora_alpha":5,"target_modules":["c_attn","c_proj"]}`, "attn.c_proj", safetensors.ErrNoTensor}, // too few
	} {
		dir := t.TempDir()
		copyFile(t, "testdata/gpt2-adapter/adapter_model.safetensors", filepath.Join(dir, "adapter_model.safetensors"))
		if err := os.WriteFile(filepath.Join(dir, adapterFile), []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAdapter(dir, c); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s: %v", test.text, err)
		}
	}
}

// TestAdaptersWithAnotherBase: some initial values of adapters go with a changed base model.
func TestAdaptersWithAnotherBase(t *testing.T) {
	for _, value := range []string{"null", "true", "false", `"gaussian"`, `"eva"`, `"orthogonal"`, `"pissa"`, `"pissa_niter_4"`, `"olora"`, `"corda"`, `"loftq"`, "7"} {
		_, err := parseAdapterConfig([]byte(`{"r":3,"lora_alpha":5,"target_modules":["c_attn"],"init_lora_weights":` + value + `}`))
		if slices.Contains(keepBase, value) {
			if err != nil {
				t.Errorf("%s: %v", value, err)
			}
			continue
		}
		for _, want := range []string{"init_lora_weights is " + value, "accepted: true, false, gaussian, eva, orthogonal", "merge it"} {
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", value, err, want)
			}
		}
	}
}

func FuzzParseAdapterConfig(f *testing.F) {
	text, err := os.ReadFile("testdata/gpt2-adapter/adapter_config.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	c := model.Config{Vocab: 47, Context: 12, Blocks: 2, Heads: 4, Channels: 16}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parseAdapterConfig(text)
		if err != nil {
			return
		}
		c.LoRA = l
		if c.Validate() != nil {
			return
		}
		if c.TrainedLen(1)+c.TrainedLen(2) == 0 {
			t.Fatalf("%+v adapts nothing", l)
		}
	})
}

// TestFullNamesOfTargets: PEFT names a layer by as much of its name as it wants.
func TestFullNamesOfTargets(t *testing.T) {
	text := `{"r":3,"lora_alpha":5,"target_modules":["transformer.h.1.attn.c_attn","mlp.c_fc","h.1.attn.c_attn"]}`
	l, err := parseAdapterConfig([]byte(text))
	if err != nil || l.Targets != "h.1.attn.c_attn,mlp.c_fc" {
		t.Errorf("%+v, %v", l, err)
	}
}
