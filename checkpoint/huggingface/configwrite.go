package huggingface

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// torchTypes are the names of element types in config.json.
var torchTypes = map[safetensors.DType]string{
	safetensors.F32: "float32", safetensors.F16: "float16", safetensors.BF16: "bfloat16",
}

// formatConfig is the config.json of a model whose weights have the given type. original,
// if not nil, is the config.json that the model came from: it must describe the same
// model, and keeps its fields. Errors wrap ErrUnsupported when no architecture is like the
// model, or when the original is of another.
func formatConfig(c model.Config, dtype safetensors.DType, original []byte) ([]byte, error) {
	of, err := familyOf(c)
	if err != nil {
		return nil, err
	}
	object := of.write(c.Resolved())
	object["architectures"] = []Architecture{of.architecture}
	object["model_type"] = of.modelType
	if original != nil {
		if object, err = keepOriginal(c, original); err != nil {
			return nil, err
		}
	}
	delete(object, "dtype") // the newer name of the next
	object["torch_dtype"] = torchTypes[dtype]
	return formatJSON(object)
}

// familyOf finds the architecture that can say all that c says: the first that gives c
// back.
func familyOf(c model.Config) (family, error) {
	for _, of := range families() {
		text, err := formatJSON(of.write(c.Resolved()))
		if err != nil {
			return family{}, fmt.Errorf("config.json: %w", err)
		}
		f, err := parseFields(configFile, text)
		if err != nil {
			return family{}, err
		}
		back := of.read(f)
		f.pass(harmless...)
		if f.done() == nil && sameModel(back, c) {
			return of, nil
		}
	}
	return family{}, fmt.Errorf("%w: no architecture of %s, %s, %s, %s has norm %q, activation %q, positions %q and these biases together",
		ErrUnsupported, GPT2, Llama, Mistral, Qwen2, c.Resolved().Norm, c.Resolved().Activation, c.Resolved().Positions)
}

// sameModel compares what the weights depend on: with rotary positions, Context says how
// long a run's sequences are, and a window that is longer changes nothing.
func sameModel(a, b model.Config) bool {
	for _, c := range []*model.Config{&a, &b} {
		*c = c.Resolved()
		c.EmbedDropout, c.ResidualDropout = 0, 0
		if c.Positions == model.RoPE {
			c.Context = 0
		}
	}
	return a == b
}

// keepOriginal returns the original's fields, once it is known to describe c, or a model with more
// learned positions than c kept. What names files that are not written goes.
func keepOriginal(c model.Config, original []byte) (map[string]any, error) {
	was, err := parseConfig(original)
	if err != nil {
		return nil, fmt.Errorf("the model's original %w", err)
	}
	cut := was.Model
	cut.Context = min(cut.Context, c.Context)
	if !sameModel(cut, c) {
		return nil, fmt.Errorf("%w: the original config.json describes another model: %+v, not %+v", ErrUnsupported, was.Model, c)
	}
	var kept map[string]json.RawMessage
	if err := json.Unmarshal(original, &kept); err != nil {
		return nil, fmt.Errorf("%w: config.json: %w", ErrFormat, err)
	}
	object := make(map[string]any, len(kept))
	for name, value := range kept {
		object[name] = value
	}
	delete(object, "auto_map")
	object["architectures"] = []Architecture{was.Architecture}
	for _, name := range []string{"n_positions", "n_ctx"} {
		if _, there := object[name]; there {
			object[name] = c.Context
		}
	}
	return object, nil
}

func writeGPT2(c model.Config) map[string]any {
	return map[string]any{
		"vocab_size":          c.Vocab,
		"n_positions":         c.Context,
		"n_layer":             c.Blocks,
		"n_head":              c.Heads,
		"n_embd":              c.Channels,
		"n_inner":             c.MLP,
		"layer_norm_epsilon":  float(c.NormEps),
		"activation_function": "gelu_new",
		"scale_attn_weights":  true,
		"tie_word_embeddings": c.Tied(),
		// The class's own number lies outside most other vocabularies.
		"bos_token_id": nil,
		"eos_token_id": nil,
	}
}

func writeRotary(c model.Config) map[string]any {
	return map[string]any{
		"vocab_size":              c.Vocab,
		"max_position_embeddings": c.Context,
		"num_hidden_layers":       c.Blocks,
		"num_attention_heads":     c.Heads,
		"num_key_value_heads":     c.KVHeads,
		"hidden_size":             c.Channels,
		"intermediate_size":       c.MLP,
		"head_dim":                c.HeadDim,
		"hidden_act":              "silu",
		"rms_norm_eps":            float(c.NormEps),
		"rope_theta":              float(c.RoPETheta),
		"rope_scaling":            writeScaling(c.RoPEScaling),
		"tie_word_embeddings":     c.Tied(),
		"bos_token_id":            nil,
		"eos_token_id":            nil,
	}
}

func writeLlama(c model.Config) map[string]any {
	object := writeRotary(c)
	object["attention_bias"] = !c.NoQKVBias
	object["mlp_bias"] = !c.NoMLPBias
	return object
}

func writeMistral(c model.Config) map[string]any {
	object := writeRotary(c)
	object["sliding_window"] = nil
	if c.Window > 0 {
		object["sliding_window"] = c.Window
	}
	return object
}

func writeQwen2(c model.Config) map[string]any {
	object := writeRotary(c)
	object["use_sliding_window"] = false
	return object
}

// writeScaling gives null without scaling.
func writeScaling(s model.RoPEScaling) any {
	switch s.Kind {
	case model.ScaleLinear:
		return map[string]any{"rope_type": "linear", "factor": float(s.Factor)}
	case model.ScaleLlama3:
		return map[string]any{
			"rope_type": "llama3", "factor": float(s.Factor), "low_freq_factor": float(s.LowFreqFactor),
			"high_freq_factor": float(s.HighFreqFactor), "original_max_position_embeddings": s.OriginalContext,
		}
	}
	return nil
}

// float is a number that Python reads as a float: transformers warns of 8 where 8.0 is
// meant.
func float(v float64) json.RawMessage {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.RawMessage(text)
}
