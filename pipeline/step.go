package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// step runs one optimizer update and tells whether the run stops after it.
func (w *Worker) step(ctx, saves context.Context, step plan.Step) (stop bool, err error) {
	begin := time.Now()
	for _, h := range w.holdings {
		h.times = StageTimes{StageID: h.StageID}
		if err := h.saving.poll(); err != nil {
			return false, err
		}
	}
	evaluated, err := w.evaluate(ctx, step)
	if err != nil {
		return false, err
	}
	if err := w.gradients(ctx, step); err != nil {
		return false, err
	}
	squares, err := w.squares()
	if err != nil {
		return false, err
	}
	commit, err := w.agree(ctx, step, squares, evaluated)
	if err != nil {
		return false, err
	}
	if err := w.apply(ctx, saves, step, commit); err != nil {
		return false, err
	}
	w.dropTwins(commit)
	w.note(step, schedule.Action{Op: schedule.Step}, w.settling)
	result := StepResult{
		Step: step, Loss: commit.Loss, HeldOut: commit.HeldOut, HeldOutF32: commit.HeldOutF32, Norm: commit.Norm,
		Course: w.cfg.Plan.ScheduleChoice(), Total: time.Since(begin),
	}
	for _, h := range w.holdings {
		h.tally(w.cfg.Log, step)
		result.Stages = append(result.Stages, h.times)
	}
	w.cfg.OnStep(result)
	if commit.Next != "" && !commit.Stop {
		err = w.follow(commit.Next)
	}
	return commit.Stop, err
}

// gradients runs the program: afterwards every layer here has the gradient of the step,
// summed over micro-batches and replicas. What runs beside it ends with it.
func (w *Worker) gradients(ctx context.Context, step plan.Step) error {
	clear(w.losses)
	clear(w.rows)
	for _, h := range w.holdings {
		h.stack.ZeroGrads(w.queue)
	}
	ctx, cancel := w.begin(ctx, step)
	defer cancel(nil)
	program := w.list.Workers[w.number]
	for i, a := range program {
		err := ctx.Err() // a lone stage meets it nowhere else
		if err == nil {
			err = w.expectActivations(ctx, step, program[i:])
		}
		if err == nil {
			err = w.do(ctx, step, a)
		}
		if err != nil {
			return w.fail(ctx, cancel, fmt.Errorf("%v: %w", a, err))
		}
	}
	return nil
}

// begin starts what runs beside a program. The context ends with it, for the reason of whatever
// failed first.
func (w *Worker) begin(ctx context.Context, step plan.Step) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.beside, ctx = errgroup.WithContext(ctx)
	departures, passes := make(chan departure, maxDepartures), make(chan pass, maxPasses)
	w.departures, w.passes, w.awaited, w.free = departures, passes, nil, time.Now()
	w.beside.Go(func() error { return depart(departures, cancel) })
	w.beside.Go(func() error { return w.watch(ctx, step, passes, cancel) })
	return ctx, cancel
}

// fail ends a program that came to an error, which may be no more than that something beside it
// failed: the reason of that is told too.
func (w *Worker) fail(ctx context.Context, cancel context.CancelCauseFunc, err error) error {
	cause := context.Cause(ctx)
	cancel(err)
	return errors.Join(cause, w.settle(), err)
}

// settle waits for what runs beside the program, which sends and computes no more.
func (w *Worker) settle() error {
	if w.departures != nil {
		close(w.departures)
		close(w.passes)
		w.departures, w.passes = nil, nil
	}
	return w.beside.Wait()
}

// apply makes a committed step the state of what is held here, and has it saved where the
// commit says so.
func (w *Worker) apply(ctx, saves context.Context, step plan.Step, commit wire.Commit) error {
	for _, h := range w.holdings {
		if err := h.saving.read(ctx); err != nil {
			return err
		}
		if err := w.update(h, step, commit.GradScale); err != nil {
			return err
		}
	}
	for _, h := range w.holdings {
		if commit.GradScale != 0 {
			w.gather(ctx, h, step, commit.Stop || step == w.cfg.Run.Train.Steps)
		}
	}
	if !commit.Save {
		return nil
	}
	if err := w.allGathered(); err != nil {
		return err
	}
	for _, h := range w.holdings {
		if err := h.ferry.settle(); err != nil {
			return err
		}
		if err := w.save(saves, h, step); err != nil {
			return err
		}
	}
	return nil
}

// update applies the committed step to a stage. Scale 0 stands for a gradient that is not
// finite: it must not touch the moments, because 0 times infinity is no number.
func (w *Worker) update(h *holding, step plan.Step, gradScale float64) error {
	h.step = step
	begin := time.Now()
	defer func() { h.times.Update += time.Since(begin) }()
	if gradScale == 0 {
		w.roundAgain(h)
		return w.queue.Sync()
	}
	return w.opt.update(w.queue, h, step, gradScale)
}

// roundAgain rounds parameters that a step has left as they were like those that it has changed:
// a run that is resumed behind it does not know.
func (w *Worker) roundAgain(h *holding) {
	if noise := w.opt.rounding(h.step); noise.On {
		h.stack.RoundWeights(w.queue, noise)
	}
}
