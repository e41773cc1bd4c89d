"""Makes what the tests read, with Python's transformers (and torch) and peft.

    python3 reference.py make             writes the folders of this directory: tiny models
                                          with random weights, adapters, and logits.json in each
"""
import json
import os
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, __version__)

TOKENS = [3, 17, 0, 45, 22, 8, 30, 46, 11, 5, 29, 40]
ROTARY = dict(vocab_size=47, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=12, bos_token_id=1, eos_token_id=2)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8, "rope_theta": 500.0}

MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=47, n_positions=12, n_embd=16, n_layer=2, n_head=4,
                                         bos_token_id=0, eos_token_id=0), {}),
    "gpt2-untied": (GPT2LMHeadModel, GPT2Config(vocab_size=47, n_positions=12, n_embd=12, n_layer=1, n_head=3, n_inner=20,
                                                tie_word_embeddings=False, layer_norm_epsilon=1e-3, bos_token_id=0,
                                                eos_token_id=0), {}),
    "llama": (LlamaForCausalLM, LlamaConfig(**ROTARY), {"max_shard_size": "10KB"}),
    "llama-scaled": (LlamaForCausalLM, LlamaConfig(**ROTARY, head_dim=6, attention_bias=True, mlp_bias=True,
                                                   tie_word_embeddings=True, rope_parameters=LLAMA3, rms_norm_eps=1e-5), {}),
    "llama-linear": (LlamaForCausalLM, LlamaConfig(**{**ROTARY, "num_key_value_heads": 4, "num_hidden_layers": 1},
                                                   rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}), {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**ROTARY, tie_word_embeddings=True,
                                            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}), {"bfloat16": True}),
    "mistral": (MistralForCausalLM, MistralConfig(**ROTARY, sliding_window=5), {"float16": True}),
}


ADAPTERS = {"gpt2": ["c_attn", "mlp.c_proj"], "llama": ["q_proj", "v_proj", "down_proj", "lm_head"]}


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.tensor([TOKENS])).logits[0]


def make():
    torch.manual_seed(1)
    for name, (kind, config, options) in MODELS.items():
        model = kind(config)
        for key, p in model.named_parameters():
            torch.nn.init.normal_(p, 1.0 if "norm" in key or "ln_" in key else 0.0, 0.3)
            if key.endswith("bias"):
                torch.nn.init.normal_(p, 0.0, 0.3)
        for dtype in ("bfloat16", "float16"):
            if options.pop(dtype, False):
                model = model.to(getattr(torch, dtype))
        model.generation_config.bos_token_id = config.bos_token_id
        model.save_pretrained(name, **options)
        write_logits(name, kind.from_pretrained(name, dtype=torch.float32))  # the buffers of model were rounded too
    for name, targets in ADAPTERS.items():
        config = LoraConfig(r=3, lora_alpha=5, target_modules=targets, task_type="CAUSAL_LM", fan_in_fan_out=name == "gpt2")
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32), config)
        for key, p in model.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(p, 0.0, 0.3)
        folder = name + "-adapter"
        model.save_pretrained(folder, save_embedding_layers=False)
        os.remove(os.path.join(folder, "README.md"))
        write_logits(folder, model)


def write_logits(folder, model):
    with open(os.path.join(folder, "logits.json"), "w") as f:
        json.dump({"transformers": __version__, "tokens": TOKENS, "logits": logits(model).tolist()}, f, separators=(",", ":"))
        f.write("\n")


if sys.argv[1:] == ["make"]:
    make()
else:
    sys.exit(__doc__)
