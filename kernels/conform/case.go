package conform

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"pnode/kernels"
)

// Case is one call to check. Args stay empty: the operands are made from the table.
type Case struct {
	Call    kernels.Call
	Seed    uint64
	Without []int // optional operands that are absent
	Halved  []int // operands that are stored as a half
	F16     bool  // that is F16, not BF16
	Shared  Shared
	Aligned bool // operands start at addresses with many zeros
	Large   bool // what is read is large: sums of its products are beyond F16
}

// Shared says which output is the same view as which input; the zero value says none.
type Shared struct{ Out, In int }

func (c Case) String() string {
	s := c.Call.String()
	operands := kernels.Info(c.Call.Op).Operands
	for _, k := range c.Without {
		s += " no-" + operands[k].Name
	}
	for _, k := range c.Halved {
		s += fmt.Sprintf(" %v-%s", c.half(), operands[k].Name)
	}
	if c.Shared != (Shared{}) {
		s += fmt.Sprintf(" %s-in-%s", operands[c.Shared.Out].Name, operands[c.Shared.In].Name)
	}
	if c.Aligned {
		s += " aligned"
	}
	if c.Large {
		s += " large"
	}
	return s
}

// half is the type of Halved operands.
func (c Case) half() kernels.DType {
	if c.F16 {
		return kernels.F16
	}
	return kernels.BF16
}

// shares reports whether operand k is an output without memory of its own.
func (c Case) shares(k int) bool { return c.Shared != (Shared{}) && c.Shared.Out == k }

// gives reports whether operand k is an input whose memory an output shares.
func (c Case) gives(k int) bool { return c.Shared != (Shared{}) && c.Shared.In == k }

// trial is a case with its operands drawn, and from the first turn on with what must come of them:
// both are the same for all devices.
type trial struct {
	c        Case
	operands []*operand // nil for absent ones
	solved   bool
}

func newTrial(c Case) *trial {
	t := &trial{c: c}
	rng := rand.New(rand.NewPCG(c.Seed, uint64(c.Call.Op)))
	args := make([][]float64, len(kernels.Info(c.Call.Op).Operands))
	for k, o := range kernels.Info(c.Call.Op).Operands {
		if slices.Contains(c.Without, k) {
			t.operands = append(t.operands, nil)
			continue
		}
		if slices.Contains(c.Halved, k) {
			o.DType = c.half()
		}
		n := o.Count(c.Call)
		if o.Longer {
			n += 5
		}
		args[k] = make([]float64, n)
		fill(rng, args[k], o, c.Call)
		if c.Large && o.Role == kernels.In { // squares, a few of them together, are beyond F16
			for i := range args[k] {
				args[k][i] *= 100
			}
		}
		roundTo(o.DType, args[k])
		around := guard
		if c.Aligned {
			around = alignedGuard
		}
		t.operands = append(t.operands, &operand{Operand: o, values: args[k], guard: around})
	}
	if prepare := references[c.Call.Op].prepare; prepare != nil {
		prepare(rng, c.Call, args)
	}
	for k, o := range t.operands {
		if o != nil && !c.shares(k) {
			o.encode()
		}
	}
	return t
}

// solve has the reference write what must come of the operands. The call is a device's: its views say
// how operands are stored.
func (t *trial) solve(call kernels.Call) {
	if t.solved {
		return
	}
	args := make([][]float64, len(t.operands))
	for k, o := range t.operands {
		if o != nil {
			args[k] = o.values
		}
	}
	references[call.Op].compute(call, args)
	t.solved = true
}

// fill gives inputs normal values; what is only written starts as NaN.
//
//go:norace
func fill(rng *rand.Rand, x []float64, o kernels.Operand, c kernels.Call) {
	written := o.Role == kernels.Scratch || o.Role == kernels.Out && c.Flags&kernels.Accumulate == 0
	for i := range x {
		x[i] = rng.NormFloat64()
		if written {
			x[i] = math.NaN()
		}
	}
}
