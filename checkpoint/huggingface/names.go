package huggingface

import (
	"maps"
	"strings"

	"pnode/pipeline/model"
)

// gpt2Names and rotaryNames are what config.json calls the fields of a model.Config.
var (
	gpt2Names = model.Names{
		"vocab": "vocab_size", "context": "n_positions", "blocks": "n_layer", "heads": "n_head", "channels": "n_embd", "mlp": "n_inner",
		"norm_eps": "layer_norm_epsilon",
	}
	rotaryNames = model.Names{
		"vocab": "vocab_size", "context": "max_position_embeddings", "blocks": "num_hidden_layers", "heads": "num_attention_heads",
		"kv_heads": "num_key_value_heads", "channels": "hidden_size", "mlp": "intermediate_size", "window": "sliding_window",
		"norm_eps": "rms_norm_eps", "rope_scaling.original_context": "rope_scaling.original_max_position_embeddings",
		"rope_theta": "rope_theta", "rope_scaling.factor": "rope_scaling.factor",
		"rope_scaling.low_freq_factor": "rope_scaling.low_freq_factor", "rope_scaling.high_freq_factor": "rope_scaling.high_freq_factor",
	}
)

// newerRoPE gives names as versions from 5 have them, with all about positions in one object.
func newerRoPE(names model.Names) model.Names {
	names = maps.Clone(names)
	for field, name := range names {
		if rest, ok := strings.CutPrefix(name, "rope_"); ok {
			names[field] = "rope_parameters." + strings.TrimPrefix("rope_"+rest, "rope_scaling.")
		}
	}
	return names
}
