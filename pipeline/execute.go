package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// do interprets one action. Receives only mark where a message is due: the compute
// action that needs it waits for its tag.
func (w *Worker) do(ctx context.Context, step plan.Step, a schedule.Action) error {
	if a.Op == schedule.Step {
		return w.finish()
	}
	h, p := find(w.holdings, a.Replica, a.Stage), w.part(a.Micro)
	switch a.Op {
	case schedule.Forward:
		return w.forward(ctx, h, step, p)
	case schedule.Backward, schedule.BackwardInput:
		return w.backward(ctx, h, step, a)
	case schedule.BackwardWeight:
		return w.backwardWeight(ctx, h, step, a)
	case schedule.Recompute:
		return w.compute(step, a, &h.times.Backward, func() { h.stack.Slot(h.slots.of(p.micro)).Restore(w.queue, p.Segment) })
	case schedule.SendActivation:
		if _, err := w.send(ctx, h, h.output(p), w.message(wire.Activation, h, +1, step, p)); err != nil {
			return err // nothing is written there before the gradient for it has come
		}
		return w.deliver(step, pass{action: a})
	case schedule.SendGradient:
		defer h.slots.paid(p.micro)
		if err := w.sendGradient(ctx, h, step, p); err != nil {
			return err
		}
		return w.deliver(step, pass{action: a})
	case schedule.Gather:
		w.awaited = append(w.awaited, await{h, a})
		return w.gathered(h)
	case schedule.Reduce, schedule.ReceiveActivation, schedule.ReceiveGradient:
		return nil // a reduction has begun with the last gradient, layer by layer
	default:
		return fmt.Errorf("%w: this runner has no action %v", ErrBadConfig, a.Op)
	}
}

// sendGradient sends a part's gradient, for which the slot's next backward has to wait.
func (w *Worker) sendGradient(ctx context.Context, h *holding, step plan.Step, p part) error {
	read, err := w.send(ctx, h, h.inputGrad(p), w.message(wire.Gradient, h, -1, step, p))
	slot := h.slots.of(p.micro)
	h.leaving[slot] = append(h.leaving[slot], read)
	return err
}

// forward runs a part through the stage.
func (w *Worker) forward(ctx context.Context, h *holding, step plan.Step, p part) error {
	begin := func() {}
	if p.opens() {
		var err error
		if begin, err = w.open(ctx, h, step, p.micro); err != nil {
			return err
		}
	}
	input, err := w.input(ctx, h, step, p)
	if err != nil {
		return err
	}
	w.expectGradient(ctx, h, step, p)
	return w.compute(step, h.action(schedule.Forward, w.numbered(p)), &h.times.Forward, func() {
		begin()
		w.hand(input)
		h.stack.Slot(h.slots.of(p.micro)).ForwardSegment(w.queue, p.Segment, w.noise(step, p.micro))
	})
}

// input brings the stage's input, where it does not begin here, or tells from where it is to be
// copied.
func (w *Worker) input(ctx context.Context, h *holding, step plan.Step, p part) (handing, error) {
	switch {
	case h.first():
		return handing{}, nil
	case h.before != nil:
		return handing{h.input(p), h.before.output(p)}, nil
	default:
		return w.receive(ctx, h, h.input(p), w.message(wire.Activation, h, 0, step, p))
	}
}

// open gives a micro-batch a slot; what it gives enqueues what the stage needs to know of the
// tokens.
func (w *Worker) open(ctx context.Context, h *holding, step plan.Step, micro plan.Micro) (func(), error) {
	slot, err := h.slots.take(micro)
	if err != nil {
		return nil, err
	}
	tokens, targets, err := w.batch(ctx, h, step, micro)
	if err != nil {
		return nil, err
	}
	return func() { // the slices stay as they are
		if h.stack.Masked() {
			h.stack.Slot(slot).SetDocuments(w.queue, w.cfg.Data.DocumentStarts(tokens))
		}
		if h.first() {
			h.stack.Slot(slot).SetTokens(w.queue, tokens)
		}
		if h.last() {
			h.stack.Slot(slot).SetTargets(w.queue, targets)
		}
	}, nil
}

// backward computes the gradient of the stage's input and, unless the program splits the
// two, adds the micro-batch to the parameters' gradients. On the last stage the loss comes
// with it. Where there are segments, the last one adds the whole micro-batch.
func (w *Worker) backward(ctx context.Context, h *holding, step plan.Step, a schedule.Action) error {
	p := w.part(a.Micro)
	grad, err := w.outputGrad(ctx, h, step, p)
	if err != nil {
		return err
	}
	slot := h.slots.of(p.micro)
	if p.begins() {
		h.leaving.wait(w.queue, slot)
	}
	err = w.compute(step, a, &h.times.Backward, func() {
		w.hand(grad)
		w.differentiate(ctx, h, step, a.Op, p)
		if h.last() && p.closes() {
			w.rows[p.micro] = w.readLosses(h, slot)
		}
	})
	if err == nil && a.Op == schedule.Backward {
		h.slots.paid(p.micro)
	}
	return err
}

func (w *Worker) differentiate(ctx context.Context, h *holding, step plan.Step, op schedule.Op, p part) {
	slot, scale := h.slots.of(p.micro), w.lossScale()
	if op == schedule.Backward && p.Count <= 1 {
		h.stack.Slot(slot).BackwardEach(w.queue, scale, w.complete(ctx, h, step, p.micro))
		return
	}
	h.stack.Slot(slot).BackwardInputSegment(w.queue, p.Segment, scale)
	if op == schedule.Backward && p.closes() {
		h.stack.Slot(slot).BackwardWeight(w.queue, w.complete(ctx, h, step, p.micro))
	}
}

// outputGrad brings the gradient of the stage's output, where it does not begin here, or tells
// from where it is to be copied.
func (w *Worker) outputGrad(ctx context.Context, h *holding, step plan.Step, p part) (handing, error) {
	switch {
	case h.last():
		return handing{}, nil
	case h.behind != nil:
		defer h.behind.slots.paid(p.micro)
		return handing{h.outputGrad(p), h.behind.inputGrad(p)}, nil
	default:
		return w.receive(ctx, h, h.outputGrad(p), w.message(wire.Gradient, h, 0, step, p))
	}
}

// backwardWeight adds a micro-batch to the parameters' gradients, with the last of its segments.
func (w *Worker) backwardWeight(ctx context.Context, h *holding, step plan.Step, a schedule.Action) error {
	p := w.part(a.Micro)
	defer h.slots.paid(p.micro)
	return w.compute(step, a, &h.times.Backward, func() {
		if p.closes() {
			h.stack.Slot(h.slots.of(p.micro)).BackwardWeight(w.queue, w.complete(ctx, h, step, p.micro))
		}
	})
}

// finish waits for the program's passes and for what runs beside them.
func (w *Worker) finish() error {
	err := w.queue.Sync()
	w.settling = time.Now()
	for micro, rows := range w.rows {
		w.losses[micro] = mean(rows)
	}
	err = errors.Join(err, w.settle())
	w.settling = later(w.free, w.settling)
	return err
}

// noise is a training micro-batch's dropout; an evaluation has none.
func (w *Worker) noise(step plan.Step, micro plan.Micro) model.Noise {
	if w.heldOut(micro) {
		return model.Noise{}
	}
	return model.Noise{On: true, Seed: w.cfg.Run.Train.Seed, Step: int(step), Micro: int(micro)}
}

// heldOut tells whether a micro-batch is numbered after those of training.
func (w *Worker) heldOut(micro plan.Micro) bool { return int(micro) >= w.cfg.Run.Train.Micros }

// batch gives the tokens and targets of a micro-batch. Only the two ends need them, and
// attention that stays within documents: then a stage between reads them itself, since a
// neighbour's word on them would be one more message.
func (w *Worker) batch(ctx context.Context, h *holding, step plan.Step, micro plan.Micro) (tokens, targets []int32, err error) {
	switch {
	case !h.first() && !h.last() && !h.stack.Masked():
		return nil, nil, nil
	case w.heldOut(micro):
		return w.cfg.Data.HeldOut(ctx, (int(micro)-w.cfg.Run.Train.Micros)%heldOutMicros, w.cfg.Run.Train.MicroBatch)
	default:
		return w.cfg.Data.Micro(ctx, step, micro, w.cfg.Run.Train.MicroBatch)
	}
}

// lossScale makes the step's gradient the mean over all of its tokens.
func (w *Worker) lossScale() float32 {
	return float32(1 / float64(w.cfg.Run.Train.Micros*w.tokensPerMicro()))
}

func (w *Worker) tokensPerMicro() int {
	return w.cfg.Run.Train.MicroBatch * w.cfg.Run.Model.Context
}

// readLosses enqueues a copy of the losses [B*T] of a slot.
func (w *Worker) readLosses(h *holding, slot int) []float32 {
	rows := make([]float32, w.tokensPerMicro())
	w.queue.Read(kernels.Float32Bytes(rows), h.stack.Slot(slot).Losses())
	return rows
}

// mean adds up in row order.
func mean(rows []float32) float64 {
	sum := 0.0
	for _, l := range rows {
		sum += float64(l)
	}
	return sum / float64(len(rows))
}

// message is the tag of a message to the stage that many behind a holding.
func (w *Worker) message(kind wire.Kind, h *holding, behind int, step plan.Step, p part) wire.Tag {
	return wire.Tag{
		Kind: kind, Generation: w.cfg.Plan.Generation, Step: step,
		Replica: h.Replica, Stage: h.Stage + plan.Stage(behind), Index: int32(w.numbered(p)),
	}
}
