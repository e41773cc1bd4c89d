package model

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
		return "nothing"
	case RecomputeOutputs:
		return "outputs"
	case RecomputeBlock:
		return "block"
	default:
		return "invalid"
	}
}

// Uniform is one level for n layers, for StackConfig.Recompute.
func (r Recompute) Uniform(n int) []Recompute {
	levels := make([]Recompute, n)
	for i := range levels {
		levels[i] = r
	}
	return levels
}
