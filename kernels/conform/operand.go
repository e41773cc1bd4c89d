package conform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"pnode/kernels"
)

// Elements around each operand that must keep their bits: an odd number, so that operands do
// not start at aligned addresses, or one with which they do.
const (
	guard        = 19
	alignedGuard = 32
)

// guardBits is a NaN with a payload, as float or as a large integer.
const guardBits = 0x7fc17fc1

// operand is one operand on the device and in float64.
type operand struct {
	kernels.Operand
	view   kernels.View
	guard  int
	raw    []byte    // with guards, as written
	values []float64 // what the reference reads and writes
	// read is what the device has with guards, and results what it wrote, once compared.
	read    []byte
	results []float32
}

// put stores the bits of an element: all 32, or the high 16.
func (o *operand) put(i int, bits uint32) {
	if o.DType.Half() {
		binary.LittleEndian.PutUint16(o.raw[2*i:], uint16(bits>>16))
		return
	}
	binary.LittleEndian.PutUint32(o.raw[4*i:], bits)
}

// encode rounds the values to the storage type, so that the reference starts from the
// very numbers that devices get, and lays them between guards.
func (o *operand) encode() {
	n := len(o.values)
	o.raw = make([]byte, (n+2*o.guard)*o.DType.SizeBytes())
	for i := range n + 2*o.guard {
		o.put(i, guardBits)
	}
	for i, v := range o.values {
		if o.DType == kernels.I32 {
			o.put(o.guard+i, uint32(int32(v)))
			continue
		}
		stored := nearest(o.DType, float32(v))
		bits := math.Float32bits(stored)
		if o.DType.Half() {
			bits = uint32(HalfBits(o.DType, stored)) << 16
		}
		o.put(o.guard+i, bits)
		o.values[i] = float64(stored)
	}
}

// compare reads operand k of a call back and checks guards, inputs and results.
func (o *operand) compare(q kernels.Queue, c kernels.Call, k int) error {
	raw := make([]byte, len(o.raw))
	q.Read(raw, kernels.Whole(o.view.Buf))
	if err := q.Sync(); err != nil {
		return err
	}
	o.read = raw
	size, used := o.DType.SizeBytes(), o.Count(c)
	for i := range len(raw) / size {
		at := i - o.guard
		inside := at >= 0 && at < used
		if o.Role == kernels.Scratch && at >= 0 && at < len(o.values) || inside && o.Role != kernels.In {
			continue
		}
		if got, want := raw[i*size:(i+1)*size], o.raw[i*size:(i+1)*size]; !bytes.Equal(got, want) {
			return fmt.Errorf("element %d of %d, not an output, changed from %x to %x", at, used, want, got)
		}
	}
	if o.Role == kernels.In || o.Role == kernels.Scratch {
		return nil
	}
	if o.DType == kernels.I32 {
		return compareWords(raw[o.guard*size:(o.guard+used)*size], o.values[:used])
	}
	o.results = decoded(o.DType, raw[o.guard*size:(o.guard+used)*size])
	if references[c.Op].exact {
		return compareExact(o.results, o.values[:used])
	}
	if o.DType == kernels.F16 {
		for i, v := range o.values[:used] {
			o.values[i] = max(-kernels.MaxF16, min(kernels.MaxF16, v))
		}
	}
	return compareResults(o.results, o.values[:used], kernels.Info(c.Op).Tolerance(c, k))
}

// compareExact wants the very numbers, and NaN where that is wanted.
func compareExact(got []float32, want []float64) error {
	for i, w := range want {
		if g := float64(got[i]); g != w && !(g != g && w != w) {
			return fmt.Errorf("element %d of %d is %v, want %v", i, len(want), g, w)
		}
	}
	return nil
}

// compareWords wants whole numbers to be right to the bit.
func compareWords(raw []byte, want []float64) error {
	for i, w := range want {
		if got := int32(binary.LittleEndian.Uint32(raw[4*i:])); got != int32(w) {
			return fmt.Errorf("element %d of %d is %08x, want %08x", i, len(want), uint32(got), uint32(int32(w)))
		}
	}
	return nil
}

// decoded returns elements of a type.
func decoded(dtype kernels.DType, raw []byte) []float32 {
	x := make([]float32, len(raw)/dtype.SizeBytes())
	for i := range x {
		if dtype.Half() {
			x[i] = fromHalf(dtype, binary.LittleEndian.Uint16(raw[2*i:]))
			continue
		}
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

// compareResults allows each element an error of tolerance times its own magnitude plus
// the root mean square of all: sums that cancel are judged by what was added.
func compareResults(got []float32, want []float64, tolerance float64) error {
	squares := 0.0
	for _, w := range want {
		squares += w * w
	}
	rms := math.Sqrt(squares / float64(len(want)))
	for i, w := range want {
		bound := tolerance * (rms + math.Abs(w) + 1e-25)
		if diff := math.Abs(float64(got[i]) - w); !(diff <= bound) { // NaN is not <=
			return fmt.Errorf("element %d of %d is %v, want %v (difference %.3g, allowed %.3g)", i, len(want), got[i], w, diff, bound)
		}
	}
	return nil
}
