package model

import (
	"fmt"
	"slices"
	"strings"
)

// preset is a named configuration.
type preset struct {
	name   string
	config Config
}

// presets in order of size. The byte-level ones have a vocabulary of 256 bytes.
var presets = []preset{
	// 1.85 M parameters: minutes on two CPU cores.
	{"nano", Config{Vocab: 256, Context: 128, Blocks: 4, Heads: 6, Channels: 192}},
	// 5.0 M parameters: deep for its size, for pipelines of 8 stages. Llama's layers.
	{"small-5m", llama(Config{Vocab: 256, Context: 256, Blocks: 8, Heads: 7, Channels: 224, MLP: 608})},
	// 10.8 M parameters: the usual character-level shape.
	{"small-10m", Config{Vocab: 256, Context: 256, Blocks: 6, Heads: 6, Channels: 384}},
	// 124 M parameters: the smallest GPT-2 (Radford et al. 2019, table 2).
	{"gpt2-124m", Config{Vocab: 50257, Context: 1024, Blocks: 12, Heads: 12, Channels: 768}},
	// 162 M parameters: GPT-2's small shape with Llama's layers.
	{"llama-160m", llama(Config{Vocab: 32000, Context: 2048, Blocks: 12, Heads: 12, Channels: 768, MLP: 3072})},
	// 355 M parameters: GPT-2 medium (Radford et al. 2019, table 2). Its blocks have the shape of BERT-large's.
	{"gpt2-355m", Config{Vocab: 50257, Context: 1024, Blocks: 24, Heads: 16, Channels: 1024}},
	// 1.1 B parameters: TinyLlama (Zhang et al. 2024, table 1).
	{"llama-1b", llama(Config{Vocab: 32000, Context: 2048, Blocks: 22, Heads: 32, KVHeads: 4, Channels: 2048, MLP: 5632})},
	// 1.3 B parameters: GPT-3 XL (Brown et al. 2020, table 2.1) with 16 heads, which
	// divide its 2048 channels.
	{"gpt3-1.3b", Config{Vocab: 50257, Context: 2048, Blocks: 24, Heads: 16, Channels: 2048}},
}

// llama gives c Llama's layers: RMSNorm, rotary positions, SwiGLU, no biases, and a head
// of its own.
func llama(c Config) Config {
	c.Norm, c.Activation, c.Positions = RMSNorm, SwiGLU, RoPE
	c.NoQKVBias, c.NoOutputBias, c.NoMLPBias = true, true, true
	c.UntiedHead = true
	return c
}

// Preset is the configuration of that name; the error wraps ErrUnknownPreset and lists
// the known names.
func Preset(name string) (Config, error) {
	i := slices.IndexFunc(presets, func(p preset) bool { return p.name == name })
	if i < 0 {
		return Config{}, fmt.Errorf("%w %q: known are %s", ErrUnknownPreset, name, strings.Join(PresetNames(), ", "))
	}
	return presets[i].config, nil
}

// PresetNames lists the presets from small to large.
func PresetNames() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.name
	}
	return names
}
