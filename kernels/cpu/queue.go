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
	q.used()
	if q.err == nil {
		q.err = q.dev.run(c)
	}
}

func (q *queue) Write(dst kernels.View, src []byte) {
	if mem := q.hostView("write", dst, len(src)); mem != nil {
		reads(src)
		copy(mem, src)
	}
}

func (q *queue) Read(dst []byte, src kernels.View) {
	if mem := q.hostView("read", src, len(dst)); mem != nil {
		writes(dst)
		copy(dst, mem)
	}
}

// hostView is the memory of v as bytes, or nil after setting the sticky error.
func (q *queue) hostView(what string, v kernels.View, bytes int) []byte {
	q.used()
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

func (q *queue) Sync() error {
	q.used()
	return q.err
}

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
	operation, ok := operations[c.Op]
	if !ok {
		operation = (*Device).executeRows
	}
	if err := operation(d, c); err != nil {
		return fmt.Errorf("cpu: %v: %w", c, err)
	}
	return nil
}

// operations need memory of their own, or may fail.
var operations = map[kernels.Op]func(d *Device, c kernels.Call) error{
	kernels.OpMatMul:                  (*Device).matMul,
	kernels.OpColumnSum:               (*Device).columnSum,
	kernels.OpEmbedForward:            (*Device).embedForward,
	kernels.OpEmbedBackward:           (*Device).embedBackward,
	kernels.OpLayerNormForward:        (*Device).normForward,
	kernels.OpAddLayerNormForward:     (*Device).normForward,
	kernels.OpRMSNormForward:          (*Device).normForward,
	kernels.OpAddRMSNormForward:       (*Device).normForward,
	kernels.OpLayerNormBackwardInput:  (*Device).normBackwardInput,
	kernels.OpRMSNormBackwardInput:    (*Device).normBackwardInput,
	kernels.OpLayerNormBackwardWeight: (*Device).normBackwardWeight,
	kernels.OpRMSNormBackwardWeight:   (*Device).normBackwardWeight,
	kernels.OpAttentionForward:        (*Device).attentionForward,
	kernels.OpAttentionForwardPart:    (*Device).attentionForward,
	kernels.OpAttentionBackward:       (*Device).attentionBackward,
	kernels.OpAttentionBackwardPart:   (*Device).attentionBackward,
	kernels.OpAttentionCached:         (*Device).attentionCached,
	kernels.OpCrossEntropy:            (*Device).crossEntropy,
	kernels.OpSumSquares:              (*Device).sumSquares,
	kernels.OpDropout:                 (*Device).dropout,
	kernels.OpAdamW:                   (*Device).adamW,
	kernels.OpCast:                    (*Device).cast,
	kernels.OpMatMulInt8:              (*Device).matMulInt8,
	kernels.OpEmbedInt8:               (*Device).embedInt8,
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
	case kernels.OpCombine:
		d.ranges(n, func(from, to int) {
			d.v.combine(x[0][from:to], x[1][from:to], x[2][from:to], c.Scalars[0], c.Scalars[1])
			if p := c.Dims[1]; p > 0 {
				for i := blocks(from, p) * p; i < to; i += p {
					x[0][i] += c.Scalars[2]
				}
			}
		})
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
