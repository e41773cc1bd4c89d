package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// tinyLlama has every feature of the family in sizes that no two of which are alike.
var tinyLlama = Config{
	Vocab: 37, Context: 12, Blocks: 2, Heads: 6, KVHeads: 2, HeadDim: 8, Channels: 24, MLP: 40,
	Norm: RMSNorm, NormEps: 1e-6, Activation: SwiGLU, Positions: RoPE, RoPETheta: 500,
	NoQKVBias: true, NoOutputBias: true, NoMLPBias: true, UntiedHead: true,
}

func TestValidateFamilies(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string // part of the error; empty: valid
	}{
		{"llama is valid", func(*Config) {}, ""},
		{"qwen's bias", func(c *Config) { c.NoQKVBias = false }, ""},
		{"linear scaling", func(c *Config) { c.RoPEScaling = RoPEScaling{Kind: ScaleLinear, Factor: 4} }, ""},
		{"window as long as the context", func(c *Config) { c.Window = 12 }, ""},
		{"kv heads that do not divide", func(c *Config) { c.KVHeads = 4 }, "kv_heads is 4, which does not divide heads 6"},
		{"more kv heads than heads", func(c *Config) { c.KVHeads = 7 }, "kv_heads is 7: take a value from 0 to 6"},
		{"odd head", func(c *Config) { c.HeadDim = 7 }, "head_dim is 7, but positions rope"},
		{"huge heads", func(c *Config) { c.HeadDim = 1 << 12 }, "head_dim is 4096: take a value"},
		{"huge heads by default", func(c *Config) { c.Channels, c.Heads, c.KVHeads, c.HeadDim = 1<<12, 2, 2, 0 }, "channels is 4096 for heads 2, a head_dim of 2048: take at most 1024"},
		{"heads wider than any", func(c *Config) { c.Channels, c.Heads, c.KVHeads, c.HeadDim = 1<<16, 1<<16, 1, 2 }, "heads is 65536 of head_dim 2"},
		{"unknown norm", func(c *Config) { c.Norm = "batchnorm" }, `norm is "batchnorm": take one of layernorm, rmsnorm`},
		{"unknown activation", func(c *Config) { c.Activation = "relu" }, `activation is "relu": take one of gelu_tanh, swiglu`},
		{"unknown positions", func(c *Config) { c.Positions = "alibi" }, `positions is "alibi": take one of learned, rope`},
		{"no number", func(c *Config) { c.NormEps = math.NaN() }, "norm_eps is NaN"},
		{"theta", func(c *Config) { c.RoPETheta = -1 }, "rope_theta is -1"},
		{"theta without rope", func(c *Config) { c.Positions = Learned }, "rope_theta is 500 without positions rope"},
		{"scaling without rope", func(c *Config) { c.Positions, c.RoPETheta, c.RoPEScaling.Kind = Learned, 0, ScaleLinear }, `rope_scaling is "linear" without`},
		{"dynamic scaling", func(c *Config) { c.RoPEScaling.Kind = "dynamic" }, `rope_scaling.kind is "dynamic": take one of linear, llama3`},
		{"scaling without kind", func(c *Config) { c.RoPEScaling.Factor = 2 }, "no kind"},
		{"linear with more", func(c *Config) { c.RoPEScaling = RoPEScaling{Kind: ScaleLinear, Factor: 2, LowFreqFactor: 1} }, "fields of llama3"},
		{"llama3 without context", func(c *Config) {
			c.RoPEScaling = RoPEScaling{Kind: ScaleLlama3, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4}
		}, "original_context is 0"},
		{"llama3 the wrong way round", func(c *Config) {
			c.RoPEScaling = RoPEScaling{Kind: ScaleLlama3, Factor: 8, LowFreqFactor: 4, HighFreqFactor: 1, OriginalContext: 8192}
		}, "high_freq_factor is 1: take more"},
		{"shorter window", func(c *Config) { c.Window = 5 }, ""},
		{"window", func(c *Config) { c.Window = -1 }, "window is -1"},
		{"dropout", func(c *Config) { c.ResidualDropout = 1 }, "residual_dropout is 1"},
		{"embedding dropout", func(c *Config) { c.EmbedDropout = -0.1 }, "embed_dropout is -0.1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := tinyLlama
			test.change(&c)
			err := c.Validate()
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Validate: %v, want %q", err, test.want)
			}
		})
	}
}

// TestZeroFieldsAreGPT2 holds the meaning and the bytes of descriptions that were
// written before a field existed.
func TestZeroFieldsAreGPT2(t *testing.T) {
	raw, err := json.Marshal(tiny)
	must(t, err)
	if want := `{"vocab":37,"context":12,"blocks":2,"heads":3,"channels":24}`; string(raw) != want {
		t.Errorf("a GPT-2 is written as %s", raw)
	}
	want := Config{
		Vocab: 37, Context: 12, Blocks: 2, Heads: 3, Channels: 24,
		KVHeads: 3, HeadDim: 8, MLP: 96, Norm: LayerNorm, NormEps: 1e-5, Activation: GELUTanh, Positions: Learned,
	}
	if got := tiny.Resolved(); got != want || got.Resolved() != got {
		t.Errorf("resolved %+v, want %+v", got, want)
	}
}

func TestConfigSurvivesJSON(t *testing.T) {
	c := tinyLlama
	c.Window, c.EmbedDropout = 99, 0.125
	c.RoPEScaling = RoPEScaling{Kind: ScaleLlama3, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192}
	must(t, c.Validate())
	raw, err := json.Marshal(c)
	must(t, err)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var back Config
	must(t, d.Decode(&back))
	if back != c {
		t.Errorf("%s became %+v", raw, back)
	}
}

// TestTensorNames lists the names of a block of each family.
func TestTensorNames(t *testing.T) {
	qwen := tinyLlama
	qwen.NoQKVBias, qwen.UntiedHead = false, false
	tests := []struct {
		name   string
		config Config
		layer  int
		want   []string
	}{
		{"gpt2 block", tiny, 2, []string{
			"h.1.ln_1.weight", "h.1.ln_1.bias", "h.1.attn.c_attn.weight", "h.1.attn.c_attn.bias", "h.1.attn.c_proj.weight", "h.1.attn.c_proj.bias",
			"h.1.ln_2.weight", "h.1.ln_2.bias", "h.1.mlp.c_fc.weight", "h.1.mlp.c_fc.bias", "h.1.mlp.c_proj.weight", "h.1.mlp.c_proj.bias",
		}},
		{"llama embedding", tinyLlama, 0, []string{"embed_tokens.weight"}},
		{"llama head", tinyLlama, 3, []string{"norm.weight", "lm_head.weight"}},
		{"tied head", qwen, 3, []string{"norm.weight", "embed_tokens.weight"}},
		{"qwen block", qwen, 1, []string{
			"layers.0.input_layernorm.weight", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight", "layers.0.self_attn.v_proj.weight",
			"layers.0.self_attn.q_proj.bias", "layers.0.self_attn.k_proj.bias", "layers.0.self_attn.v_proj.bias", "layers.0.self_attn.o_proj.weight",
			"layers.0.post_attention_layernorm.weight", "layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight", "layers.0.mlp.down_proj.weight",
		}},
	}
	for _, test := range tests {
		var got []string
		for _, tensor := range test.config.LayerTensors(test.layer) {
			got = append(got, tensor.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", test.name, got)
		}
	}
	if tinyLlama.TiedLen() != 0 || qwen.TiedLen() != 37*24 {
		t.Errorf("tied elements: %d and %d", tinyLlama.TiedLen(), qwen.TiedLen())
	}
	kv := tinyLlama.LayerTensors(1)[2]
	if !slices.Equal(kv.Shape, []int{2 * 8, 24}) {
		t.Errorf("keys are %v", kv.Shape)
	}
}
