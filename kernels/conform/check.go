package conform

import (
	"fmt"

	"pnode/kernels"
)

// Check runs one case on dev and compares it with the reference. The error names the
// case, the operand and the first element that is wrong.
func Check(dev kernels.Device, q kernels.Queue, c Case) error {
	_, err := newTrial(c).check(dev, q)
	return err
}

// check also gives the bytes of what was compared, as results does.
func (t *trial) check(dev kernels.Device, q kernels.Queue) ([][]byte, error) {
	c := t.c
	own, err := t.on(dev, q)
	defer own.close()
	if err != nil {
		return nil, fmt.Errorf("conform: %v: set up: %w", c, err)
	}
	if err := dev.Supports(own.call); err != nil {
		return nil, fmt.Errorf("conform: %v: %w", c, err)
	}
	q.Do(own.call)
	if err := q.Sync(); err != nil {
		return nil, fmt.Errorf("conform: %v: %w", c, err)
	}
	t.solve(own.call)
	raw := make([][]byte, len(own.operands))
	for k, o := range own.operands {
		if o == nil || c.gives(k) {
			continue
		}
		if err := own.compare(q, k); err != nil {
			return nil, fmt.Errorf("conform: %v: operand %s: %w", c, o.Name, err)
		}
		if o.Role != kernels.Scratch {
			raw[k] = o.read
		}
	}
	return raw, nil
}

// compare checks operand k, and what is derived from the results before it to the bit.
func (t *turn) compare(q kernels.Queue, k int) error {
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
