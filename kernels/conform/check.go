package conform

import (
	"fmt"
	"math"

	"pnode/kernels"
)

// Check runs one case on dev and compares it with the reference. The error names the
// case, the operand and the first element that is wrong.
func Check(dev kernels.Device, q kernels.Queue, c Case) error {
	t, err := newTrial(dev, q, c)
	defer t.close()
	if err != nil {
		return fmt.Errorf("conform: %v: set up: %w", c, err)
	}
	if err := dev.Supports(t.call); err != nil {
		return fmt.Errorf("conform: %v: %w", c, err)
	}
	q.Do(t.call)
	if err := q.Sync(); err != nil {
		return fmt.Errorf("conform: %v: %w", c, err)
	}
	args := make([][]float64, len(t.operands))
	for k, o := range t.operands {
		if o != nil {
			args[k] = o.values
		}
	}
	references[c.Call.Op].compute(c.Call, args)
	for k, o := range t.operands {
		if o == nil || c.InPlace && k == 1 {
			continue
		}
		if err := o.compare(q, kernels.Info(c.Call.Op), c.Call); err != nil {
			return fmt.Errorf("conform: %v: operand %s: %w", c, o.Name, err)
		}
	}
	return nil
}

// compare reads the operand back and checks guards, inputs and results.
func (o *operand) compare(q kernels.Queue, info kernels.OpInfo, c kernels.Call) error {
	got := make([]float32, len(o.bits))
	q.Read(kernels.Float32Bytes(got), kernels.Whole(o.view.Buf))
	if err := q.Sync(); err != nil {
		return err
	}
	used := o.Count(c)
	for i, v := range got {
		at := i - guard
		inside := at >= 0 && at < used
		if o.Role == kernels.Scratch && at >= 0 && at < len(o.values) || inside && o.Role != kernels.In {
			continue
		}
		if math.Float32bits(v) != math.Float32bits(o.bits[i]) {
			return fmt.Errorf("element %d of %d, not an output, changed from %v to %v", at, used, o.bits[i], v)
		}
	}
	if o.Role == kernels.In || o.Role == kernels.Scratch {
		return nil
	}
	return compareResults(got[guard:guard+used], o.values[:used], info.Tolerance(o.DType))
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
		bound := tolerance * (rms + math.Abs(w))
		if diff := math.Abs(float64(got[i]) - w); !(diff <= bound) { // NaN is not <=
			return fmt.Errorf("element %d of %d is %v, want %v (difference %.3g, allowed %.3g)", i, len(want), got[i], w, diff, bound)
		}
	}
	return nil
}
