package pipeline

import (
	"context"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner"
)

// do interprets one action. Receives only mark where a message is due: the compute
// action that needs it waits for its tag.
func (w *Worker) do(ctx context.Context, step planner.Step, a schedule.Action) error {
	if a.Op == schedule.Step {
		w.settling = time.Now()
		return w.reductions.Wait()
	}
	h := w.find(a.Replica, a.Stage)
	switch a.Op {
	case schedule.Forward:
		return w.forward(ctx, h, step, a.Micro)
	case schedule.Backward, schedule.BackwardInput:
		return w.backward(ctx, h, step, a)
	case schedule.BackwardWeight:
		defer w.note(step, a, time.Now())
		return w.backwardWeight(ctx, h, step, a.Micro)
	case schedule.Recompute:
		defer w.note(step, a, time.Now())
		return w.timed(&h.times.Backward, func() { h.stack.Restore(w.queue, h.slots.of(a.Micro)) })
	case schedule.SendActivation:
		defer w.note(step, a, time.Now())
		return w.send(ctx, h, h.stack.Output(h.slots.of(a.Micro)), w.message(wire.Activation, h, +1, step, a.Micro))
	case schedule.SendGradient:
		defer h.slots.paid(a.Micro)
		defer w.note(step, a, time.Now())
		return w.send(ctx, h, h.stack.InputGrad(h.slots.of(a.Micro)), w.message(wire.Gradient, h, -1, step, a.Micro))
	case schedule.Gather:
		defer w.note(step, a, time.Now())
		return w.gathered(h)
	case schedule.Reduce, schedule.ReceiveActivation, schedule.ReceiveGradient:
		return nil // a reduction has begun with the last gradient, layer by layer
	default:
		return fmt.Errorf("%w: this runner has no action %v", ErrBadConfig, a.Op)
	}
}

// forward runs micro through the stage.
func (w *Worker) forward(ctx context.Context, h *holding, step planner.Step, micro planner.Micro) error {
	slot, err := h.slots.take(micro)
	if err != nil {
		return err
	}
	tokens, targets, err := w.batch(ctx, h, step, micro)
	if err != nil {
		return err
	}
	if h.stack.Masked() {
		h.stack.SetDocuments(w.queue, slot, w.cfg.Data.DocumentStarts(tokens))
	}
	switch {
	case h.first():
		h.stack.SetTokens(w.queue, slot, tokens)
	case h.before != nil:
		w.hand(h.stack.Input(slot), h.before.stack.Output(h.before.slots.of(micro)))
	default:
		if err := w.receive(ctx, h, h.stack.Input(slot), w.message(wire.Activation, h, 0, step, micro)); err != nil {
			return err
		}
	}
	defer w.note(step, h.action(schedule.Forward, micro), time.Now())
	return w.timed(&h.times.Forward, func() {
		if h.last() {
			h.stack.SetTargets(w.queue, slot, targets)
		}
		h.stack.Forward(w.queue, slot, w.noise(step, micro))
	})
}

// backward computes the gradient of the stage's input and, unless the program splits the
// two, adds the micro-batch to the parameters' gradients. On the last stage the loss comes
// with it.
func (w *Worker) backward(ctx context.Context, h *holding, step planner.Step, a schedule.Action) error {
	slot := h.slots.of(a.Micro)
	if err := w.outputGrad(ctx, h, step, a.Micro); err != nil {
		return err
	}
	defer w.note(step, a, time.Now())
	err := w.timed(&h.times.Backward, func() {
		if a.Op == schedule.BackwardInput {
			h.stack.BackwardInput(w.queue, slot, w.lossScale())
			return
		}
		h.stack.BackwardEach(w.queue, slot, w.lossScale(), w.complete(ctx, h, step, a.Micro))
	})
	if err == nil && h.last() {
		w.losses[a.Micro], err = w.meanLoss(h, slot)
	}
	if err == nil && a.Op == schedule.Backward {
		h.slots.paid(a.Micro)
	}
	return err
}

// outputGrad brings the gradient of the stage's output, where it does not begin here.
func (w *Worker) outputGrad(ctx context.Context, h *holding, step planner.Step, micro planner.Micro) error {
	switch {
	case h.last():
		return nil
	case h.behind != nil:
		w.hand(h.stack.OutputGrad(h.slots.of(micro)), h.behind.stack.InputGrad(h.behind.slots.of(micro)))
		h.behind.slots.paid(micro)
		return nil
	default:
		return w.receive(ctx, h, h.stack.OutputGrad(h.slots.of(micro)), w.message(wire.Gradient, h, 0, step, micro))
	}
}

func (w *Worker) backwardWeight(ctx context.Context, h *holding, step planner.Step, micro planner.Micro) error {
	return w.timed(&h.times.Backward, func() {
		h.stack.BackwardWeight(w.queue, h.slots.of(micro), w.complete(ctx, h, step, micro))
		h.slots.paid(micro)
	})
}

// hand copies a boundary tensor between two stages here.
func (w *Worker) hand(to, from kernels.View) { w.queue.Do(kernels.Copy(to, from, from.Len)) }

// timed waits for what f enqueues and adds the time to sum.
func (w *Worker) timed(sum *time.Duration, f func()) error {
	begin := time.Now()
	f()
	err := w.queue.Sync()
	*sum += time.Since(begin)
	return err
}

// noise is a training micro-batch's dropout; an evaluation has none.
func (w *Worker) noise(step planner.Step, micro planner.Micro) model.Noise {
	if w.heldOut(micro) {
		return model.Noise{}
	}
	return model.Noise{On: true, Seed: w.cfg.Run.Train.Seed, Step: int(step), Micro: int(micro)}
}

// heldOut tells whether a micro-batch is numbered after those of training.
func (w *Worker) heldOut(micro planner.Micro) bool { return int(micro) >= w.cfg.Run.Train.Micros }

// batch gives the tokens and targets of a micro-batch. Only the two ends need them, and
// attention that stays within documents: then a stage between reads them itself, since a
// neighbour's word on them would be one more message.
func (w *Worker) batch(ctx context.Context, h *holding, step planner.Step, micro planner.Micro) (tokens, targets []int32, err error) {
	switch {
	case !h.first() && !h.last() && !h.stack.Masked():
		return nil, nil, nil
	case w.heldOut(micro):
		return w.cfg.Data.HeldOut(ctx, int(micro)-w.cfg.Run.Train.Micros, w.cfg.Run.Train.MicroBatch)
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

// meanLoss reads the losses [B*T] of a slot and averages them in row order.
func (w *Worker) meanLoss(h *holding, slot int) (float64, error) {
	rows := make([]float32, w.tokensPerMicro())
	w.queue.Read(kernels.Float32Bytes(rows), h.stack.Losses(slot))
	if err := w.queue.Sync(); err != nil {
		return 0, err
	}
	sum := 0.0
	for _, l := range rows {
		sum += float64(l)
	}
	return sum / float64(len(rows)), nil
}

// message is the tag of a message to the stage that many behind a holding.
func (w *Worker) message(kind wire.Kind, h *holding, behind int, step planner.Step, micro planner.Micro) wire.Tag {
	return wire.Tag{
		Kind: kind, Generation: w.cfg.Plan.Generation, Step: step,
		Replica: h.Replica, Stage: h.Stage + planner.Stage(behind), Index: int32(micro),
	}
}
