package model

import (
	"errors"
	"fmt"
)

// Errors of this package.
var (
	// ErrBadConfig is wrapped by errors that name a field, its value and the remedy.
	ErrBadConfig = errors.New("model: bad configuration")
	// ErrUnknownPreset is wrapped by the error of Preset, which lists the known names.
	ErrUnknownPreset = errors.New("model: unknown preset")
)

// Config describes a GPT-2 style transformer: learned positions, pre-LayerNorm, GELU
// (tanh), causal self-attention, biases, head tied to the token embedding.
type Config struct {
	Vocab    int `json:"vocab"`
	Context  int `json:"context"` // positions T
	Blocks   int `json:"blocks"`
	Heads    int `json:"heads"`
	Channels int `json:"channels"`
}

// Upper bounds keep every product of sizes far inside an int.
const (
	maxVocab    = 1 << 20
	maxContext  = 1 << 17
	maxBlocks   = 1 << 10
	maxChannels = 1 << 16
)

// Layers is the number of layers a plan distributes: embedding, blocks, head.
func (c Config) Layers() int { return c.Blocks + 2 }

// Validate names the first field that does not fit, its value and what is accepted; the
// error wraps ErrBadConfig.
func (c Config) Validate() error {
	fields := []bounds{
		{"vocab", c.Vocab, 2, maxVocab},
		{"context", c.Context, 1, maxContext},
		{"blocks", c.Blocks, 1, maxBlocks},
		{"channels", c.Channels, 1, maxChannels},
		{"heads", c.Heads, 1, c.Channels},
	}
	for _, f := range fields {
		if err := f.check(); err != nil {
			return err
		}
	}
	if c.Channels%c.Heads != 0 {
		return fmt.Errorf("%w: channels is %d, which %d heads do not divide: take channels %d or other heads",
			ErrBadConfig, c.Channels, c.Heads, (c.Channels/c.Heads+1)*c.Heads)
	}
	return nil
}

// bounds is the accepted range of one field.
type bounds struct {
	field         string
	value, lo, hi int
}

func (b bounds) check() error {
	if b.value < b.lo || b.value > b.hi {
		return fmt.Errorf("%w: %s is %d: take a value from %d to %d", ErrBadConfig, b.field, b.value, b.lo, b.hi)
	}
	return nil
}
