package model

import "errors"

// Errors of this package.
var (
	// ErrBadConfig is wrapped by errors that name a field, its value and the remedy.
	ErrBadConfig = errors.New("model: bad configuration")
	// ErrUnknownPreset is wrapped by the error of Preset, which lists the known names.
	ErrUnknownPreset = errors.New("model: unknown preset")
)

// Config describes a decoder-only transformer with pre-normalised blocks and causal
// self-attention. With the first five fields alone it is GPT-2 (Radford et al. 2019): a
// zero in any other field means what GPT-2 does. The other fields make it Llama (Touvron
// et al. 2023), Mistral or Qwen2. Resolved puts values in place of the zeros.
type Config struct {
	Vocab    int `json:"vocab"`
	Context  int `json:"context"` // positions T of a training sequence
	Blocks   int `json:"blocks"`
	Heads    int `json:"heads"` // query heads H
	Channels int `json:"channels"`

	// KVHeads K share their keys and values among H/K query heads each (grouped-query
	// attention, Ainslie et al. 2023); 0: Heads.
	KVHeads int `json:"kv_heads,omitzero"`
	HeadDim int `json:"head_dim,omitzero"` // D; 0: Channels/Heads
	MLP     int `json:"mlp,omitzero"`      // hidden channels F of the MLP; 0: 4*Channels

	Norm       Norm       `json:"norm,omitzero"`
	NormEps    float64    `json:"norm_eps,omitzero"` // 0: 1e-5
	Activation Activation `json:"activation,omitzero"`

	Positions   Positions   `json:"positions,omitzero"`
	RoPETheta   float64     `json:"rope_theta,omitzero"` // 0: 10000
	RoPEScaling RoPEScaling `json:"rope_scaling,omitzero"`
	// Window is how many positions, its own included, a query sees at most (Mistral's
	// sliding window); 0: all before it.
	Window int `json:"window,omitzero"`

	// The linear layers have biases unless told otherwise.
	NoQKVBias    bool `json:"no_qkv_bias,omitzero"`
	NoOutputBias bool `json:"no_output_bias,omitzero"` // projection of the attention's output
	NoMLPBias    bool `json:"no_mlp_bias,omitzero"`
	// UntiedHead gives the head a matrix of its own instead of a copy of the embedding.
	UntiedHead bool `json:"untied_head,omitzero"`

	// EmbedDropout and ResidualDropout are the shares of elements set to zero in
	// training: of the embedding's output, and of what attention and MLP add to the
	// residual stream.
	EmbedDropout    float64 `json:"embed_dropout,omitzero"`
	ResidualDropout float64 `json:"residual_dropout,omitzero"`

	// LoRA freezes the model and trains adapters.
	LoRA LoRA `json:"lora,omitzero"`
}

// Norm is how a layer's input is normalised; empty: layernorm.
type Norm string

// The norms.
const (
	LayerNorm Norm = "layernorm" // weight and bias
	RMSNorm   Norm = "rmsnorm"   // weight only (Zhang and Sennrich 2019)
)

// Activation is the MLP's nonlinearity; empty: gelu_tanh.
type Activation string

// The activations.
const (
	GELUTanh Activation = "gelu_tanh" // down(gelu(up(x)))
	SwiGLU   Activation = "swiglu"    // down(silu(gate(x)) * up(x)) (Shazeer 2020)
)

// Positions is how the model knows positions; empty: learned.
type Positions string

// The kinds of positions.
const (
	Learned Positions = "learned" // a vector for each position is added to the embedding
	RoPE    Positions = "rope"    // queries and keys are rotated (Su et al. 2021)
)

// RoPEScaling changes RoPE's frequencies so that a model reads longer sequences than it
// was pretrained on. The zero value leaves them alone.
type RoPEScaling struct {
	Kind   ScalingKind `json:"kind,omitzero"`
	Factor float64     `json:"factor,omitzero"`
	// The rest belongs to llama3: wavelengths above OriginalContext/LowFreqFactor are
	// stretched by Factor, those below OriginalContext/HighFreqFactor are not.
	LowFreqFactor   float64 `json:"low_freq_factor,omitzero"`
	HighFreqFactor  float64 `json:"high_freq_factor,omitzero"`
	OriginalContext int     `json:"original_context,omitzero"`
}

// ScalingKind names a rule of RoPEScaling; empty: none.
type ScalingKind string

// The rules. Those that depend on the length of the sequence (dynamic) or change the
// attention's scale (yarn, longrope) are refused.
const (
	ScaleLinear ScalingKind = "linear" // all frequencies divided by Factor
	ScaleLlama3 ScalingKind = "llama3" // low ones divided, high ones kept, between them a blend
)

// Layers is the number of layers a plan distributes: embedding, blocks, head.
func (c Config) Layers() int { return c.Blocks + 2 }

// Tied reports whether the head's matrix is a copy of the embedding's.
func (c Config) Tied() bool { return !c.UntiedHead }

// Base returns the model without its adapters; its layers have the same tensors at the same places.
func (c Config) Base() Config {
	c.LoRA = LoRA{}
	return c
}

// Resolved returns c with every default in place of the zero that stands for it. It describes the
// same model, and resolving it again changes nothing.
func (c Config) Resolved() Config {
	orElse(&c.KVHeads, c.Heads)
	if c.Heads > 0 {
		orElse(&c.HeadDim, c.Channels/c.Heads)
	}
	orElse(&c.MLP, 4*c.Channels)
	orElse(&c.Norm, LayerNorm)
	orElse(&c.NormEps, 1e-5)
	orElse(&c.Activation, GELUTanh)
	orElse(&c.Positions, Learned)
	if c.Positions == RoPE {
		orElse(&c.RoPETheta, 10000)
	}
	return c
}

func (c Config) resolved() resolved { return resolved{c.Resolved()} }

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
