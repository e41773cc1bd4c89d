package conform

import (
	"fmt"

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
	references[c.Call.Op].compute(t.call, args)
	for k, o := range t.operands {
		if o == nil || c.gives(k) {
			continue
		}
		if err := t.compare(q, k); err != nil {
			return fmt.Errorf("conform: %v: operand %s: %w", c, o.Name, err)
		}
	}
	return nil
}

// compare checks operand k, and what is derived from the results before it to the bit.
func (t *trial) compare(q kernels.Queue, k int) error {
	o := t.operands[k]
	if err := o.compare(q, t.call, k); err != nil {
		return err
	}
	d := references[t.call.Op].derived
	if d == nil || d.operand != k {
		return nil
	}
	return compareExact(o.results, d.round(t.call, t.operands[d.from].results))
}
