package model

import (
	"slices"
	"strings"
)

// Recompute says what a block drops after its forward pass and computes again for its
// backward pass (Chen et al. 2016; selectively: Korthikanti et al. 2022). The same calls
// on the same inputs give the same bits, so a level changes memory and time alone. The
// embedding and the head have nothing to drop.
type Recompute uint8

// The levels, each with what is kept of a block for its slot, beside its output and rows
// of statistics; F is 2F with a gated activation.
const (
	// RecomputeNothing keeps all: 4C + 2HD + 2KD + 2F channels a row.
	RecomputeNothing Recompute = iota
	// RecomputeOutputs drops what is cheap: the outputs of norms and of the activation,
	// which only the weight pass reads. 1C + 2HD + 2KD + F channels are kept.
	RecomputeOutputs
	// RecomputeBlock keeps nothing but the block's input: the backward pass runs the
	// block forward first. A split backward pass does so twice, for each of its parts.
	RecomputeBlock
	recomputeLevels
)

func (r Recompute) String() string {
	switch r {
	case RecomputeNothing:
		return "none"
	case RecomputeOutputs:
		return "outputs"
	case RecomputeBlock:
		return "block"
	default:
		return "invalid"
	}
}

// RecomputeNames are the names of the levels, that which keeps everything first.
func RecomputeNames() []string {
	var names []string
	for r := range recomputeLevels {
		names = append(names, r.String())
	}
	return names
}

// ParseRecompute is the level of that name; the error wraps ErrBadConfig.
func ParseRecompute(name string) (Recompute, error) {
	i := slices.Index(RecomputeNames(), name)
	if i < 0 {
		return 0, bad("recompute is %q: take one of %s", name, strings.Join(RecomputeNames(), ", "))
	}
	return Recompute(i), nil
}

// MarshalText is the level's name.
func (r Recompute) MarshalText() ([]byte, error) {
	if r >= recomputeLevels {
		return nil, bad("recompute is %d: take a level from %d to %d", uint8(r), uint8(RecomputeNothing), uint8(recomputeLevels-1))
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads a level's name.
func (r *Recompute) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRecompute(string(text))
	return err
}

// Uniform is one level for n layers, for StackConfig.Recompute.
func (r Recompute) Uniform(n int) []Recompute {
	levels := make([]Recompute, n)
	for i := range levels {
		levels[i] = r
	}
	return levels
}
