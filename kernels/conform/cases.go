package conform

import (
	"math/rand/v2"

	"pnode/kernels"
)

// adamScalars are those of update 3 with usual settings.
var adamScalars = [8]float32{1e-2, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, 0.5}

// scalars gives an op's scalars for a case.
func scalars(op kernels.Op) [8]float32 {
	switch op {
	case kernels.OpAdamW:
		return adamScalars
	case kernels.OpLayerNormForward:
		return [8]float32{defaultEps}
	default:
		return [8]float32{-0.75}
	}
}

func newCase(op kernels.Op, dims ...int) Case {
	c := Case{Call: kernels.Call{Op: op, Scalars: scalars(op)}, Seed: 1}
	copy(c.Call.Dims[:], dims)
	return c
}

// fixedShapes are the shapes where backends change their way of working: one element,
// one less and one more than a tile or a vector, several blocks of everything.
var fixedShapes = map[kernels.Op][][]int{
	kernels.OpMatMul: {
		{1, 1, 1},
		{6, 16, 8},
		{5, 15, 7},
		{7, 17, 9},
		{12, 32, 4},
		{13, 33, 300},
		{1, 64, 513},
		{97, 1, 40},
		{48, 512, 33},
		{50, 530, 20},
		{64, 48, 770},
	},
	kernels.OpColumnSum:               {{1, 1}, {64, 16}, {65, 17}, {300, 100}},
	kernels.OpEmbedForward:            {{1, 1, 1, 1}, {3, 5, 64, 7}, {2, 9, 67, 300}},
	kernels.OpEmbedBackward:           {{1, 1, 1, 1}, {3, 5, 64, 7}, {2, 9, 131, 4}},
	kernels.OpLayerNormForward:        {{1, 2}, {3, 8}, {5, 768}, {70, 129}},
	kernels.OpLayerNormBackwardInput:  {{1, 3}, {3, 8}, {5, 768}, {70, 129}},
	kernels.OpLayerNormBackwardWeight: {{1, 2}, {3, 8}, {5, 768}, {130, 33}},
	kernels.OpAttentionForward:        {{1, 1, 1, 1, 1}, {2, 16, 4, 4, 16}, {1, 49, 4, 2, 24}, {1, 200, 2, 1, 32}, {1, 100, 1, 1, 70}},
	kernels.OpAttentionBackward:       {{1, 1, 1, 1, 1}, {2, 16, 4, 4, 16}, {1, 49, 4, 2, 24}, {1, 200, 2, 1, 32}, {1, 100, 1, 1, 70}},
	kernels.OpGELUForward:             {{1}, {8}, {31}, {40000}},
	kernels.OpGELUBackward:            {{1}, {8}, {31}, {40000}},
	kernels.OpCrossEntropy:            {{1, 1}, {3, 8}, {40, 256}, {5, 5001}},
	kernels.OpAdamW:                   {{1}, {8}, {31}, {40000}},
	kernels.OpSumSquares:              {{1}, {9}, {100001}},
	kernels.OpAdd:                     {{1}, {9}, {40000}},
	kernels.OpScale:                   {{1}, {9}, {40000}},
	kernels.OpFill:                    {{1}, {9}, {40000}},
	kernels.OpCopy:                    {{1}, {9}, {40000}},
}

// maxDims bounds random dimensions by shape letter.
var maxDims = map[rune]int{'M': 70, 'N': 90, 'K': 150, 'C': 150, 'B': 3, 'T': 70, 'H': 4, 'D': 40, 'V': 200}

// fixedCases lists each fixed shape with every set of flags, with and without optional
// operands and in place where the op allows it.
func fixedCases(op kernels.Op) []Case {
	var cases []Case
	info := kernels.Info(op)
	for _, dims := range fixedShapes[op] {
		for flags := kernels.Flags(0); flags <= info.Flags; flags++ {
			if flags&^info.Flags != 0 {
				continue
			}
			c := newCase(op, dims...)
			c.Call.Flags = flags
			cases = append(cases, c)
			if optional := optionals(info); len(optional) > 0 {
				c.Without = optional
				cases = append(cases, c)
			}
		}
		if info.InPlace {
			c := newCase(op, dims...)
			c.InPlace = true
			cases = append(cases, c)
		}
	}
	return cases
}

func optionals(info kernels.OpInfo) []int {
	var ks []int
	for k, o := range info.Operands {
		if o.Optional {
			ks = append(ks, k)
		}
	}
	return ks
}

// randomCase draws dimensions, flags and absent operands.
func randomCase(rng *rand.Rand, op kernels.Op) Case {
	info := kernels.Info(op)
	c := newCase(op)
	c.Seed = rng.Uint64()
	for i, letter := range info.Dims {
		c.Call.Dims[i] = 1 + rng.IntN(maxDims[letter])
	}
	if info.Class == kernels.ClassAttention {
		c.Call.Dims[3] = 1 + rng.IntN(3) // K
		c.Call.Dims[2] = c.Call.Dims[3] * (1 + rng.IntN(3))
	}
	c.Call.Flags = kernels.Flags(rng.Uint32()) & info.Flags
	if optional := optionals(info); len(optional) > 0 && rng.IntN(2) == 0 {
		c.Without = optional
	}
	c.InPlace = info.InPlace && rng.IntN(3) == 0
	return c
}
