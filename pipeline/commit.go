package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// account makes a worker's report of a step, its losses and square sums, and looks at it.
func account(s *stepRun, squares []wire.PartSquare) error {
	report := wire.Report{SumSquares: squares}
	micros, _ := s.owes(s.worker)
	for _, m := range micros {
		report.Losses = append(report.Losses, wire.MicroLoss{Micro: m, Loss: mean(s.losses[m])})
	}
	if err := s.checkReport(s.step, s.worker, report); err != nil {
		return err
	}
	s.report = &report
	s.overflow.report(s.worker.Peer, report)
	return nil
}

// agree is the commit point of a step. A worker reports and waits for the commit; the coordinator collects all reports and
// commits. Without a commit no update lasts. Each looks at what it gets.
func (s *stepRun) agree(ctx context.Context, e evaluation) (wire.Commit, error) {
	report := *s.report
	if s.replays() {
		return s.committedBefore(report)
	}
	if !s.coordinates() {
		frame := wire.Frame{Tag: s.controlTag(s.worker, wire.KindReport, s.step), Payload: wire.AppendReport(nil, report)}
		if err := s.cfg.Exchange.Send(ctx, s.plan.Coordinator().Peer, frame); err != nil {
			return wire.Commit{}, err
		}
		commit, err := s.receiveCommit(ctx, func(c wire.Commit) error { return s.checkCommit(s.step, c, report) })
		if err != nil {
			return wire.Commit{}, err
		}
		s.cfg.Commits.Put(s.plan.Generation, commit)
		return commit, nil
	}
	reports := []wire.Report{report}
	for _, worker := range s.plan.Workers() {
		if worker == s.worker {
			continue
		}
		tag := s.controlTag(worker, wire.KindReport, s.step)
		payload, err := s.cfg.Exchange.Receive(ctx, worker.Peer, tag)
		if err != nil {
			return wire.Commit{}, err
		}
		by := collective.Brought(s.cfg.Exchange, worker.Peer, tag)
		theirs, err := wire.DecodeReport(payload)
		if err != nil {
			return wire.Commit{}, faulty(plan.BadReport, by, s.step, "%s: %v", s.describe(tag), err)
		}
		if err := s.checkReport(s.step, worker, theirs); err != nil {
			return wire.Commit{}, accusing(err, worker.Peer, by)
		}
		s.overflow.report(by, theirs)
		reports = append(reports, theirs)
	}
	commit := s.commitOf(s.step, reports)
	if i := slices.IndexFunc(s.cfg.Committed, func(c wire.Commit) bool { return c.Step == s.step }); i >= 0 {
		committed := s.cfg.Committed[i]
		if err := s.checkCommit(s.step, committed, report); err != nil {
			return wire.Commit{}, fmt.Errorf("%w: %v", ErrOtherCommit, err)
		}
		if !alike(commit, committed) {
			return wire.Commit{}, fmt.Errorf("%w: step %d has loss %v and norm %v, not %v and %v", ErrOtherCommit, s.step, commit.Loss, commit.Norm, committed.Loss, committed.Norm)
		}
		commit = committed
	} else {
		s.cfg.decide(&s.program, &commit)
		commit.HeldOut, commit.HeldOutF32 = e.heldOut, e.f32
	}
	if commit.GradScale == 0 {
		s.cfg.Log.Warn("gradient is out of f16's range, the update is skipped; a lower learning rate may help", "step", s.step, "norm", commit.Norm)
	}
	if err := s.checkCommit(s.step, commit, report); err != nil {
		return wire.Commit{}, err
	}
	s.cfg.Commits.Put(s.plan.Generation, commit) // before anybody else may have it
	return commit, s.sendCommit(ctx, commit)
}

// decide adds to a commit what only the coordinator knows: whether the plan ends with the step, whether it is saved, and
// how the next steps go. Of an inner step it is whether an outer one follows; the rest is for that to say.
func (c *Config) decide(p *program, commit *wire.Commit) {
	step := commit.Step
	if p.local != nil {
		commit.Merge = step == p.meetAt(step) || !p.local.Travel(step, p.plan.Start, p.spec.Train.Steps) && c.Local.Rounds.Closed()
		return
	}
	commit.Stop = c.Stop() && step < p.spec.Train.Steps
	commit.Save = p.saves(step, commit.Stop) || p.mayBeDue() && c.Due != nil && c.Due(step)
	if c.Next == nil {
		return
	}
	next := c.Next(step).String()
	if next == p.plan.ScheduleChoice().String() {
		return
	}
	if _, err := p.with(next); err != nil {
		c.Log.Warn("the steps go on as they did: the plan cannot take the other schedule",
			"step", step, "schedule", next, "cause", err)
		return
	}
	commit.Next = next
}

// ErrOtherCommit is wrapped by the error of a coordinator's substitute about a commit that it was given and that does not follow from
// the reports of its step.
var ErrOtherCommit = errors.New("pipeline: this is not the commit that was made")

// commitSlack is by how much a loss or a norm may be off the one that another kind of device computes.
const commitSlack = 0.01

// repeatClosing returns the commit after the last update, which is of no step: the one among all that a lost coordinator had committed, or else
// the own one. Not every device can measure the held-out loss in float32, so the one of before counts.
func (p *program) repeatClosing(all []wire.Commit, own wire.Commit) (wire.Commit, error) {
	i := slices.IndexFunc(all, func(c wire.Commit) bool { return c.Step == 0 })
	if i < 0 {
		return own, nil
	}
	committed := all[i]
	if err := p.checkClosing(p.spec.Train.Steps+1, committed); err != nil {
		return own, fmt.Errorf("%w: %v", ErrOtherCommit, err)
	}
	if (own.HeldOut == nil) != (committed.HeldOut == nil) || own.HeldOut != nil && !near(*own.HeldOut, *committed.HeldOut) {
		return own, fmt.Errorf("%w: the held-out loss of the finished model is another one", ErrOtherCommit)
	}
	return committed, nil
}

// alike reports whether two commits of a step may follow from the same reports, but for how devices round.
func alike(a, b wire.Commit) bool {
	return near(a.Loss, b.Loss) && near(a.Norm, b.Norm)
}

// near reports whether two losses or norms may be the same one, but for how devices round.
func near(x, y float64) bool {
	return math.Abs(x-y) <= commitSlack*max(math.Abs(x), math.Abs(y)) || overflowed(x) && overflowed(y)
}

// repeatTaken sends the commit that a lost coordinator's substitute begins after to all others: that one may have sent it to some.
func (w *Worker) repeatTaken(ctx context.Context) error {
	taken := w.cfg.Taken
	if taken.Step == 0 || !w.coordinates() {
		return nil
	}
	return (&stepRun{program: w.program, cfg: &w.cfg, step: taken.Step}).sendCommit(ctx, taken)
}

// replays reports whether the step's commit was made before.
func (s *stepRun) replays() bool { return s.cfg.Replay != nil }

// committedBefore returns the commit of a step that is computed again, once it follows from the report. The last one
// ends the replay.
func (s *stepRun) committedBefore(report wire.Report) (wire.Commit, error) {
	i := int(s.step - s.plan.Start - 1)
	if i < 0 || i >= len(s.cfg.Replay) {
		return wire.Commit{}, fmt.Errorf("%w: step %d is replayed with %d commits after step %d", ErrBadConfig, s.step, len(s.cfg.Replay), s.plan.Start)
	}
	commit := s.cfg.Replay[i]
	err := s.checkCommit(s.step, commit, report)
	commit.Save, commit.Stop = false, i == len(s.cfg.Replay)-1
	return commit, err
}

// commitOf adds up losses in micro-batch order and square sums in the order of layers and parts, of reports
// that together have each of them once. It drops a gradient that is not finite by a scale of 0, on all
// stages alike.
func (p *program) commitOf(step plan.Step, reports []wire.Report) wire.Commit {
	train := p.spec.Train
	losses, squares := make([]float64, train.Micros), make([]float64, p.spec.Model.Layers()*p.pieces())
	for _, r := range reports {
		for _, l := range r.Losses {
			losses[l.Micro] = l.Loss
		}
		for _, q := range r.SumSquares {
			squares[q.Part] = q.Sum
		}
	}
	norm := math.Sqrt(total(squares))
	return wire.Commit{Step: step, Loss: total(losses) / float64(len(losses)), Norm: norm, GradScale: gradScale(norm, train)}
}

func total(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum
}

// sendCommit sends the commit to every other worker.
func (s *stepRun) sendCommit(ctx context.Context, c wire.Commit) error {
	payload := wire.AppendCommit(nil, c)
	for _, worker := range s.plan.Workers() {
		if worker == s.worker {
			continue
		}
		frame := wire.Frame{Tag: s.controlTag(worker, wire.KindCommit, s.step), Payload: payload}
		if err := s.cfg.Exchange.Send(ctx, worker.Peer, frame); err != nil {
			return err
		}
	}
	return nil
}

// receiveCommit blocks until the coordinator's commit of the step comes, and checks it.
func (s *stepRun) receiveCommit(ctx context.Context, check func(wire.Commit) error) (wire.Commit, error) {
	from, tag := s.plan.Coordinator().Peer, s.controlTag(s.worker, wire.KindCommit, s.step)
	payload, err := s.cfg.Exchange.Receive(ctx, from, tag)
	if err != nil {
		return wire.Commit{}, err
	}
	commit, err := wire.DecodeCommit(payload)
	if err != nil {
		err = faulty(plan.BadCommit, from, s.step, "%v", err)
	} else {
		err = check(commit)
	}
	return commit, accusing(err, from, collective.Brought(s.cfg.Exchange, from, tag))
}

// update makes a committed step the state of the stages here that are not there yet, each when a save in progress has
// read the one before. Scale 0 stands for a gradient that is not finite: it must not touch the moments, because 0 times
// infinity is no number.
func (s *stepRun) update(ctx context.Context, commit wire.Commit) error {
	for _, h := range s.stages {
		if h.step == s.step {
			continue
		}
		if err := h.isRead(ctx); err != nil {
			return err
		}
		h.step, h.torn = s.step, true
		begin := time.Now()
		var err error
		if commit.GradScale != 0 {
			err = s.opt.update(s.queue, h.StageRuntime, commit.GradScale)
		} else {
			// Parameters stay, but are rounded again like changed ones: a run that is resumed here
			// does not know that they are the same.
			if noise := s.opt.rounding(s.step); noise.On {
				h.stack.RoundWeights(s.queue, noise)
			}
			err = s.queue.Sync()
		}
		h.times.Update += time.Since(begin)
		if h.torn = err != nil; h.torn {
			return err
		}
	}
	return nil
}

// gatherAll begins to bring the parameters together that replicas have updated in parts.
func (s *stepRun) gatherAll(ctx context.Context, commit wire.Commit) {
	for _, h := range s.stages {
		if commit.GradScale != 0 {
			s.gather(ctx, h, commit.Stop || s.step == s.spec.Train.Steps)
		}
	}
}
