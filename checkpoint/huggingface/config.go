package huggingface

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pnode/pipeline/model"
)

// Architecture is a class of Python's transformers. The class without a head (`GPT2Model`,
// `LlamaModel`) is read as the one with it: its head is tied, or the folder lacks it.
type Architecture string

// The architectures.
const (
	GPT2    Architecture = "GPT2LMHeadModel"
	Llama   Architecture = "LlamaForCausalLM"
	Mistral Architecture = "MistralForCausalLM"
	Qwen2   Architecture = "Qwen2ForCausalLM"
)

// maxContext bounds Context where positions are rotary.
const maxContext = 1 << 17

// family holds the differences between architectures.
type family struct {
	architecture Architecture
	base         Architecture // the class without a head
	modelType    string
	prefix       string // of the base model's tensors
	names        model.Names
	read         func(*fields) model.Config
	write        func(model.Config) map[string]any
}

func families() []family {
	return []family{
		{GPT2, "GPT2Model", "gpt2", "transformer.", gpt2Names, readGPT2, writeGPT2},
		{Llama, "LlamaModel", "llama", "model.", rotaryNames, readLlama, writeLlama},
		{Mistral, "MistralModel", "mistral", "model.", rotaryNames, readMistral, writeMistral},
		{Qwen2, "Qwen2Model", "qwen2", "model.", rotaryNames, readQwen2, writeQwen2},
	}
}

// Settings is a model as a config.json describes it.
type Settings struct {
	Model        model.Config
	Architecture Architecture
	Notes        []string // sentences about fields that were passed over
}

// parseConfig reads the text of a config.json. Errors wrap ErrUnsupported, ErrFormat or
// model.ErrBadConfig and name the field.
func parseConfig(text []byte) (Settings, error) {
	f, err := parseFields(configFile, text)
	if err != nil {
		return Settings{}, err
	}
	of, err := findFamily(f)
	if err != nil {
		return Settings{}, err
	}
	names := of.names
	if value, ok := f.left["rope_parameters"]; ok && string(value) != "null" {
		names = newerRoPE(names)
	}
	s := Settings{Model: of.read(f), Architecture: of.architecture}
	f.pass(harmless...)
	for _, name := range slices.Sorted(maps.Keys(f.left)) { // noted, or unknown and switched off
		if value := f.left[name]; slices.Contains(noted, name) || isOff(value) {
			s.Notes = append(s.Notes, fmt.Sprintf("%s: %s is %s: it changes no logits and is passed over", f.file, name, clip(value)))
			f.pass(name)
		}
	}
	if err := f.done(); err != nil {
		return Settings{}, err
	}
	if err := s.Model.ValidateNamed(names); err != nil {
		return Settings{}, fmt.Errorf("config.json: %w", err)
	}
	return s, nil
}

// findFamily goes by `architectures`, or by `model_type` where that is missing; the two
// must agree.
func findFamily(f *fields) (family, error) {
	classes := read(f, "architectures", []Architecture(nil))
	modelType := read(f, "model_type", "")
	all := families()
	i := slices.IndexFunc(all, func(of family) bool {
		if classes == nil {
			return of.modelType == modelType
		}
		return len(classes) == 1 && (of.architecture == classes[0] || of.base == classes[0]) && (modelType == "" || of.modelType == modelType)
	})
	if i < 0 && f.err == nil {
		f.fail(fmt.Errorf("%w: config.json: architectures is %q with model_type %q; accepted: %s, %s, %s, %s, or these without a head (%s, ...)",
			ErrUnsupported, classes, modelType, GPT2, Llama, Mistral, Qwen2, all[0].base))
	}
	if f.err != nil {
		return family{}, f.err
	}
	return all[i], nil
}

func readGPT2(f *fields) model.Config {
	c := model.Config{
		Vocab:      need[int](f, "vocab_size"),
		Context:    need[int](f, "n_positions"),
		Blocks:     need[int](f, "n_layer"),
		Heads:      need[int](f, "n_head"),
		Channels:   need[int](f, "n_embd"),
		MLP:        number(f, "n_inner", 0),
		NormEps:    number(f, "layer_norm_epsilon", 1e-5),
		UntiedHead: !read(f, "tie_word_embeddings", true),
	}
	only(f, "n_ctx", c.Context) // a second name in older files
	only(f, "activation_function", "gelu_new", "gelu_pytorch_tanh")
	only(f, "scale_attn_weights", true)
	only(f, "scale_attn_by_inverse_layer_idx", false)
	only(f, "reorder_and_upcast_attn", false)
	only(f, "add_cross_attention", false)
	return c
}

// readRotary reads what the other three have in common.
func readRotary(f *fields) model.Config {
	c := model.Config{
		Vocab:        need[int](f, "vocab_size"),
		Context:      min(need[int](f, "max_position_embeddings"), maxContext),
		Blocks:       need[int](f, "num_hidden_layers"),
		Heads:        need[int](f, "num_attention_heads"),
		Channels:     need[int](f, "hidden_size"),
		HeadDim:      number(f, "head_dim", 0),
		MLP:          need[int](f, "intermediate_size"),
		Norm:         model.RMSNorm,
		NormEps:      number(f, "rms_norm_eps", 1e-6),
		Activation:   model.SwiGLU,
		Positions:    model.RoPE,
		UntiedHead:   !read(f, "tie_word_embeddings", false),
		NoMLPBias:    true,
		NoQKVBias:    true,
		NoOutputBias: true,
	}
	only(f, "hidden_act", "silu")
	c.RoPETheta, c.RoPEScaling = readRoPE(f)
	for i, kind := range read(f, "layer_types", []string(nil)) {
		if kind != "full_attention" {
			f.fail(fmt.Errorf("%w: config.json: layer_types[%d] is %q; accepted: full_attention", ErrUnsupported, i, kind))
		}
	}
	return c
}

func readLlama(f *fields) model.Config {
	c := readRotary(f)
	c.KVHeads = number(f, "num_key_value_heads", c.Heads)
	bias := read(f, "attention_bias", false)
	c.NoQKVBias, c.NoOutputBias = !bias, !bias
	c.NoMLPBias = !read(f, "mlp_bias", false)
	return c
}

// defaultWindow is the window of a Mistral whose file lacks the key.
const defaultWindow = 4096

// readMistral takes a window that is null, as in later versions, for none.
func readMistral(f *fields) model.Config {
	window := defaultWindow
	if _, there := f.left["sliding_window"]; there {
		window = number(f, "sliding_window", 0)
	}
	c := readRotary(f)
	c.KVHeads = need[int](f, "num_key_value_heads")
	c.Window = min(window, maxContext)
	return c
}

// readQwen2: a window and the layers it is for count only when use_sliding_window is set.
func readQwen2(f *fields) model.Config {
	c := readRotary(f)
	c.KVHeads = need[int](f, "num_key_value_heads")
	c.NoQKVBias = false
	only(f, "use_sliding_window", false)
	f.take("sliding_window")
	f.take("max_window_layers")
	return c
}

// readRoPE reads rope_parameters, or rope_theta and rope_scaling of versions before 5.
func readRoPE(f *fields) (theta float64, s model.RoPEScaling) {
	const defaultTheta = 10000
	value, field := f.take("rope_parameters"), "rope_parameters."
	if value != nil {
		f.alone("rope_theta", "rope_parameters")
		f.alone("rope_scaling", "rope_parameters")
	} else {
		theta = number(f, "rope_theta", float64(defaultTheta))
		value, field = f.take("rope_scaling"), "rope_scaling."
	}
	if value == nil {
		return cmp.Or(theta, defaultTheta), s
	}
	in := &fields{file: f.file, path: field}
	if err := json.Unmarshal(value, &in.left); err != nil {
		f.misfit(ErrFormat, strings.TrimSuffix(field, "."), value, "want an object")
		return theta, s
	}
	if theta == 0 {
		theta = number(in, "rope_theta", float64(defaultTheta))
	}
	s = readScaling(in)
	if err := in.done(); err != nil {
		f.fail(err)
	}
	return theta, s
}

func readScaling(in *fields) model.RoPEScaling {
	kind := read(in, "type", "default") // the older name
	kind = read(in, "rope_type", kind)
	only(in, "partial_rotary_factor", 1.0)
	switch kind {
	case "default":
		return model.RoPEScaling{}
	case "linear":
		return model.RoPEScaling{Kind: model.ScaleLinear, Factor: need[float64](in, "factor")}
	case "llama3":
		return model.RoPEScaling{
			Kind:            model.ScaleLlama3,
			Factor:          need[float64](in, "factor"),
			LowFreqFactor:   need[float64](in, "low_freq_factor"),
			HighFreqFactor:  need[float64](in, "high_freq_factor"),
			OriginalContext: need[int](in, "original_max_position_embeddings"),
		}
	}
	in.fail(fmt.Errorf("%w: config.json: %srope_type is %q; accepted: default, linear, llama3", ErrUnsupported, in.path, kind))
	return model.RoPEScaling{}
}
