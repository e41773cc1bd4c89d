package model

import (
	"fmt"
	"math"
	"strings"
)

// initStd is GPT-2's standard deviation of matrices (Radford et al. 2019, section 2.3).
const initStd = 0.02

// InitLayer fills dst [LayerLen(layer)] with the layer's initial parameters: matrices
// normal with deviation 0.02, divided by sqrt(2L) for the two projections that write to
// the residual stream; weights of norms 1; biases 0. Adapters change nothing at first: A is
// normal, B zero.
//
// Each element is a function of (seed, layer, tensor, element) alone, so any node can
// make any layer, and the tied copy equals wte. The normal deviate is the sum of twelve
// 16-bit uniform integers less their mean (Irwin-Hall; variance 2^32-1, range +-6
// deviations): the sum is exact and the one float64 product that follows cannot be
// fused, so every architecture gets the same bits.
func (c Config) InitLayer(layer int, seed uint64, dst []float32) {
	if len(dst) != c.LayerLen(layer) {
		panic(fmt.Sprintf("model: layer %d has %d elements, got room for %d", layer, c.LayerLen(layer), len(dst)))
	}
	c.InitRange(layer, seed, 0, dst)
}

// InitRange fills dst with elements [first, first+len(dst)) of what InitLayer gives.
func (c Config) InitRange(layer int, seed uint64, first int, dst []float32) {
	for i, t := range c.LayerTensors(layer) {
		from, end := max(t.Off, first), min(t.Off+t.Len(), first+len(dst))
		if from >= end {
			continue
		}
		part := dst[from-first : end-first]
		switch {
		case strings.HasSuffix(t.Name, loraB):
			clear(part)
		case t.Decay:
			std := initStd
			switch {
			case strings.HasSuffix(t.Name, loraA):
				std = 1 / math.Sqrt(float64(3*t.Shape[1])) // as of PEFT's uniform ones, which reach 1/sqrt(in)
			case t.Residual:
				std /= math.Sqrt(float64(2 * c.Blocks))
			}
			stream, tensor := layer, i
			if layer == c.Layers()-1 && c.Tied() {
				stream, tensor = 0, 0 // the tied copy shares wte's
			}
			key := mix(mix(mix(seed+golden)+uint64(stream)+golden) + uint64(tensor) + golden)
			fillNormal(part, from-t.Off, key, std)
		case strings.HasSuffix(t.Name, ".weight"): // a norm's
			for j := range part {
				part[j] = 1
			}
		default:
			clear(part)
		}
	}
}

// fillNormal fills dst with a key's normal deviates from element first on.
func fillNormal(dst []float32, first int, key uint64, std float64) {
	const lanes, laneMax = 12, 1<<16 - 1
	unit := std / (1 << 16) // exact: a power of two
	for i := range dst {
		sum := int64(-lanes * laneMax / 2)
		for j := range uint64(lanes / 4) {
			bits := mix(key + (uint64(first+i)*(lanes/4)+j+1)*golden)
			sum += int64(bits&laneMax + bits>>16&laneMax + bits>>32&laneMax + bits>>48)
		}
		dst[i] = float32(float64(sum) * unit)
	}
}

// golden is SplitMix64's increment, 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// mix is SplitMix64's output function (Steele, Lea and Flood 2014): a bijection whose
// value at key + n*golden is the stream's element n.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
