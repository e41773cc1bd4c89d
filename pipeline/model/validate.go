package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pnode/kernels"
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

// Names has the names of fields in a file that a Config was read from, by their names in JSON
// (those of RoPEScaling after `rope_scaling.`); fields that are not listed keep theirs.
type Names map[string]string

func (n Names) of(field string) string { return cmp.Or(n[field], field) }

// ValidateNamed is Validate with the names of fields that the user knows.
func (c Config) ValidateNamed(names Names) error {
	v := validation{c, names}
	for _, check := range []func() error{v.sizes, v.heads, v.layers, v.positions, v.scaling, v.adapters} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validation checks the fields of a configuration, group by group. Each group relies on the ones
// before it.
type validation struct {
	Config
	names Names
}

// sizes leaves 0 alone where it stands for a default.
func (v validation) sizes() error {
	return checkAll(v.names,
		bounds[int]{"vocab", v.Vocab, 2, maxVocab},
		bounds[int]{"context", v.Context, 1, maxContext},
		bounds[int]{"blocks", v.Blocks, 1, maxBlocks},
		bounds[int]{"channels", v.Channels, 1, maxChannels},
		bounds[int]{"heads", v.Heads, 1, v.Channels},
		bounds[int]{"kv_heads", v.KVHeads, 0, v.Heads},
		bounds[int]{"head_dim", v.HeadDim, 0, maxHeadDim},
		bounds[int]{"mlp", v.MLP, 0, maxMLP},
		bounds[int]{"window", v.Window, 0, maxContext},
	)
}

func (v validation) heads() error {
	if v.HeadDim == 0 && v.Channels%v.Heads != 0 {
		channels := v.names.of("channels")
		return bad("%s is %d, which %d heads do not divide: take %s %d, or another %s",
			channels, v.Channels, v.Heads, channels, (v.Channels/v.Heads+1)*v.Heads, v.names.of("heads"))
	}
	r := v.resolved()
	if r.Heads%r.KVHeads != 0 {
		return bad("%s is %d, which does not divide %s %d: take a divisor", v.names.of("kv_heads"), v.KVHeads, v.names.of("heads"), v.Heads)
	}
	if r.HeadDim > maxHeadDim {
		return bad("%s is %d for %s %d, a head_dim of %d: take at most %d, with more heads",
			v.names.of("channels"), v.Channels, v.names.of("heads"), v.Heads, r.HeadDim, maxHeadDim)
	}
	if r.queryWidth() > maxChannels {
		return bad("%s is %d of head_dim %d: take at most %d in all", v.names.of("heads"), v.Heads, r.HeadDim, maxChannels)
	}
	if r.Positions == RoPE && r.HeadDim%2 != 0 {
		return bad("head_dim is %d, but positions rope rotates pairs: take an even one", r.HeadDim)
	}
	return nil
}

func (v validation) layers() error {
	if err := oneOf(v.names.of("norm"), v.Norm, "", LayerNorm, RMSNorm); err != nil {
		return err
	}
	if err := oneOf(v.names.of("activation"), v.Activation, "", GELUTanh, SwiGLU); err != nil {
		return err
	}
	return checkAll(v.names,
		bounds[float64]{"norm_eps", v.resolved().NormEps, 1e-12, 1e-1},
		bounds[float64]{"embed_dropout", v.EmbedDropout, 0, 0.99},
		bounds[float64]{"residual_dropout", v.ResidualDropout, 0, 0.99},
	)
}

func (v validation) positions() error {
	if err := oneOf(v.names.of("positions"), v.Positions, "", Learned, RoPE); err != nil {
		return err
	}
	switch {
	case v.Positions == RoPE:
		return checkAll(v.names, bounds[float64]{"rope_theta", v.resolved().RoPETheta, 1, maxTheta})
	case v.RoPETheta != 0:
		return bad("rope_theta is %g without positions rope: leave it out or set positions", v.RoPETheta)
	case v.RoPEScaling != RoPEScaling{}:
		return bad("rope_scaling is %q without positions rope: leave it out or set positions", v.RoPEScaling.Kind)
	}
	return nil
}

func (v validation) scaling() error {
	s := v.RoPEScaling
	if err := oneOf(v.names.of("rope_scaling.kind"), s.Kind, "", ScaleLinear, ScaleLlama3); err != nil {
		return err
	}
	switch s.Kind {
	case ScaleLlama3:
		if err := checkAll(v.names,
			bounds[float64]{"rope_scaling.factor", s.Factor, 1, maxScale},
			bounds[float64]{"rope_scaling.low_freq_factor", s.LowFreqFactor, 1e-3, maxScale},
			bounds[float64]{"rope_scaling.high_freq_factor", s.HighFreqFactor, 1e-3, maxScale},
		); err != nil {
			return err
		}
		if s.HighFreqFactor <= s.LowFreqFactor {
			return bad("%s is %g: take more than low_freq_factor %g",
				v.names.of("rope_scaling.high_freq_factor"), s.HighFreqFactor, s.LowFreqFactor)
		}
		return checkAll(v.names, bounds[int]{"rope_scaling.original_context", s.OriginalContext, 1, 1 << 30})
	case ScaleLinear:
		if s != (RoPEScaling{Kind: ScaleLinear, Factor: s.Factor}) {
			return bad("rope_scaling has fields of llama3 beside kind %q: leave them out", s.Kind)
		}
		return checkAll(v.names, bounds[float64]{"rope_scaling.factor", s.Factor, 1, maxScale})
	}
	if s != (RoPEScaling{}) {
		return bad("rope_scaling has values but no kind: take %q or %q", ScaleLinear, ScaleLlama3)
	}
	return nil
}

// CheckSegments returns nil when sequences of the model may be cut into n segments; 0 and 1 stand for
// whole sequences. The error wraps ErrBadConfig.
func (c Config) CheckSegments(n int) error {
	m := c.Resolved()
	unit := kernels.AttentionShape{H: m.Heads, K: m.KVHeads}.PartUnit()
	if n < 0 || n > 1 && m.Context%(n*unit) != 0 {
		why := ""
		if m.Heads > m.KVHeads {
			why = " where query heads share keys"
		}
		return bad("segments is %d for a context of %d: take a number that cuts it into equal segments of a multiple of %d positions%s",
			n, m.Context, unit, why)
	}
	return nil
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

// enumName is the name of a value, `invalid` for one without.
func enumName[T ~uint8](value T, names []string) string {
	if int(value) >= len(names) {
		return "invalid"
	}
	return names[value]
}

// enumText returns the name of a value of a field, or an error that lists the values.
func enumText[T ~uint8](field string, value T, names []string) ([]byte, error) {
	if err := checkEnum(field, value, names); err != nil {
		return nil, err
	}
	return []byte(names[value]), nil
}

func checkEnum[T ~uint8](field string, value T, names []string) error {
	if int(value) < len(names) {
		return nil
	}
	var known []string
	for i, name := range names {
		known = append(known, fmt.Sprintf("%d (%s)", i, name))
	}
	return bad("%s is %d: take one of %s", field, value, strings.Join(known, ", "))
}

// parseEnum returns the value of that name.
func parseEnum[T ~uint8](field, name string, names []string) (T, error) {
	i := slices.Index(names, name)
	if i < 0 {
		return 0, bad("%s is %q: take one of %s", field, name, strings.Join(names, ", "))
	}
	return T(i), nil
}
