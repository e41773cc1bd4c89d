package pipeline

import (
	"context"

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
	if w.cfg.Replica != 0 || !(due || step > train.Steps) {
		return nil, nil
	}
	n := w.cfg.Data.HeldOutMicros(train.MicroBatch, heldOutMicros)
	sum := 0.0
	for k := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		loss, err := w.evaluateMicro(ctx, step, planner.Micro(train.Micros+k))
		if err != nil {
			return nil, err
		}
		sum += loss
	}
	if !w.last() || n == 0 {
		return nil, nil
	}
	mean := sum / float64(n)
	return &mean, nil
}

func (w *Worker) evaluateMicro(ctx context.Context, step planner.Step, micro planner.Micro) (float64, error) {
	if err := w.forward(ctx, step, micro); err != nil {
		return 0, err
	}
	defer w.slots.drop(micro)
	if slot := w.slots.of(micro); w.last() {
		w.stack.Loss(w.queue, slot)
		return w.meanLoss(slot)
	}
	return 0, w.send(ctx, w.stack.Output(w.slots.of(micro)), w.neighbour(wire.Activation, step, int(w.cfg.Stage)+1, micro))
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
	w.cfg.OnStep(StepResult{Replica: w.cfg.Replica, Stage: w.cfg.Stage, Step: w.cfg.Run.Train.Steps, HeldOut: commit.HeldOut, Final: true})
	return nil
}
