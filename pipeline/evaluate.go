package pipeline

import (
	"context"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner"
)

// heldOutMicros bounds how many held-out micro-batches one evaluation runs.
const heldOutMicros = 8

// evaluate computes the held-out loss of the parameters as they are before update step,
// on the steps that are due. Replica 0 does it, forwards only; the result is known to
// its last stage, the coordinator, and nil elsewhere. Held-out micro-batches are
// numbered after the step's training micro-batches, so that tags never meet.
func (w *Worker) evaluate(ctx context.Context, step planner.Step) (*float64, error) {
	train := w.cfg.Run.Train
	due := train.HeldOutEvery > 0 && step%train.HeldOutEvery == 0
	if !(due || step > train.Steps) {
		return nil, nil
	}
	if err := w.allGathered(); err != nil {
		return nil, err
	}
	w.free = time.Now()
	n := w.cfg.Data.HeldOutMicros(train.MicroBatch, heldOutMicros)
	sum := 0.0
	for _, h := range w.holdings {
		if h.Replica != 0 || h.before != nil {
			continue
		}
		for k := range n {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			loss, err := w.evaluateMicro(ctx, h, step, planner.Micro(train.Micros+k))
			if err != nil {
				return nil, err
			}
			sum += loss
		}
	}
	if !w.coordinator() || n == 0 {
		return nil, nil
	}
	mean := sum / float64(n)
	return &mean, nil
}

// evaluateMicro runs a micro-batch forward through a stage and those that follow it here.
// The loss is 0 where the last stage is not among them.
func (w *Worker) evaluateMicro(ctx context.Context, h *holding, step planner.Step, micro planner.Micro) (float64, error) {
	if err := w.forward(ctx, h, step, part{micro: micro}); err != nil {
		return 0, err
	}
	defer h.slots.drop(micro)
	switch slot := h.slots.of(micro); {
	case h.last():
		h.stack.Loss(w.queue, slot)
		rows := w.readLosses(h, slot)
		if err := w.queue.Sync(); err != nil {
			return 0, err
		}
		return mean(rows), nil
	case h.behind != nil:
		return w.evaluateMicro(ctx, h.behind, step, micro)
	default:
		_, err := w.send(ctx, h, h.output(part{micro: micro}), w.message(wire.Activation, h, +1, step, part{micro: micro}))
		return 0, err
	}
}

// closingEvaluation follows the last update: the held-out loss of the finished model,
// told to every worker in a commit that updates nothing.
func (w *Worker) closingEvaluation(ctx context.Context) error {
	step := w.cfg.Run.Train.Steps + 1
	heldOut, err := w.evaluate(ctx, step)
	if err != nil {
		return err
	}
	commit := wire.Commit{HeldOut: heldOut}
	if w.coordinator() {
		err = w.tell(ctx, step, commit)
	} else {
		commit, err = w.hear(ctx, step)
	}
	if err != nil {
		return err
	}
	w.cfg.OnStep(StepResult{Step: w.cfg.Run.Train.Steps, HeldOut: commit.HeldOut, Final: true})
	return nil
}
