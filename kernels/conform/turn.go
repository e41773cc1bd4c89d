package conform

import "pnode/kernels"

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
		if err := mine.upload(dev, q); err != nil {
			return own, err
		}
		own.call.Args[k] = mine.view
	}
	if t.c.Shared != (Shared{}) {
		own.share(own.operands[t.c.Shared.Out], own.operands[t.c.Shared.In])
	}
	return own, q.Sync()
}

func (t *turn) share(out, in *operand) {
	out.view, out.raw = in.view, in.raw
	t.call.Args[t.c.Shared.Out] = in.view
}

func (t *turn) close() {
	for k, o := range t.operands {
		if o != nil && o.view.Present() && !t.c.shares(k) {
			o.view.Buf.Free()
		}
	}
}
