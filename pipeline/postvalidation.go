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
// one (the post-validation of Qi et al. 2023, section 4, https://arxiv.org/abs/2401.10241). Until its commit comes, such a step is an
// optimistic one. A commit that asks for something else finds the state of before in memory: the step is rolled back to it, and the
// update and the forwards are made anew, by a second try.

const (
	// calmSteps are looked at before a step is applied without its commit: the norms of their gradients were all at most
	// calmPercent of the limit, so that this one is hardly clipped.
	calmSteps   = 4
	calmPercent = 80
)

// errSecondTry ends the passes of a step that began with another state, or another schedule, than the commit before it leaves.
var errSecondTry = errors.New("pipeline: the commit of the step before asks for another one")

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

// optimisticStep is a step that is applied here while its commit is on its way.
type optimisticStep struct {
	*stepRun
	agreement *agreement
	appliedAt time.Time
	confirm   func() error // does what the commit asks for besides, where the step stays as it is
}

// validator holds what a worker knows of the commits of a plan whose steps are post-validated. It belongs to the worker's goroutine, and
// what changes the state of stages to a caller that holds Worker.still.
type validator struct {
	optimistic *optimisticStep // nil while there is none
	agreement  *agreement      // the newest one; nil before
	norms      []float64       // of the newest commits, at most calmSteps
	secondTry  bool            // the activations of the step after the newest commit are those of a second try
	settledAt  time.Time       // when the newest commit was made the state here
	// applied counts the steps that were applied without their commit, rolledBack those of them whose commit asked for something else.
	applied, rolledBack int
}

// keeps reports whether the next step goes on as it has begun: with an update that nothing scales, and the same schedule.
func keeps(c wire.Commit) bool { return c.GradScale == 1 && c.Next == "" && !c.Stop }

// secondTry reports whether the activations of the step after a commit are those of a second try, whether or not somebody made a first one.
// All workers know from the commit alone, and so does who goes on in the place of one.
func secondTry(p plan.Plan, c wire.Commit) bool { return p.PostValidation && !keeps(c) }

// mayApply reports whether a step is applied before its commit: where nothing that is known here speaks against it, and nothing but forwards follows.
func (v *validator) mayApply(s *stepRun) bool {
	if s.step >= s.spec.Train.Steps || s.evaluatesIn(s.step+1) {
		return false
	}
	_, squares := sums(*s.report)
	clip := s.spec.Train.ClipNorm
	switch own := math.Sqrt(squares); {
	case overflowed(own):
		return false
	case clip == 0:
		return true
	default:
		return own <= clip && len(v.norms) > 0 && slices.Max(v.norms)*100 <= clip*calmPercent
	}
}

// apply makes a step the state here without its commit, which is on its way.
func (v *validator) apply(ctx context.Context, s *stepRun) error {
	v.applied++
	v.optimistic = &optimisticStep{stepRun: s, agreement: v.agreement}
	for _, h := range s.stages {
		h.stack.KeepState(s.queue)
	}
	err := s.update(ctx, wire.Commit{Step: s.step, GradScale: 1})
	v.optimistic.appliedAt = time.Now()
	s.cfg.Log.Debug("applied a step before its commit", "step", s.step)
	return err
}

// validate compares the optimistic step, if there is one, with its commit: the state here is then one that the commit can be applied to, or
// the one that it asks for.
func (v *validator) validate(c wire.Commit) error {
	if v.optimistic == nil {
		return nil
	}
	if c.GradScale == 1 {
		v.optimistic = nil
		return nil
	}
	v.rolledBack++
	s := v.optimistic
	if err := v.rollBack(); err != nil {
		return err
	}
	s.cfg.Log.Info("rolled a step back that was applied before its commit", "step", s.step, "norm", c.Norm, "scale", c.GradScale, "rolled_back", v.rolledBack, "of", v.applied)
	return nil
}

// rollBack makes the state before the optimistic step, if there is one, the state here.
func (v *validator) rollBack() error {
	s := v.optimistic
	if s == nil {
		return nil
	}
	var back []*stageRun
	for _, h := range s.stages {
		if h.step == s.step && !h.torn {
			h.stack.UndoState(s.queue)
			h.step--
			h.stack.RoundWeights(s.queue, s.opt.rounding(h.step))
			back = append(back, h)
		}
	}
	v.optimistic = nil
	err := s.queue.Sync()
	for _, h := range back {
		h.torn = err != nil
	}
	return err
}

// settled takes in a commit that is the state here now.
func (v *validator) settled(s *stepRun, c wire.Commit) {
	v.secondTry = secondTry(s.plan, c)
	v.norms = append(v.norms, c.Norm)
	v.norms = v.norms[max(0, len(v.norms)-calmSteps):]
	s.begun = later(v.settledAt, s.begun) // a step that began before it took what lies between two commits
	v.settledAt = time.Now()
	if !v.secondTry {
		return
	}
	exchange, _, _ := plain(s.cfg.Exchange)
	if d, ok := exchange.(Dropper); ok {
		d.DropActivations(s.step+1, s.tries())
	}
}

// Dropper drops activations of a step with an index below a bound: nobody receives them. *link.Session is one.
type Dropper interface {
	DropActivations(step plan.Step, below int32)
}

// await goes on with a step's program after an optimistic step: forwards need not wait for its commit. It returns errSecondTry where that
// commit asks for something else.
func (o *optimisticStep) await(s *stepRun, next schedule.Action) error {
	if o == nil {
		return nil
	}
	switch next.Op {
	case schedule.Forward, schedule.SendActivation, schedule.ReceiveActivation, schedule.ReceiveGradient:
		select {
		case <-o.agreement.done:
		default:
			return nil
		}
	}
	if err := o.agreement.wait(s.ctx, s); err != nil {
		return err
	}
	if !keeps(o.agreement.commit) {
		return errSecondTry
	}
	s.before = nil
	zeroGrads(s)
	return o.confirm()
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
		s.cancel(errSecondTry)
	}
	return nil
}
