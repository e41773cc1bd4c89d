package huggingface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// Files as versions 4 of transformers write them.
const (
	llama31 = `{"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":128000,
		"eos_token_id":[128001,128008],"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,
		"max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama","num_attention_heads":32,"num_hidden_layers":32,
		"num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,
		"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.42.3","use_cache":true,"vocab_size":128256}`
	llama1 = `{"architectures":["LlamaForCausalLM"],"hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,
		"max_position_embeddings":2048,"model_type":"llama","num_attention_heads":32,"num_hidden_layers":32,"vocab_size":32000}`
	mistral1 = `{"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,
		"initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,"model_type":"mistral",
		"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":10000.0,
		"sliding_window":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":true,"vocab_size":32000}`
	qwen25 = `{"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"hidden_act":"silu","hidden_size":896,"initializer_range":0.02,
		"intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":24,"model_type":"qwen2","num_attention_heads":14,
		"num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,
		"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_cache":true,"use_sliding_window":false,"vocab_size":151936}`
	gpt2 = `{"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],"attn_pdrop":0.1,"bos_token_id":50256,"embd_pdrop":0.1,
		"eos_token_id":50256,"initializer_range":0.02,"layer_norm_epsilon":1e-05,"model_type":"gpt2","n_ctx":1024,"n_embd":768,
		"n_head":12,"n_layer":12,"n_positions":1024,"resid_pdrop":0.1,"summary_activation":null,"summary_first_dropout":0.1,
		"summary_proj_to_labels":true,"summary_type":"cls_index","summary_use_proj":true,
		"task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}},"vocab_size":50257}`
)

func TestParseConfig(t *testing.T) {
	llama := model.Config{
		Vocab: 32000, Context: 2048, Blocks: 32, Heads: 32, Channels: 4096, KVHeads: 32, MLP: 11008,
		Norm: model.RMSNorm, NormEps: 1e-6, Activation: model.SwiGLU, Positions: model.RoPE, RoPETheta: 10000,
		NoQKVBias: true, NoOutputBias: true, NoMLPBias: true, UntiedHead: true,
	}
	newer := llama
	newer.Vocab, newer.Context, newer.KVHeads, newer.MLP, newer.NormEps, newer.RoPETheta = 128256, 131072, 8, 14336, 1e-5, 500000
	newer.RoPEScaling = model.RoPEScaling{Kind: model.ScaleLlama3, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192}
	mistral := llama
	mistral.Context, mistral.KVHeads, mistral.MLP, mistral.NormEps, mistral.Window = 32768, 8, 14336, 1e-5, 4096
	qwen := model.Config{
		Vocab: 151936, Context: 32768, Blocks: 24, Heads: 14, Channels: 896, KVHeads: 2, MLP: 4864,
		Norm: model.RMSNorm, NormEps: 1e-6, Activation: model.SwiGLU, Positions: model.RoPE, RoPETheta: 1e6,
		NoOutputBias: true, NoMLPBias: true,
	}
	for _, test := range []struct {
		text         string
		architecture Architecture
		want         model.Config
	}{
		{llama1, Llama, llama},
		{llama31, Llama, newer},
		{mistral1, Mistral, mistral},
		{qwen25, Qwen2, qwen},
		{gpt2, GPT2, model.Config{Vocab: 50257, Context: 1024, Blocks: 12, Heads: 12, Channels: 768}},
	} {
		s, err := parseConfig([]byte(test.text))
		got, architecture := s.Model, s.Architecture
		if err != nil || architecture != test.architecture || got.Resolved() != test.want.Resolved() {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", architecture, got, err, test.want)
		}
		kept, err := formatConfig(got, safetensors.F16, []byte(test.text))
		if err != nil || !strings.Contains(string(kept), `"torch_dtype": "float16"`) {
			t.Errorf("%s: original not kept: %v\n%s", architecture, err, kept)
		}
	}
}

// TestRefusedConfigs changes one field at a time; the error must name it.
func TestRefusedConfigs(t *testing.T) {
	for _, test := range []struct {
		text, field, value string
		want               error
	}{
		{gpt2, "activation_function", `"gelu"`, ErrUnsupported},
		{gpt2, "scale_attn_weights", `false`, ErrUnsupported},
		{gpt2, "scale_attn_by_inverse_layer_idx", `true`, ErrUnsupported},
		{gpt2, "n_ctx", `512`, ErrUnsupported},
		{gpt2, "add_cross_attention", `true`, ErrUnsupported},
		{gpt2, "n_layer", `"12"`, ErrFormat},
		{gpt2, "n_embd", `null`, ErrFormat},
		{gpt2, "n_embd", `770`, model.ErrBadConfig},
		{gpt2, "n_embd", `786432`, model.ErrBadConfig},
		{gpt2, "n_layer", `5000`, model.ErrBadConfig},
		{gpt2, "n_head", `769`, model.ErrBadConfig},
		{gpt2, "n_inner", `1000000`, model.ErrBadConfig},
		{gpt2, "vocab_size", `1`, model.ErrBadConfig},
		{gpt2, "layer_norm_epsilon", `1`, model.ErrBadConfig},
		{llama31, "hidden_size", `131072`, model.ErrBadConfig},
		{llama31, "num_attention_heads", `5000`, model.ErrBadConfig},
		{llama31, "num_key_value_heads", `5`, model.ErrBadConfig},
		{llama31, "num_key_value_heads", `64`, model.ErrBadConfig},
		{llama31, "num_hidden_layers", `5000`, model.ErrBadConfig},
		{llama31, "intermediate_size", `1000000`, model.ErrBadConfig},
		{llama31, "head_dim", `33`, model.ErrBadConfig},
		{llama31, "head_dim", `4096`, model.ErrBadConfig},
		{llama31, "rms_norm_eps", `1`, model.ErrBadConfig},
		{llama31, "rope_theta", `0.5`, model.ErrBadConfig},
		{llama1, "rope_scaling", `{"type":"linear","factor":0.5}`, model.ErrBadConfig},
		{llama1, "rope_parameters", `{"type":"linear","factor":0.5}`, model.ErrBadConfig},
		{llama1, "rope_parameters", `{"rope_theta":0.5}`, model.ErrBadConfig},
		{gpt2, "quantization_config", `{"bits":4}`, ErrUnsupported},
		{gpt2, "architectures", `["GPT2DoubleHeadsModel"]`, ErrUnsupported},
		{gpt2, "model_type", `"llama"`, ErrUnsupported},
		{llama31, "hidden_act", `"gelu"`, ErrUnsupported},
		{llama31, "rope_scaling", `{"rope_type":"yarn","factor":4.0}`, ErrUnsupported},
		{llama31, "rope_scaling", `{"type":"dynamic","factor":4.0}`, ErrUnsupported},
		{llama31, "rope_scaling", `{"type":"linear","factor":4.0,"top_k":1}`, ErrUnsupported},
		{llama31, "rope_scaling", `{"rope_type":"llama3","factor":4.0}`, ErrFormat},
		{llama31, "rope_scaling", `7`, ErrFormat},
		{llama31, "rope_parameters", `{"rope_type":"default"}`, ErrUnsupported},
		{llama31, "rope_interleaved", `true`, ErrUnsupported},
		{llama31, "use_mrope", `true`, ErrUnsupported},
		{llama31, "sliding_window", `4096`, ErrUnsupported},
		{llama31, "layer_types", `["full_attention","sliding_attention"]`, ErrUnsupported},
		{qwen25, "use_sliding_window", `true`, ErrUnsupported},
		{qwen25, "num_key_value_heads", `null`, ErrFormat},
		{mistral1, "attention_bias", `true`, ErrUnsupported},
		{mistral1, "sliding_window", `0`, ErrUnsupported},
		{llama31, "rope_theta", `0`, ErrUnsupported},
		{llama31, "head_dim", `0`, ErrUnsupported},
		{llama31, "rms_norm_eps", `0`, ErrUnsupported},
		{llama31, "hidden_size", `-4096`, ErrUnsupported},
		{llama31, "hidden_size", `4096.5`, ErrFormat},
		{llama31, "hidden_size", `"4096"`, ErrFormat},
		{llama31, "tie_word_embeddings", `"yes"`, ErrFormat},
	} {
		object := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(test.text), &object); err != nil {
			t.Fatal(err)
		}
		object[test.field] = json.RawMessage(test.value)
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		named := test.field
		if _, beside := object["rope_theta"]; beside && named == "rope_parameters" {
			named = "rope_theta"
		}
		_, err = parseConfig(text)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), named) {
			t.Errorf("%s %s: %v", test.field, test.value, err)
		}
	}
}

// TestPassedOverFields: what other programs leave in a config.json, and what is switched off, is noted and
// changes nothing.
func TestPassedOverFields(t *testing.T) {
	with := func(text, more string) []byte { return []byte(strings.Replace(text, "{", "{"+more+",", 1)) }
	want, err := parseConfig([]byte(llama1))
	if err != nil || len(want.Notes) != 0 {
		t.Fatalf("%+v, %v", want, err)
	}
	for _, field := range []string{
		`"is_llama_config":true`, `"rope_interleaved":false`, `"auto_map":{"AutoModel":"x.py"}`, `"_attn_implementation":"sdpa"`,
		`"transformers.js_config":{"kv_cache_dtype":{"fp16":"float16"}}`, `"unsloth_fixed":true`, `"quantization_config":null`, `"use_mrope":false`,
		`"pruned_heads":{}`,
	} {
		name, _, _ := strings.Cut(field, ":")
		text := with(llama1, field)
		got, err := parseConfig(text)
		if err != nil || got.Model != want.Model || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], strings.Trim(name, `"`)) {
			t.Errorf("%s: %+v, %v", field, got, err)
		}
		if _, err := formatConfig(got.Model, safetensors.F32, text); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestMistralsWindow: a file of the first versions without the key means 4096, null means none.
func TestMistralsWindow(t *testing.T) {
	for text, want := range map[string]int{
		mistral1: 4096,
		strings.Replace(mistral1, `"sliding_window":4096,`, "", 1):                        4096,
		strings.Replace(mistral1, `"sliding_window":4096,`, `"sliding_window":null,`, 1):  0,
		strings.Replace(mistral1, `"sliding_window":4096,`, `"sliding_window":16384,`, 1): 16384,
	} {
		got, err := parseConfig([]byte(text))
		if err != nil || got.Model.Window != want {
			t.Errorf("window %d, want %d, %v", got.Model.Window, want, err)
		}
	}
}

// TestModelsWithoutAHead: a folder of the class without a head is read with a tied head, and refused without
// one.
func TestModelsWithoutAHead(t *testing.T) {
	for _, test := range []struct{ folder, class, base, refused string }{
		{"gpt2", "GPT2LMHeadModel", "GPT2Model", ""},
		{"gpt2-untied", "GPT2LMHeadModel", "GPT2Model", "without the head that predicts tokens"},
		{"qwen2", "Qwen2ForCausalLM", "Qwen2Model", ""},
		{"llama-linear", "LlamaForCausalLM", "LlamaModel", "the folder holds LlamaModel without the head"},
		{"mistral", "MistralForCausalLM", "MistralModel", "the whole MistralForCausalLM"},
	} {
		want := openReference(t, test.folder)
		dir := t.TempDir()
		text, err := os.ReadFile(filepath.Join("testdata", test.folder, configFile))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte(test.class), []byte(test.base), 1)
		if err := os.WriteFile(filepath.Join(dir, configFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		writeBase(t, dir, want)
		got, err := Open(dir)
		if test.refused != "" || err != nil {
			if test.refused == "" || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: %v", test.folder, err)
			}
			continue
		}
		c := want.Config()
		if got.Config() != c {
			t.Errorf("%s: %+v, want %+v", test.base, got.Config(), c)
		}
		for layer := range c.Layers() {
			a, b := make([]float32, c.LayerLen(layer)), make([]float32, c.LayerLen(layer))
			if err := errors.Join(want.Layer(layer, a), got.Layer(layer, b)); err != nil || !slices.Equal(a, b) {
				t.Errorf("%s: layer %d differs, %v", test.base, layer, err)
			}
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
}

// writeBase writes a model's tensors as its class without a head names them.
func writeBase(t *testing.T, dir string, m *Model) {
	t.Helper()
	var list []safetensors.Tensor
	from := map[string]string{}
	for _, tensor := range m.set.Tensors() {
		if name := strings.TrimPrefix(tensor.Name, m.family.prefix); name != headTensor {
			from[name] = tensor.Name
			list = append(list, safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: tensor.Shape})
		}
	}
	w, err := safetensors.Create(filepath.Join(dir, "model.safetensors"), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range list {
		values := make([]float32, tensor.Len())
		f, err := m.set.File(from[tensor.Name])
		if err == nil {
			err = f.Floats(from[tensor.Name], 0, values)
		}
		if err = errors.Join(err, w.Append(tensor.Name, values)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// TestFewerPositions: the config.json of a model whose learned positions were cut keeps the original's other
// fields.
func TestFewerPositions(t *testing.T) {
	s, err := parseConfig([]byte(gpt2))
	if err != nil {
		t.Fatal(err)
	}
	s.Model.Context = 256
	text, err := formatConfig(s.Model, safetensors.F32, []byte(gpt2))
	if err != nil || !strings.Contains(string(text), `"n_positions": 256`) || !strings.Contains(string(text), `"n_ctx": 256`) {
		t.Fatalf("%v\n%s", err, text)
	}
	if back, err := parseConfig(text); err != nil || back.Model != s.Model {
		t.Errorf("%+v, %v", back, err)
	}
	s.Model.Context = 2048
	if _, err := formatConfig(s.Model, safetensors.F32, []byte(gpt2)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("more positions than the original: %v", err)
	}
}

// TestEveryPresetHasAnArchitecture: what can be trained here can be exported.
func TestEveryPresetHasAnArchitecture(t *testing.T) {
	for _, name := range model.PresetNames() {
		c, err := model.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := formatConfig(c, safetensors.F32, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if back, err := parseConfig(text); err != nil || back.Model.Resolved() != c.Resolved() {
			t.Errorf("%s came back as %+v, %v; was %+v", name, back, err, c)
		}
	}
	odd := model.Config{Vocab: 8, Context: 8, Blocks: 1, Heads: 1, Channels: 8, Norm: model.RMSNorm}
	if _, err := formatConfig(odd, safetensors.F32, nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("GPT-2 with RMSNorm: %v", err)
	}
	if _, err := formatConfig(odd, safetensors.F32, []byte(gpt2)); err == nil {
		t.Error("a config.json of another model was kept")
	}
}

func FuzzParseConfig(f *testing.F) {
	const wideHeads = `{"model_type":"llama","hidden_size":4096,"intermediate_size":0,"max_position_embeddings":8,"num_attention_heads":2,"num_hidden_layers":2,"vocab_size":2}`
	for _, text := range []string{llama1, llama31, mistral1, qwen25, gpt2, wideHeads} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseConfig(text)
		if err != nil {
			return
		}
		c := s.Model
		again, err := formatConfig(c, safetensors.F32, nil)
		if err != nil {
			t.Fatalf("%+v was read but is not written: %v", c, err)
		}
		if back, err := parseConfig(again); err != nil || !sameModel(back.Model, c) {
			t.Fatalf("%+v came back as %+v, %v", c, back, err)
		}
	})
}

// TestDamagedFolders writes a sound model's tensors with one added, changed or, without a
// type, left out; the error must name it.
func TestDamagedFolders(t *testing.T) {
	for name, change := range map[string]safetensors.Tensor{
		"lm_head.weight":                  {DType: safetensors.F32, Shape: []int{47, 16}}, // tied, with other values
		"transformer.h.1.extra":           {DType: safetensors.F32, Shape: []int{1}},
		"transformer.ln_f.bias":           {},
		"transformer.wpe.weight":          {DType: safetensors.F32, Shape: []int{13, 16}},
		"transformer.wte.weight":          {DType: integers, Shape: []int{47, 16}},
		"transformer.h.0.mlp.c_fc.weight": {DType: safetensors.F32, Shape: []int{64, 16}}, // as [out,in]
	} {
		tensors := map[string]safetensors.Tensor{}
		for _, tensor := range openReference(t, "gpt2").set.Tensors() {
			tensors[tensor.Name] = tensor
		}
		change.Name = name
		tensors[name] = change
		if change.DType == "" {
			delete(tensors, name)
		}
		dir := t.TempDir()
		writeZeros(t, dir, tensors)
		damaged, err := Open(dir)
		if err == nil {
			head := damaged.Config().Layers() - 1
			err = errors.Join(damaged.Layer(head, make([]float32, damaged.Config().LayerLen(head))), damaged.Close())
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMissingWeights: the error says which file is missing, and what to do about it.
func TestMissingWeights(t *testing.T) {
	for name, tt := range map[string]struct {
		files []string
		want  []string
	}{
		"none":    {nil, []string{"model.safetensors", "get the model's folder again"}},
		"pickled": {[]string{"pytorch_model.bin"}, []string{"pytorch_model.bin is not read", "save_pretrained"}},
		"cut off": {[]string{"model.safetensors"}, []string{"ends after 0 bytes", "get the file again"}},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata/gpt2")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		for _, file := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Open(dir)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// integers is a type as wide as F32 that no weights have.
const integers = "I32"

// writeZeros makes a folder whose tensors are zero, but for lm_head.weight.
func writeZeros(t *testing.T, dir string, tensors map[string]safetensors.Tensor) {
	t.Helper()
	text, err := os.ReadFile("testdata/gpt2/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, configFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	list := slices.Collect(maps.Values(tensors))
	spoiled := slices.IndexFunc(list, func(t safetensors.Tensor) bool { return t.DType == integers })
	if spoiled >= 0 {
		list[spoiled].DType = safetensors.F32
	}
	path := filepath.Join(dir, "model.safetensors")
	w, err := safetensors.Create(path, list, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range list {
		values := make([]float32, tensor.Len())
		if tensor.Name == headTensor {
			values[len(values)-1] = 1
		}
		if err := w.Append(tensor.Name, values); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if spoiled >= 0 {
		retype(t, path, list[spoiled].Name)
	}
}

// retype says of a tensor of F32 that it holds integers.
func retype(t *testing.T, path, name string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	front := fmt.Sprintf(`%q:{"dtype":`, name)
	content = bytes.Replace(content, []byte(front+`"F32"`), []byte(front+`"`+integers+`"`), 1)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWriteLeavesNothingBehind(t *testing.T) {
	m := openReference(t, "gpt2")
	parent := t.TempDir()
	dir := filepath.Join(parent, "out")
	broken := errors.New("broken")
	failing := func(layer int, dst []float32) error {
		if layer == 1 {
			return broken
		}
		return m.Layer(layer, dst)
	}
	if err := Write(dir, Export{Config: m.Config(), Layer: failing}); !errors.Is(err, broken) {
		t.Errorf("a layer that fails: %v", err)
	}
	if err := Write(dir, Export{Config: m.Config(), Layer: m.Layer, Files: map[string][]byte{"../x": nil}}); err == nil {
		t.Error("a file outside the folder was written")
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, Export{Config: m.Config(), Layer: m.Layer}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a folder that is not empty: %v", err)
	}
}
