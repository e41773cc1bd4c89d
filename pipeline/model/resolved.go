package model

import "fmt"

// resolved is a configuration whose defaults are in place, with the sizes and names that follow
// from it.
type resolved struct{ Config }

// queryWidth is H*D, the channels of all query heads.
func (m resolved) queryWidth() int { return m.Heads * m.HeadDim }

// qkvWidth is (H+2K)*D, the channels of queries, keys and values.
func (m resolved) qkvWidth() int { return (m.Heads + 2*m.KVHeads) * m.HeadDim }

// upWidth is F, or 2F with a gate.
func (m resolved) upWidth() int {
	if m.Activation == SwiGLU {
		return 2 * m.MLP
	}
	return m.MLP
}

// slides reports whether the window is shorter than a sequence of so many positions.
func (m resolved) slides(positions int) bool { return m.Window > 0 && m.Window < positions }

// windowStart returns the first position that the query at t sees.
func (m resolved) windowStart(t int) int32 {
	if m.Window == 0 {
		return 0
	}
	return int32(max(0, t-m.Window+1))
}

// names are a family's names of its tensors, as in Hugging Face checkpoints without the prefix
// `transformer.` or `model.`. Models with learned positions have GPT-2's names, models with rotary
// positions Llama's.
type names struct {
	embed, positions string
	block            string // with the block's number
	attentionNorm    string
	qkv              []string // one fused tensor or query, key, value
	output           string
	mlpNorm          string
	gate, up, down   string
	finalNorm, head  string
}

var gpt2Names = names{
	embed: "wte", positions: "wpe", block: "h.%d.",
	attentionNorm: "ln_1", qkv: []string{"attn.c_attn"}, output: "attn.c_proj",
	mlpNorm: "ln_2", gate: "mlp.c_gate", up: "mlp.c_fc", down: "mlp.c_proj",
	finalNorm: "ln_f", head: "lm_head",
}

var llamaNames = names{
	embed: "embed_tokens", block: "layers.%d.",
	attentionNorm: "input_layernorm", output: "self_attn.o_proj",
	qkv:     []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
	mlpNorm: "post_attention_layernorm", gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj",
	finalNorm: "norm", head: "lm_head",
}

func (m resolved) names() names {
	if m.Positions == RoPE {
		return llamaNames
	}
	return gpt2Names
}

func (n names) blockPrefix(block int) string { return fmt.Sprintf(n.block, block) }
