package conform

import (
	"math/rand/v2"

	"pnode/kernels"
)

// adamScalars has the scalars of update 3 with usual settings.
var adamScalars = [8]float32{1e-2, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, 0.5}

// scalars gives an op's scalars for a case.
func scalars(op kernels.Op) [8]float32 {
	switch op {
	case kernels.OpAdamW:
		return adamScalars
	case kernels.OpLayerNormForward, kernels.OpAddLayerNormForward, kernels.OpRMSNormForward, kernels.OpAddRMSNormForward:
		return [8]float32{defaultEps}
	case kernels.OpDropout:
		return [8]float32{0.3}
	case kernels.OpCombine:
		return [8]float32{-0.75, 1.5, 0.5}
	default:
		return [8]float32{-0.75}
	}
}

func newCase(op kernels.Op, dims ...int) Case {
	c := Case{Call: kernels.Call{Op: op, Scalars: scalars(op), Random: kernels.Random{Key: 0x123456789abcdef0, Stream: 77 << 30}}, Seed: 1}
	copy(c.Call.Dims[:], dims)
	return c
}

// Shapes that several ops share.
var (
	vectorShapes    = [][]int{{1}, {8}, {31}, {40000}}
	normShapes      = [][]int{{1, 3}, {3, 8}, {5, 768}, {70, 129}, {130, 33}}
	attentionShapes = [][]int{{1, 1, 1, 1, 1}, {2, 16, 4, 4, 16}, {1, 49, 4, 2, 24}, {1, 200, 2, 1, 32}, {1, 100, 1, 1, 70}, {1, 430, 1, 1, 17}}
	partShapes      = [][]int{{1, 1, 1, 1, 1, 0, 1}, {2, 49, 4, 2, 24, 16, 32}, {1, 430, 2, 1, 17, 0, 300}, {2, 430, 1, 1, 20, 200, 230}, {1, 600, 1, 1, 9, 256, 256}}
	gateShapes      = [][]int{{1, 1}, {3, 8}, {5, 67}, {9, 3000}}
	randomShapes    = [][]int{{1, 0}, {8, 3}, {31, 6}, {40000, 4098}}
)

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
		{150, 40, 45},
	},
	kernels.OpColumnSum:               {{1, 1}, {64, 16}, {65, 17}, {300, 100}},
	kernels.OpEmbedForward:            {{1, 1, 1, 1}, {3, 5, 64, 7}, {2, 9, 67, 300}},
	kernels.OpEmbedBackward:           {{1, 1, 1, 1}, {3, 5, 64, 7}, {2, 9, 131, 4}},
	kernels.OpLayerNormForward:        normShapes,
	kernels.OpAddLayerNormForward:     normShapes,
	kernels.OpLayerNormBackwardInput:  normShapes,
	kernels.OpLayerNormBackwardWeight: normShapes,
	kernels.OpRMSNormForward:          normShapes,
	kernels.OpAddRMSNormForward:       normShapes,
	kernels.OpRMSNormBackwardInput:    normShapes,
	kernels.OpRMSNormBackwardWeight:   normShapes,
	kernels.OpRoPE:                    {{1, 1, 1, 2, 2, 0}, {6, 3, 2, 16, 40, 0}, {5, 4, 3, 22, 66, 7}, {300, 100, 4, 64, 512, 1}},
	kernels.OpAttentionForward:        attentionShapes,
	kernels.OpAttentionBackward:       attentionShapes,
	kernels.OpAttentionForwardPart:    partShapes,
	kernels.OpAttentionBackwardPart:   partShapes,
	kernels.OpAttentionCached:         {{1, 1, 1, 1, 1, 0, 1}, {2, 1, 4, 2, 16, 5, 9}, {1, 1, 3, 1, 64, 250, 300}, {2, 60, 4, 2, 24, 0, 70}, {1, 7, 2, 2, 33, 111, 118}, {1, 210, 2, 1, 9, 250, 470}, {2, 2, 4, 2, 43, 600, 610}},
	kernels.OpGELUForward:             vectorShapes,
	kernels.OpGELUBackward:            vectorShapes,
	kernels.OpSwiGLUForward:           gateShapes,
	kernels.OpSwiGLUBackward:          gateShapes,
	kernels.OpDropout:                 randomShapes,
	kernels.OpCrossEntropy:            {{1, 1}, {3, 8}, {40, 256}, {5, 5001}},
	kernels.OpAdamW:                   randomShapes,
	kernels.OpSumSquares:              {{1}, {9}, {100001}},
	kernels.OpAdd:                     vectorShapes,
	kernels.OpScale:                   vectorShapes,
	kernels.OpCombine:                 {{1, 0}, {1, 2}, {9, 4}, {7, 1}, {100001, 0}, {40000, 201}},
	kernels.OpFill:                    vectorShapes,
	kernels.OpCopy:                    vectorShapes,
	kernels.OpCast:                    randomShapes,
	kernels.OpQuantize:                {{1, 0}, {8, 1}, {127, 0}, {128, 2}, {129, 10}, {40001, 1 << 33}},
	kernels.OpDequantize:              {{1}, {8}, {127}, {128}, {129}, {40001}},
	kernels.OpMatMulInt8:              {{1, 1, 1}, {1, 33, 64}, {3, 32, 70}, {4, 95, 129}, {8, 64, 40}, {16, 100, 1000}, {17, 70, 800}, {150, 40, 200}},
	kernels.OpEmbedInt8:               {{1, 1, 1, 1}, {3, 5, 64, 7}, {2, 9, 67, 300}},
}

// maxDims bounds random dimensions by shape letter.
var maxDims = map[rune]int{'M': 70, 'N': 90, 'K': 150, 'C': 150, 'B': 3, 'T': 70, 'H': 4, 'D': 40, 'V': 200, 'F': 150, 'W': 1, 'p': 70, 'q': 70}

// maxAttention bounds B*H*T*T*D of a random attention that has several sequences or heads.
const maxAttention = 2 << 20

// fixedCases lists each fixed shape with every set of flags, with and without optional
// operands, with every output in place of every input that allows it, and with each set
// of storage types.
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
		c := newCase(op, dims...)
		for _, shared := range sharings(c.Call) {
			c.Shared = shared
			cases = append(cases, c)
		}
		c.Shared = Shared{}
		cases = append(cases, stored(c)...)
	}
	cases = append(cases, halvedCases(op)...)
	if op == kernels.OpMatMul {
		c := newCase(op, 37, 141, 70)
		c.Halved, c.F16, c.Large = []int{0, 1, 2}, true, true
		cases = append(cases, c)
	}
	return cases
}

// halvedShapes are of more than one tile on matrix units, or of all sizes where a flag says how to
// round. Every other one, from the first on, is at aligned addresses, those on matrix units in
// blocks of eight elements, where backends take other ways.
var halvedShapes = map[kernels.Op][][]int{
	kernels.OpCast:                  randomShapes,
	kernels.OpMatMul:                {{136, 144, 72}, {131, 141, 77}},
	kernels.OpAttentionForward:      halvedAttention,
	kernels.OpAttentionBackward:     halvedAttention,
	kernels.OpAttentionForwardPart:  halvedParts,
	kernels.OpAttentionBackwardPart: halvedParts,
}

// Attentions with heads of all sizes that there are kernels for.
var (
	halvedAttention = [][]int{{1, 200, 1, 1, 32}, {1, 135, 1, 1, 99}, {2, 131, 2, 1, 64}, {1, 77, 4, 2, 80}, {1, 150, 1, 1, 128}, {1, 140, 1, 1, 256}}
	halvedParts     = [][]int{{1, 300, 2, 1, 64, 130, 140}, {1, 150, 2, 2, 33, 128, 22}, {1, 131, 1, 1, 128, 0, 70}}
)

// halvedCases returns the cases of halvedShapes with operands that are halves in every form.
func halvedCases(op kernels.Op) (cases []Case) {
	for i, dims := range halvedShapes[op] {
		for flags := range kernels.Info(op).Flags + 1 {
			if flags&^kernels.Info(op).Flags != 0 {
				continue
			}
			c := newCase(op, dims...)
			c.Call.Flags, c.Aligned = flags, i%2 == 0
			cases = append(cases, stored(c)...)
		}
	}
	return cases
}

// stored are a case with each set of operands stored as each half.
func stored(c Case) (cases []Case) {
	for _, c.F16 = range []bool{false, true} {
		if c.F16 && c.Call.Flags&kernels.Stochastic != 0 {
			break // there is no such call
		}
		for _, c.Halved = range storages(c.Call.Op) {
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

// sharings lists which outputs may be the same view as which inputs.
func sharings(c kernels.Call) []Shared {
	var list []Shared
	info := kernels.Info(c.Op)
	for k, o := range info.Operands {
		for j, p := range info.Operands {
			if o.Role == kernels.Out && p.Yields && o.Count(c) == p.Count(c) {
				list = append(list, Shared{Out: k, In: j})
			}
		}
	}
	return list
}

// storages lists the sets of operands that are stored as halves.
func storages(op kernels.Op) [][]int {
	switch op {
	case kernels.OpMatMul:
		return [][]int{{0}, {1, 2}, {0, 1, 2}}
	case kernels.OpAttentionForward, kernels.OpAttentionForwardPart:
		return [][]int{{0, 2}}
	case kernels.OpAttentionBackward:
		return [][]int{{0}, {2, 3, 4}, {0, 2, 3, 4}}
	case kernels.OpAttentionBackwardPart:
		return [][]int{{2, 3, 4}}
	case kernels.OpEmbedForward:
		return [][]int{{2}}
	case kernels.OpCast:
		return [][]int{{0}, {1}, {0, 1}}
	case kernels.OpAdamW:
		return [][]int{{3}}
	default:
		return nil
	}
}

// randomCase draws dimensions, flags, absent operands and storage types.
func randomCase(rng *rand.Rand, op kernels.Op) Case {
	info := kernels.Info(op)
	c := newCase(op)
	c.Seed = rng.Uint64()
	c.Call.Random = kernels.Random{Key: rng.Uint64(), Stream: rng.Uint64()}
	for i, letter := range info.Dims {
		c.Call.Dims[i] = 1 + rng.IntN(maxDims[letter])
	}
	fitDims(rng, &c.Call)
	c.Call.Flags = kernels.Flags(rng.Uint32()) & info.Flags
	if optional := optionals(info); len(optional) > 0 && rng.IntN(2) == 0 {
		c.Without = optional
	} else if list := sharings(c.Call); len(list) > 0 && rng.IntN(3) == 0 {
		c.Shared = list[rng.IntN(len(list))]
	}
	if list := storages(op); len(list) > 0 && rng.IntN(2) == 0 {
		c.Halved, c.Aligned = list[rng.IntN(len(list))], rng.IntN(2) == 0
		c.F16 = rng.IntN(2) == 0 && c.Call.Flags&kernels.Stochastic == 0
	}
	return c
}

// fitDims makes dimensions that depend on each other agree.
func fitDims(rng *rand.Rand, c *kernels.Call) {
	d := &c.Dims
	switch {
	case c.Op == kernels.OpQuantize, c.Op == kernels.OpDequantize:
		d[0] = 20*d[0] + rng.IntN(20)
	case c.Op == kernels.OpRoPE:
		d[3] += d[3] % 2
		d[4] = d[2]*d[3] + rng.IntN(30)
	case kernels.Info(c.Op).Class == kernels.ClassAttention:
		d[3] = 1 + rng.IntN(3) // K
		d[2] = d[3] * (1 + rng.IntN(3))
		if rng.IntN(3) == 0 {
			d[4] = 8 * (4 + rng.IntN(29)) // as models have them
		}
		switch c.Op {
		case kernels.OpAttentionCached:
			d[6] = d[5] + d[1] + rng.IntN(5)
		case kernels.OpAttentionForwardPart, kernels.OpAttentionBackwardPart:
			d[1] = d[5] + d[6] + rng.IntN(5)
		}
		for d[0]*d[2]*d[1]*d[1]*d[4] > maxAttention && d[0]*d[2] > 1 {
			switch {
			case d[0] > 1:
				d[0]--
			case d[3] > 1:
				d[2], d[3] = d[2]/d[3]*(d[3]-1), d[3]-1
			default:
				d[2]--
			}
		}
	}
}
