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

// Shared tells which output is the same view as which input; the zero value says none.
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

func (c Case) guard() int {
	if c.Aligned {
		return alignedGuard
	}
	return guard
}

// shares tells whether operand k is an output without memory of its own.
func (c Case) shares(k int) bool { return c.Shared != (Shared{}) && c.Shared.Out == k }

// gives tells whether operand k is an input whose memory an output shares.
func (c Case) gives(k int) bool { return c.Shared != (Shared{}) && c.Shared.In == k }

// trial is a case with its operands on a device.
type trial struct {
	c        Case
	call     kernels.Call
	operands []*operand // nil for absent ones
}

// newTrial allocates and fills the operands. Close it even after an error.
func newTrial(dev kernels.Device, q kernels.Queue, c Case) (*trial, error) {
	t := &trial{c: c, call: c.Call}
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
		if c.Large && o.Role == kernels.In {
			enlarge(args[k])
		}
		roundTo(o.DType, args[k])
		t.operands = append(t.operands, &operand{Operand: o, values: args[k], guard: c.guard()})
	}
	if prepare := references[c.Call.Op].prepare; prepare != nil {
		prepare(rng, c.Call, args)
	}
	for k, o := range t.operands {
		if o == nil || c.shares(k) {
			continue
		}
		if err := o.upload(dev, q); err != nil {
			return t, err
		}
		t.call.Args[k] = o.view
	}
	if c.Shared != (Shared{}) {
		t.share(t.operands[c.Shared.Out], t.operands[c.Shared.In])
	}
	return t, q.Sync()
}

func (t *trial) share(out, in *operand) {
	out.view, out.raw = in.view, in.raw
	t.call.Args[t.c.Shared.Out] = in.view
}

// fill gives inputs normal values; what is only written starts as NaN.
func fill(rng *rand.Rand, x []float64, o kernels.Operand, c kernels.Call) {
	written := o.Role == kernels.Scratch || o.Role == kernels.Out && c.Flags&kernels.Accumulate == 0
	for i := range x {
		x[i] = rng.NormFloat64()
		if written {
			x[i] = math.NaN()
		}
	}
}

// enlarge makes numbers large whose squares, a few of them together, are beyond F16.
func enlarge(x []float64) {
	for i := range x {
		x[i] *= 100
	}
}

func (t *trial) close() {
	for k, o := range t.operands {
		if o != nil && o.view.Present() && !t.c.shares(k) {
			o.view.Buf.Free()
		}
	}
}
