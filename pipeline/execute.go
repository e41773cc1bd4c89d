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
	switch a.Op {
	case schedule.Forward:
		return w.forward(ctx, step, a.Micro)
	case schedule.Backward, schedule.BackwardInput:
		return w.backward(ctx, step, a)
	case schedule.BackwardWeight:
		return w.backwardWeight(a.Micro)
	case schedule.SendActivation:
		return w.send(ctx, w.stack.Output(w.slots.of(a.Micro)), w.neighbour(wire.Activation, step, int(a.Stage)+1, a.Micro))
	case schedule.SendGradient:
		defer w.slots.paid(a.Micro)
		return w.send(ctx, w.stack.InputGrad(w.slots.of(a.Micro)), w.neighbour(wire.Gradient, step, int(a.Stage)-1, a.Micro))
	case schedule.ReceiveActivation, schedule.ReceiveGradient:
		return nil
	default:
		return fmt.Errorf("%w: this runner has no action %v", ErrBadConfig, a.Op)
	}
}

// forward runs micro through the stage.
func (w *Worker) forward(ctx context.Context, step planner.Step, micro planner.Micro) error {
	slot, err := w.slots.take(micro)
	if err != nil {
		return err
	}
	tokens, targets, err := w.batch(ctx, step, micro)
	if err != nil {
		return err
	}
	if w.stack.Masked() {
		w.stack.SetDocuments(w.queue, slot, w.cfg.Data.DocumentStarts(tokens))
	}
	if w.first() {
		w.stack.SetTokens(w.queue, slot, tokens)
	} else if err := w.receive(ctx, w.stack.Input(slot), w.neighbour(wire.Activation, step, int(w.cfg.Stage), micro)); err != nil {
		return err
	}
	return w.timed(&w.times.Forward, func() {
		if w.last() {
			w.stack.SetTargets(w.queue, slot, targets)
		}
		w.stack.Forward(w.queue, slot, w.noise(step, micro))
	})
}

// backward computes the gradient of the stage's input and, unless the program splits the
// two, adds the micro-batch to the parameters' gradients. On the last stage the loss comes
// with it.
func (w *Worker) backward(ctx context.Context, step planner.Step, a schedule.Action) error {
	slot := w.slots.of(a.Micro)
	if !w.last() {
		if err := w.receive(ctx, w.stack.OutputGrad(slot), w.neighbour(wire.Gradient, step, int(w.cfg.Stage), a.Micro)); err != nil {
			return err
		}
	}
	err := w.timed(&w.times.Backward, func() {
		if a.Op == schedule.BackwardInput {
			w.stack.BackwardInput(w.queue, slot, w.lossScale())
			return
		}
		w.stack.Backward(w.queue, slot, w.lossScale())
	})
	if err == nil && w.last() {
		w.losses[a.Micro], err = w.meanLoss(slot)
	}
	if err == nil && a.Op == schedule.Backward {
		w.slots.paid(a.Micro)
	}
	return err
}

func (w *Worker) backwardWeight(micro planner.Micro) error {
	return w.timed(&w.times.Backward, func() {
		w.stack.BackwardWeight(w.queue, w.slots.of(micro))
		w.slots.paid(micro)
	})
}

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
func (w *Worker) batch(ctx context.Context, step planner.Step, micro planner.Micro) (tokens, targets []int32, err error) {
	switch {
	case !w.first() && !w.last() && !w.stack.Masked():
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
func (w *Worker) meanLoss(slot int) (float64, error) {
	rows := make([]float32, w.tokensPerMicro())
	w.queue.Read(kernels.Float32Bytes(rows), w.stack.Losses(slot))
	if err := w.queue.Sync(); err != nil {
		return 0, err
	}
	sum := 0.0
	for _, l := range rows {
		sum += float64(l)
	}
	return sum / float64(len(rows)), nil
}

// neighbour is the tag of a message to stage `to` of this replica.
func (w *Worker) neighbour(kind wire.Kind, step planner.Step, to int, micro planner.Micro) wire.Tag {
	return wire.Tag{Kind: kind, Generation: w.cfg.Plan.Generation, Step: step, Replica: w.cfg.Replica, Stage: planner.Stage(to), Index: int32(micro)}
}

// send copies a boundary tensor to the host and queues it for the stage in its tag.
func (w *Worker) send(ctx context.Context, v kernels.View, tag wire.Tag) error {
	payload := make([]byte, v.Len*v.Buf.DType().SizeBytes())
	w.queue.Read(payload, v)
	if err := w.queue.Sync(); err != nil {
		return err
	}
	return w.cfg.Exchange.Send(ctx, w.pipe.Stages[tag.Stage].Peer, wire.Frame{Tag: tag, Payload: payload})
}

// receive waits for the message with the tag, which a neighbour sent to this stage, and
// copies it to the device.
func (w *Worker) receive(ctx context.Context, v kernels.View, tag wire.Tag) error {
	from := w.cfg.Stage - 1
	if tag.Kind == wire.Gradient {
		from = w.cfg.Stage + 1
	}
	begin := time.Now()
	payload, err := w.cfg.Exchange.Receive(ctx, w.pipe.Stages[from].Peer, tag)
	if err != nil {
		return err
	}
	w.times.Wait += time.Since(begin)
	if want := v.Len * v.Buf.DType().SizeBytes(); len(payload) != want {
		return fmt.Errorf("pipeline: %v from stage %d has %d bytes, want %d", tag, from, len(payload), want)
	}
	w.queue.Write(v, payload)
	return w.queue.Sync()
}
