package pipeline

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Where a plan says so, workers do not wait for the commit of a step before they update and begin with the forwards of the next
// one (the post-validation of Qi et al. 2023, section 4, https://arxiv.org/abs/2401.10241). A commit that asks for something else
// finds the state of before in memory: it is copied back, and the update and the forwards are made anew.

const (
	// calmSteps are looked at before a step is applied ahead of its commit: the norms of their gradients were all at most
	// calmPercent of the limit, so that this one is hardly clipped.
	calmSteps   = 4
	calmPercent = 80
)

// errUndone ends the passes of a step that began with another state, or another schedule, than the commit before it leaves.
var errUndone = errors.New("pipeline: the commit of the step before asks for another one")

// agreement is the commit of a step on its way.
type agreement struct {
	done   chan struct{} // closed once commit or err is set
	commit wire.Commit
	err    error
}

// agreeLater begins to agree on a step. The device learns of no wait: it computes meanwhile.
func agreeLater(ctx context.Context, s *stepRun, e evaluation) *agreement {
	a, quiet, cfg := &agreement{done: make(chan struct{})}, *s, *s.cfg
	exchange, _, _ := plain(s.cfg.Exchange)
	cfg.Exchange = watched{exchange, s.progress}
	quiet.cfg = &cfg
	go func() {
		defer close(a.done)
		a.commit, a.err = quiet.agree(ctx, e)
	}()
	return a
}

// wait blocks until the commit of a step, or the one before it, is there, and tells the device so.
func (a *agreement) wait(ctx context.Context, s *stepRun) error {
	begin := time.Now()
	select {
	case <-a.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, p, ok := plain(s.cfg.Exchange); ok {
		p.waited(begin)
	}
	return a.err
}

// validator has a worker go on before the commit of a step.
type validator struct{ *Worker }

// ahead is a step that is applied here while its commit is on its way.
type ahead struct {
	*stepRun
	agreed *agreement
}

// keeps reports whether the next step goes on as it has begun: with an update that nothing scales, and the same schedule.
func keeps(c wire.Commit) bool { return c.GradScale == 1 && c.Next == "" && !c.Stop }

// again reports whether the activations of the step after a commit are those of a second try, whether or not somebody made a first one.
// All workers know from the commit alone, and so does who goes on in the place of one.
func again(p plan.Plan, c wire.Commit) bool { return p.PostValidation && !keeps(c) }

// mayApply reports whether a step is applied before its commit: where nothing that is known here speaks against it, and nothing but forwards follows.
func (w validator) mayApply(s *stepRun) bool {
	if s.step >= w.spec.Train.Steps || s.evaluatesIn(s.step+1) {
		return false
	}
	_, squares := sums(*s.report)
	clip := w.spec.Train.ClipNorm
	switch own := math.Sqrt(squares); {
	case overflowed(own):
		return false
	case clip == 0:
		return true
	default:
		return own <= clip && len(w.norms) > 0 && slices.Max(w.norms)*100 <= clip*calmPercent
	}
}

// apply makes a step the state here before its commit.
func (w validator) apply(ctx context.Context, s *stepRun) error {
	w.still.Lock()
	defer w.still.Unlock()
	w.ahead = &ahead{s, w.agreed}
	for _, h := range s.stages {
		h.stack.KeepState(w.queue)
	}
	err := s.update(ctx, wire.Commit{Step: s.step, GradScale: 1})
	s.applied = time.Now()
	return err
}

// undo makes the state before the step that was applied ahead the state here. Callers hold still.
func (w validator) undo() error {
	if w.ahead == nil {
		return nil
	}
	var back []*stageRun
	for _, h := range w.ahead.stages {
		if h.step == w.ahead.step && !h.torn {
			h.stack.UndoState(w.queue)
			h.step--
			h.stack.RoundWeights(w.queue, w.opt.rounding(h.step))
			back = append(back, h)
		}
	}
	w.ahead = nil
	err := w.queue.Sync()
	for _, h := range back {
		h.torn = err != nil
	}
	return err
}

// abandon undoes what was applied ahead when the steps end.
func (w validator) abandon() {
	if w.agreed != nil {
		<-w.agreed.done
	}
	w.still.Lock()
	defer w.still.Unlock()
	_ = w.undo() // the stages say whether they are torn
}

// compute runs the passes of a step. Where the step before is applied ahead, its commit comes meanwhile; stop says that the run ends with it.
func (w validator) compute(ctx, saves context.Context, step plan.Step) (s *stepRun, e evaluation, stop bool, err error) {
	s = w.newStepRun(ctx, step)
	if w.ahead == nil {
		w.open = s
		if !s.replays() {
			if e, err = s.evaluate(); err != nil {
				return s, e, false, err
			}
		}
		return s, e, false, s.run(ctx)
	}
	before := w.ahead
	s.before = before.agreed
	s.settled = func() error {
		_, err := w.settle(ctx, saves, before.stepRun, before.agreed.commit)
		return err
	}
	err = s.run(ctx)
	if !errors.Is(err, errUndone) {
		if w.ahead == nil {
			w.open = s
		}
		return s, e, false, err
	}
	stop, err = w.settle(ctx, saves, before.stepRun, before.agreed.commit)
	if stop || err != nil {
		return s, e, stop, err
	}
	return w.compute(ctx, saves, step)
}

// validate goes on with a step's program where the commit before it is still on its way: forwards need not wait for it. It returns errUndone
// where that commit asks for something else.
func (a *agreement) validate(s *stepRun, next schedule.Action) error {
	if a == nil {
		return nil
	}
	switch next.Op {
	case schedule.Forward, schedule.SendActivation, schedule.ReceiveActivation, schedule.ReceiveGradient:
		select {
		case <-a.done:
		default:
			return nil
		}
	}
	if err := a.wait(s.ctx, s); err != nil {
		return err
	}
	if !keeps(a.commit) {
		return errUndone
	}
	s.before = nil
	zeroGrads(s)
	return s.settled()
}

// heed ends a program that waits for activations of a first try once there is a second one, or no commit.
func (a *agreement) heed(s *stepRun) error {
	select {
	case <-a.done:
	case <-s.ctx.Done():
		return nil
	}
	if a.err != nil {
		s.cancel(a.err)
	} else if !keeps(a.commit) {
		s.cancel(errUndone)
	}
	return nil
}

// Dropper drops activations of a step with an index below a bound: nobody receives them. *link.Session is one.
type Dropper interface {
	DropActivations(step plan.Step, below int32)
}

// dropTries drops the activations of a step's first try, as far as they are here or come later.
func (w validator) dropTries(step plan.Step) {
	exchange, _, _ := plain(w.cfg.Exchange)
	if d, ok := exchange.(Dropper); ok {
		d.DropActivations(step, w.tries())
	}
}
