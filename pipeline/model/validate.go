package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Upper bounds keep every product of sizes far inside an int.
const (
	maxVocab    = 1 << 20
	maxContext  = 1 << 17
	maxBlocks   = 1 << 10
	maxChannels = 1 << 16
	maxMLP      = 1 << 18
	maxHeadDim  = 1 << 10
	maxTheta    = 1e12
	maxScale    = 1e6
)

// Validate names the first field that does not fit, its value and what is accepted; the
// error wraps ErrBadConfig.
func (c Config) Validate() error { return c.ValidateNamed(nil) }

// Names are what a file that a Config was read from calls its fields, by their names in JSON
// (those of RoPEScaling after `rope_scaling.`); fields that are not listed keep theirs.
type Names map[string]string

func (n Names) of(field string) string { return cmp.Or(n[field], field) }

// ValidateNamed is Validate with the names of fields that the user knows.
func (c Config) ValidateNamed(names Names) error {
	for _, check := range []func(Config, Names) error{
		Config.validateSizes, Config.validateHeads, Config.validateNorm, Config.validatePositions,
		Config.validateScaling, Config.validateDropout,
	} {
		if err := check(c, names); err != nil {
			return err
		}
	}
	return c.validateLoRA()
}

// validateSizes leaves 0 alone where it stands for a default.
func (c Config) validateSizes(names Names) error {
	return checkAll(names,
		bounds[int]{"vocab", c.Vocab, 2, maxVocab},
		bounds[int]{"context", c.Context, 1, maxContext},
		bounds[int]{"blocks", c.Blocks, 1, maxBlocks},
		bounds[int]{"channels", c.Channels, 1, maxChannels},
		bounds[int]{"heads", c.Heads, 1, c.Channels},
		bounds[int]{"kv_heads", c.KVHeads, 0, c.Heads},
		bounds[int]{"head_dim", c.HeadDim, 0, maxHeadDim},
		bounds[int]{"mlp", c.MLP, 0, maxMLP},
		bounds[int]{"window", c.Window, 0, maxContext},
	)
}

func (c Config) validateHeads(names Names) error {
	if c.HeadDim == 0 && c.Channels%c.Heads != 0 {
		channels := names.of("channels")
		return bad("%s is %d, which %d heads do not divide: take %s %d, or another %s",
			channels, c.Channels, c.Heads, channels, (c.Channels/c.Heads+1)*c.Heads, names.of("heads"))
	}
	r := c.Resolved()
	if r.Heads%r.KVHeads != 0 {
		return bad("%s is %d, which does not divide %s %d: take a divisor", names.of("kv_heads"), c.KVHeads, names.of("heads"), c.Heads)
	}
	if r.HeadDim > maxHeadDim {
		return bad("%s is %d for %s %d, a head_dim of %d: take at most %d, with more heads",
			names.of("channels"), c.Channels, names.of("heads"), c.Heads, r.HeadDim, maxHeadDim)
	}
	if r.queryWidth() > maxChannels {
		return bad("%s is %d of head_dim %d: take at most %d in all", names.of("heads"), c.Heads, r.HeadDim, maxChannels)
	}
	if r.Positions == RoPE && r.HeadDim%2 != 0 {
		return bad("head_dim is %d, but positions rope rotates pairs: take an even one", r.HeadDim)
	}
	return nil
}

func (c Config) validateNorm(names Names) error {
	if err := oneOf(names.of("norm"), c.Norm, "", LayerNorm, RMSNorm); err != nil {
		return err
	}
	if err := oneOf(names.of("activation"), c.Activation, "", GELUTanh, SwiGLU); err != nil {
		return err
	}
	return checkAll(names, bounds[float64]{"norm_eps", c.Resolved().NormEps, 1e-12, 1e-1})
}

func (c Config) validatePositions(names Names) error {
	if err := oneOf(names.of("positions"), c.Positions, "", Learned, RoPE); err != nil {
		return err
	}
	switch {
	case c.Positions == RoPE:
		return checkAll(names, bounds[float64]{"rope_theta", c.Resolved().RoPETheta, 1, maxTheta})
	case c.RoPETheta != 0:
		return bad("rope_theta is %g without positions rope: leave it out or set positions", c.RoPETheta)
	case c.RoPEScaling != RoPEScaling{}:
		return bad("rope_scaling is %q without positions rope: leave it out or set positions", c.RoPEScaling.Kind)
	}
	return nil
}

func (c Config) validateScaling(names Names) error {
	s := c.RoPEScaling
	if err := oneOf(names.of("rope_scaling.kind"), s.Kind, "", ScaleLinear, ScaleLlama3); err != nil {
		return err
	}
	switch s.Kind {
	case ScaleLlama3:
		if err := checkAll(names,
			bounds[float64]{"rope_scaling.factor", s.Factor, 1, maxScale},
			bounds[float64]{"rope_scaling.low_freq_factor", s.LowFreqFactor, 1e-3, maxScale},
			bounds[float64]{"rope_scaling.high_freq_factor", s.HighFreqFactor, 1e-3, maxScale},
		); err != nil {
			return err
		}
		if s.HighFreqFactor <= s.LowFreqFactor {
			return bad("%s is %g: take more than low_freq_factor %g", names.of("rope_scaling.high_freq_factor"), s.HighFreqFactor, s.LowFreqFactor)
		}
		return checkAll(names, bounds[int]{"rope_scaling.original_context", s.OriginalContext, 1, 1 << 30})
	case ScaleLinear:
		if s != (RoPEScaling{Kind: ScaleLinear, Factor: s.Factor}) {
			return bad("rope_scaling has fields of llama3 beside kind %q: leave them out", s.Kind)
		}
		return checkAll(names, bounds[float64]{"rope_scaling.factor", s.Factor, 1, maxScale})
	}
	if s != (RoPEScaling{}) {
		return bad("rope_scaling has values but no kind: take %q or %q", ScaleLinear, ScaleLlama3)
	}
	return nil
}

func (c Config) validateDropout(names Names) error {
	return checkAll(names,
		bounds[float64]{"embed_dropout", c.EmbedDropout, 0, 0.99},
		bounds[float64]{"residual_dropout", c.ResidualDropout, 0, 0.99},
	)
}

// bad makes an error that wraps ErrBadConfig.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBadConfig}, args...)...)
}

// bounds is the accepted range of one field.
type bounds[T int | float64] struct {
	field         string
	value, lo, hi T
}

func checkAll[T int | float64](names Names, fields ...bounds[T]) error {
	for _, f := range fields {
		if !(f.value >= f.lo && f.value <= f.hi) { // a NaN fits nowhere
			return bad("%s is %v: take a value from %v to %v", names.of(f.field), f.value, f.lo, f.hi)
		}
	}
	return nil
}

func oneOf[T ~string](field string, value T, known ...T) error {
	if slices.Contains(known, value) {
		return nil
	}
	var names []string
	for _, k := range known {
		if k != "" {
			names = append(names, string(k))
		}
	}
	return bad("%s is %q: take one of %s", field, value, strings.Join(names, ", "))
}
