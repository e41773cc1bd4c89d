package conform

import (
	"bytes"
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
		err := o.compare(q, own.call, k)
		if d := references[own.call.Op].derived; err == nil && d != nil && d.operand == k {
			err = compareExact(o.results, d.round(own.call, own.operands[d.from].results)) // exact, given the results before it
		}
		if err != nil {
			return nil, fmt.Errorf("conform: %v: operand %s: %w", c, o.Name, err)
		}
		if o.Role != kernels.Scratch {
			raw[k] = o.read
		}
	}
	return raw, nil
}

// turn is one device at a trial: operands in memory of its own.
type turn struct {
	*trial
	call     kernels.Call
	operands []*operand // nil for absent ones
}

// on allocates and fills the operands on a device. Close the turn even after an error.
func (t *trial) on(dev kernels.Device, q kernels.Queue) (*turn, error) {
	own := &turn{trial: t, call: t.c.Call, operands: make([]*operand, len(t.operands))}
	for k, o := range t.operands {
		if o == nil {
			continue
		}
		mine := *o
		own.operands[k] = &mine
		if t.c.shares(k) {
			continue
		}
		buf, err := dev.Alloc(o.DType, len(o.values)+2*o.guard)
		if err != nil {
			return own, fmt.Errorf("operand %s: %w", o.Name, err)
		}
		mine.view = kernels.Whole(buf).Slice(o.guard, len(o.values))
		q.Write(kernels.Whole(buf), o.raw)
		own.call.Args[k] = mine.view
	}
	if s := t.c.Shared; s != (Shared{}) {
		out, in := own.operands[s.Out], own.operands[s.In]
		out.view, out.raw = in.view, in.raw
		own.call.Args[s.Out] = in.view
	}
	return own, q.Sync()
}

func (t *turn) close() {
	for k, o := range t.operands {
		if o != nil && o.view.Present() && !t.c.shares(k) {
			o.view.Buf.Free()
		}
	}
}

// repeat runs the case once more and wants the bytes of the first time.
func (t *trial) repeat(dev kernels.Device, q kernels.Queue, first [][]byte) error {
	second, err := t.results(dev, q)
	if err != nil {
		return fmt.Errorf("conform: %v: again: %w", t.c, err)
	}
	for k, o := range kernels.Info(t.c.Call.Op).Operands {
		if !bytes.Equal(first[k], second[k]) {
			return fmt.Errorf("conform: %v: operand %s has other bits the second time", t.c, o.Name)
		}
	}
	return nil
}

// results runs the case and gives the bytes of its operands, nil for scratch, for absent ones and
// for those whose memory is an output's.
func (t *trial) results(dev kernels.Device, q kernels.Queue) ([][]byte, error) {
	own, err := t.on(dev, q)
	defer own.close()
	if err != nil {
		return nil, err
	}
	q.Do(own.call)
	raw := make([][]byte, len(own.operands))
	for k, o := range own.operands {
		if o == nil || o.Role == kernels.Scratch || t.c.gives(k) {
			continue
		}
		raw[k] = make([]byte, len(o.raw))
		q.Read(raw[k], kernels.Whole(o.view.Buf))
	}
	return raw, q.Sync()
}
