package model

import (
	"math"

	"pnode/kernels"
)

// rotary turns queries and keys by their positions (Su et al. 2021, section 3.4): channels
// i and i+D/2 of a head are one complex number, turned by position * frequency i, as in
// the Hugging Face checkpoints. The zero value turns nothing.
type rotary struct {
	cos, sin kernels.View // [T,D/2] of the whole stack
	shape    kernels.RoPEShape
}

// newRotary takes room for the tables of so many positions; ropeTables fills them.
func newRotary(m resolved, tables *arena, positions int) rotary {
	if m.Positions != RoPE {
		return rotary{}
	}
	n := positions * m.HeadDim / 2
	return rotary{
		cos: tables.take(n), sin: tables.take(n),
		shape: kernels.RoPEShape{T: positions, Heads: m.Heads + m.KVHeads, D: m.HeadDim, Width: m.qkvWidth()},
	}
}

// at is the embedding of a span.
func (r rotary) at(s span) rotary {
	if r.shape.D == 0 {
		return r
	}
	return r.from(s.position(r.shape.T))
}

// turn turns queries and keys of qkv [N,(H+2K)D] in place; the inverse turns their gradient back.
func (r rotary) turn(q issuer, qkv kernels.View, flags kernels.Flags) {
	if r.shape.D == 0 {
		return
	}
	r.shape.Rows = qkv.Len / r.shape.Width
	q.Do(kernels.RoPE(qkv, r.cos, r.sin, r.shape, flags))
}

// writeTables fills the tables of r, if it has any, for all positions.
func writeTables(d kernels.Device, m resolved, r rotary) error {
	if r.shape.D == 0 {
		return nil
	}
	cos, sin := m.ropeTables(r.shape.T)
	return writeOnce(d, func(q kernels.Queue) {
		q.Write(r.cos, kernels.Float32Bytes(cos))
		q.Write(r.sin, kernels.Float32Bytes(sin))
	})
}

// ropeTables are cosine and sine [positions,D/2] of position * frequency, computed in
// float64.
func (m resolved) ropeTables(positions int) (cos, sin []float32) {
	frequencies := make([]float64, m.HeadDim/2)
	for i := range frequencies { // theta^(-2i/D), scaled
		frequencies[i] = m.RoPEScaling.apply(math.Pow(m.RoPETheta, -2*float64(i)/float64(m.HeadDim)))
	}
	for t := range positions {
		for _, f := range frequencies {
			s, c := math.Sincos(float64(t) * f)
			cos, sin = append(cos, float32(c)), append(sin, float32(s))
		}
	}
	return cos, sin
}

// apply scales a frequency, with ScaleLlama3 by the rule of Llama 3.1 (Grattafiori et al. 2024; the
// reference code's apply_scaling): turns counts how often it goes round in the original context.
func (s RoPEScaling) apply(frequency float64) float64 {
	turns := float64(s.OriginalContext) * frequency / (2 * math.Pi)
	switch {
	case s.Kind == ScaleLinear, s.Kind == ScaleLlama3 && turns < s.LowFreqFactor:
		return frequency / s.Factor
	case s.Kind != ScaleLlama3, turns > s.HighFreqFactor:
		return frequency
	}
	keep := (turns - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	return (1-keep)*frequency/s.Factor + keep*frequency
}
