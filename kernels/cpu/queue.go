package cpu

import (
	"fmt"
	"time"

	"pnode/kernels"
)

// queue executes at once: when Do returns, the call is done or has failed.
type queue struct {
	dev *Device
	err error
}

func (q *queue) Do(c kernels.Call) {
	if q.err == nil {
		q.err = q.dev.run(c)
	}
}

func (q *queue) Write(dst kernels.View, src []byte) {
	if mem := q.hostView("write", dst, len(src)); mem != nil {
		copy(mem, src)
	}
}

func (q *queue) Read(dst []byte, src kernels.View) {
	if mem := q.hostView("read", src, len(dst)); mem != nil {
		copy(dst, mem)
	}
}

// hostView is the memory of v as bytes, or nil after setting the sticky error.
func (q *queue) hostView(what string, v kernels.View, bytes int) []byte {
	if q.err != nil {
		return nil
	}
	if q.err = v.CheckTransfer(bytes); q.err == nil {
		q.err = q.dev.owns(v)
	}
	if q.err != nil {
		q.err = fmt.Errorf("cpu: %s: %w", what, q.err)
		return nil
	}
	return hostBytes(v)
}

// Record gives an event that has come.
func (q *queue) Record() kernels.Event { return kernels.Passed{Err: q.err, At: time.Now()} }

func (q *queue) Wait(e kernels.Event) {
	if q.err == nil {
		q.err = e.Sync()
	}
}

func (q *queue) Sync() error  { return q.err }
func (q *queue) Close() error { return q.err }

// run checks and executes one call.
func (d *Device) run(c kernels.Call) error {
	if err := d.Supports(c); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pool == nil {
		return errClosed
	}
	if err := d.execute(c); err != nil {
		return fmt.Errorf("cpu: %v: %w", c, err)
	}
	return nil
}

func (d *Device) execute(c kernels.Call) error {
	switch c.Op {
	case kernels.OpMatMul:
		return d.matMul(c)
	case kernels.OpColumnSum:
		return d.columnSum(c)
	case kernels.OpEmbedForward:
		return d.embedForward(c)
	case kernels.OpEmbedBackward:
		return d.embedBackward(c)
	case kernels.OpAttentionForward:
		return d.attentionForward(c, newHeads(c))
	case kernels.OpAttentionBackward:
		return d.attentionBackward(c, newHeads(c))
	case kernels.OpAttentionForwardPart:
		return d.attentionForward(c, partOf(c))
	case kernels.OpAttentionBackwardPart:
		return d.attentionBackward(c, partOf(c))
	case kernels.OpAttentionCached:
		return d.attentionCached(c)
	case kernels.OpCrossEntropy:
		return d.crossEntropy(c)
	case kernels.OpLayerNormForward, kernels.OpAddLayerNormForward, kernels.OpRMSNormForward, kernels.OpAddRMSNormForward:
		return d.normForward(c)
	case kernels.OpLayerNormBackwardInput, kernels.OpRMSNormBackwardInput:
		return d.normBackwardInput(c)
	case kernels.OpLayerNormBackwardWeight, kernels.OpRMSNormBackwardWeight:
		return d.normBackwardWeight(c)
	case kernels.OpSumSquares:
		return d.sumSquares(c)
	case kernels.OpDropout:
		return d.dropout(c)
	case kernels.OpAdamW:
		return d.adamW(c)
	case kernels.OpCast:
		return d.cast(c)
	default:
		return d.executeRows(c)
	}
}

// executeRows runs the ops that need no memory of their own and cannot fail.
func (d *Device) executeRows(c kernels.Call) error {
	var x [3][]float32
	for k := range x {
		x[k] = floats(c.Args[k])
	}
	n := len(x[0])
	switch c.Op {
	case kernels.OpRoPE:
		d.rope(c)
	case kernels.OpGELUForward:
		d.ranges(n, func(from, to int) { d.v.gelu(x[0][from:to], x[1][from:to]) })
	case kernels.OpGELUBackward:
		d.ranges(n, func(from, to int) { d.v.geluGrad(x[0][from:to], x[1][from:to], x[2][from:to]) })
	case kernels.OpSwiGLUForward:
		d.swigluForward(c)
	case kernels.OpSwiGLUBackward:
		d.swigluBackward(c)
	case kernels.OpAdd:
		d.ranges(n, func(from, to int) { d.v.add(x[0][from:to], x[1][from:to], x[2][from:to]) })
	case kernels.OpScale:
		d.ranges(n, func(from, to int) { d.v.scale(x[0][from:to], c.Scalars[0]) })
	case kernels.OpFill:
		d.fill(c)
	case kernels.OpCopy:
		d.copy(c)
	case kernels.OpQuantize:
		d.quantize(c)
	case kernels.OpDequantize:
		d.dequantize(c)
	default:
		return kernels.ErrUnsupported
	}
	return nil
}
