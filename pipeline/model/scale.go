package model

import (
	"math"
	"math/bits"

	"pnode/kernels"
)

// Loss scaling (Micikevicius et al. 2018, section 3.2, with a constant): F16 has no numbers between 0
// and 6e-8, and the gradient of the mean loss of a step by one token's logits is at most 1 by the
// number of tokens. So within a stack with F16 storage gradients are a power of two times what they
// are. Powers of two change no digit of float32, and nobody else has to know: what enters the stack
// is multiplied, what leaves it is divided, and so are the parameters' gradients, once a step, before
// anything is done with them (Unscale). No scale is found by trial, as others do: a number too large
// is clipped by itself (kernels.F16), so that no step is lost and there is no state to agree on.
// Nobody counts those.

// scaleRoom is by how many powers of two the gradient by a token's logits may be above 1 in a stack.
// F16 goes to 2^16: the rest is for what weights and norms make larger than that.
const scaleRoom = 10

// maxScaleBits bounds StackConfig.ScaleBits: float32 has as much again above it, and below.
const maxScaleBits = 64

// LossScaleBits is the ScaleBits of a run whose steps have so many tokens.
func LossScaleBits(tokens int) int { return bits.Len(uint(max(tokens, 1)-1)) + scaleRoom }

// scale returns the factor of gradients within the stack.
func (c StackConfig) scale() float32 {
	if c.Storage != StorageF16 {
		return 1
	}
	return float32(math.Ldexp(1, c.ScaleBits))
}

// rescale multiplies a segment's rows of a boundary's gradient: of OutputGrad when it has come, of
// InputGrad when it is computed. Where there is no boundary it does nothing.
func (s *Slot) rescale(q issuer, dx kernels.View, p stretch, by float32) {
	if by == 1 || dx.Len == 0 {
		return
	}
	p.each(func(rows span) {
		v := rows.of(dx)
		q.Do(kernels.Scale(v, v.Len, by))
	})
}
