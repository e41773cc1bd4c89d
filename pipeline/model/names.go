package model

import "fmt"

// names are what a family calls its tensors: those of the Hugging Face checkpoints,
// without the prefix `transformer.` or `model.`. Models with learned positions have
// GPT-2's, models with rotary positions Llama's.
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

func (c Config) names() names {
	if c.Positions == RoPE {
		return llamaNames
	}
	return gpt2Names
}

func (n names) blockPrefix(block int) string { return fmt.Sprintf(n.block, block) }
