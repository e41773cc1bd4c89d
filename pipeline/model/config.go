package model

// Config describes a GPT-2 style transformer: learned positions, pre-LayerNorm, GELU
// (tanh), causal self-attention, biases, head tied to the token embedding.
type Config struct {
	Vocab    int `json:"vocab"`
	Context  int `json:"context"` // positions T
	Blocks   int `json:"blocks"`
	Heads    int `json:"heads"`
	Channels int `json:"channels"`
}

// Layers is the number of layers a plan distributes: embedding, blocks, head.
func (c Config) Layers() int { return c.Blocks + 2 }
