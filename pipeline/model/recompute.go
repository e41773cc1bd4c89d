package model

import "slices"

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

var recomputeNames = []string{"none", "outputs", "block"}

func (r Recompute) String() string { return enumName(r, recomputeNames) }

// RecomputeNames returns the names of the levels; the first keeps everything.
func RecomputeNames() []string { return recomputeNames }

// ParseRecompute returns the level of that name; the error wraps ErrBadConfig.
func ParseRecompute(name string) (Recompute, error) {
	return parseEnum[Recompute]("recompute", name, recomputeNames)
}

// MarshalText returns the level's name.
func (r Recompute) MarshalText() ([]byte, error) { return enumText("recompute", r, recomputeNames) }

// UnmarshalText reads a level's name.
func (r *Recompute) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRecompute(string(text))
	return err
}

// Uniform returns one level for n layers, for StackConfig.Recompute.
func (r Recompute) Uniform(n int) []Recompute {
	return slices.Repeat([]Recompute{r}, n)
}
