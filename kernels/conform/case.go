package conform

import (
	"fmt"
	"math"
	"math/rand/v2"

	"pnode/kernels"
)

// Case is one call to check. Args stay empty: the operands are made from the table.
type Case struct {
	Call    kernels.Call
	Seed    uint64
	Without []int // optional operands that are absent
	InPlace bool  // the output is the same view as the first input
}

func (c Case) String() string {
	s := c.Call.String()
	for _, k := range c.Without {
		s += " no-" + kernels.Info(c.Call.Op).Operands[k].Name
	}
	if c.InPlace {
		s += " in-place"
	}
	return s
}

func (c Case) without(k int) bool {
	for _, w := range c.Without {
		if w == k {
			return true
		}
	}
	return false
}

// guard is the number of elements around each operand that must keep their bits. It is
// odd so that operands do not start at aligned addresses.
const guard = 19

// guardBits is a NaN with a payload, as float or as a large integer.
const guardBits = 0x7fc12345

// operand is one operand on the device and in float64.
type operand struct {
	kernels.Operand
	view   kernels.View
	bits   []float32 // with guards, as written
	values []float64 // what the reference reads and writes
}

// trial is a case with its operands on a device.
type trial struct {
	c        Case
	call     kernels.Call
	operands []*operand // nil for absent ones
}

// newTrial allocates and fills the operands. Close it even after an error.
func newTrial(dev kernels.Device, q kernels.Queue, c Case) (*trial, error) {
	t := &trial{c: c, call: c.Call}
	ref := references[c.Call.Op]
	rng := rand.New(rand.NewPCG(c.Seed, uint64(c.Call.Op)))
	info := kernels.Info(c.Call.Op)
	args := make([][]float64, len(info.Operands))
	for k, o := range info.Operands {
		if c.without(k) {
			t.operands = append(t.operands, nil)
			continue
		}
		n := o.Count(c.Call)
		if o.Longer {
			n += 5
		}
		args[k] = make([]float64, n)
		fill(rng, args[k], o, c.Call)
		t.operands = append(t.operands, &operand{Operand: o, values: args[k]})
	}
	if ref.prepare != nil {
		ref.prepare(rng, c.Call, args)
	}
	for k, o := range t.operands {
		if o == nil {
			continue
		}
		if c.InPlace && k == 0 {
			continue // shares operand 1, set below
		}
		if err := o.upload(dev, q); err != nil {
			return t, err
		}
		t.call.Args[k] = o.view
	}
	if c.InPlace {
		t.operands[0].view, t.operands[0].bits = t.operands[1].view, t.operands[1].bits
		t.call.Args[0] = t.call.Args[1]
	}
	return t, q.Sync()
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

// upload rounds the values to the storage type, so that the reference starts from the
// very numbers the device has, and writes them between guards.
func (o *operand) upload(dev kernels.Device, q kernels.Queue) error {
	n := len(o.values)
	buf, err := dev.Alloc(o.DType, n+2*guard)
	if err != nil {
		return fmt.Errorf("operand %s: %w", o.Name, err)
	}
	o.view = kernels.Whole(buf).Slice(guard, n)
	o.bits = make([]float32, n+2*guard)
	for i := range o.bits {
		o.bits[i] = math.Float32frombits(guardBits)
	}
	for i, v := range o.values {
		if o.DType == kernels.I32 {
			o.bits[guard+i] = math.Float32frombits(uint32(int32(v)))
			continue
		}
		o.bits[guard+i] = float32(v)
		o.values[i] = float64(float32(v))
	}
	q.Write(kernels.Whole(buf), kernels.Float32Bytes(o.bits))
	return nil
}

func (t *trial) close() {
	for k, o := range t.operands {
		if o != nil && o.view.Present() && !(t.c.InPlace && k == 0) {
			o.view.Buf.Free()
		}
	}
}
