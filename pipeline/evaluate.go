package pipeline

import (
	"context"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// heldOutMicros bounds how many held-out micro-batches one evaluation runs.
const heldOutMicros = 8

// evaluation is what the coordinator knows of the parameters before a step; nil is what was not
// measured, or is known elsewhere.
type evaluation struct {
	// heldOut is the held-out loss, f32 that in float32 throughout where something else is not so.
	heldOut, f32 *float64
}

// evaluate computes the held-out loss of the parameters as they are before update step,
// on the steps that are due. Replica 0 does it, forwards only; the result is known to
// its last stage, the coordinator. Held-out micro-batches are numbered after the step's training
// micro-batches, so that tags never meet. Where replica 0 is not in float32
// throughout, messages included, all of them run once more, through twins of its stages.
func (w *Worker) evaluate(ctx context.Context, step plan.Step) (e evaluation, err error) {
	train := w.cfg.Run.Train
	due := train.HeldOutEvery > 0 && step%train.HeldOutEvery == 0
	if !(due || step > train.Steps) {
		return e, nil
	}
	if err := w.allGathered(); err != nil {
		return e, err
	}
	w.free = time.Now()
	n := w.cfg.Data.HeldOutMicros(train.MicroBatch, heldOutMicros)
	e.heldOut, err = w.heldOutLoss(ctx, w.holdings, n, func(h *holding, k int) (float64, error) {
		return w.evaluateMicro(ctx, h, step, plan.Micro(train.Micros+k))
	})
	if err == nil && len(w.twins) > 0 {
		e.f32, err = w.evaluateTwins(ctx, step, n)
	}
	if e.f32 != nil {
		w.cfg.Log.Info("held-out loss beside that in float32 throughout", "step", step, "held_out", *e.heldOut, "f32", *e.f32, "cost", *e.heldOut-*e.f32)
	}
	return e, err
}

// heldOutLoss has those of the stages that begin a chain here run n held-out micro-batches, and
// gives their mean loss on the coordinator. Each chain is one micro-batch behind the one before it:
// between two workers that have several, few messages wait, which links have room for.
func (w *Worker) heldOutLoss(ctx context.Context, stages []*holding, n int, run func(h *holding, k int) (float64, error)) (*float64, error) {
	var chains []*holding
	for _, h := range stages {
		if h.Replica == 0 && h.before == nil {
			chains = append(chains, h)
		}
	}
	sum := 0.0
	for turn := range n + len(chains) {
		for behind, h := range chains {
			k := turn - behind
			if k < 0 || k >= n {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			loss, err := run(h, k)
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
func (w *Worker) evaluateMicro(ctx context.Context, h *holding, step plan.Step, micro plan.Micro) (float64, error) {
	if err := w.forward(ctx, h, step, part{micro: micro}); err != nil {
		return 0, err
	}
	defer h.slots.drop(micro)
	switch slot := h.slots.of(micro); {
	case h.last():
		h.stack.Slot(slot).Loss(w.queue)
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
	e, err := w.evaluate(ctx, step)
	if err != nil {
		return err
	}
	commit := wire.Commit{HeldOut: e.heldOut, HeldOutF32: e.f32}
	if w.coordinator() {
		err = w.tell(ctx, step, commit)
	} else {
		commit, err = w.hear(ctx, step)
	}
	if err != nil {
		return err
	}
	w.cfg.OnStep(StepResult{Step: w.cfg.Run.Train.Steps, HeldOut: commit.HeldOut, HeldOutF32: commit.HeldOutF32, Final: true})
	return nil
}
