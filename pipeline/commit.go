package pipeline

import (
	"context"
	"fmt"
	"math"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// agree is the commit point of a step. A worker reports its losses and square sums and waits for the
// commit; the coordinator collects all reports and commits. Without a commit nobody updates.
func (s *stepRun) agree(ctx context.Context, squares []wire.PartSquare, e evaluation) (wire.Commit, error) {
	report := wire.Report{SumSquares: squares}
	for _, h := range s.stages {
		if !h.last() {
			continue
		}
		for i := range h.pipe.Micros {
			m := h.pipe.FirstMicro + plan.Micro(i)
			report.Losses = append(report.Losses, wire.MicroLoss{Micro: m, Loss: mean(s.losses[m])})
		}
	}
	if !s.coordinates() {
		frame := wire.Frame{Tag: s.controlTag(s.worker, wire.KindReport, s.step), Payload: wire.AppendReport(nil, report)}
		if err := s.cfg.Exchange.Send(ctx, s.plan.Coordinator().Peer, frame); err != nil {
			return wire.Commit{}, err
		}
		return s.receiveCommit(ctx)
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
		theirs, err := wire.DecodeReport(payload)
		if err != nil {
			return wire.Commit{}, fmt.Errorf("report of replica %d stage %d: %w", tag.Replica, tag.Stage, err)
		}
		reports = append(reports, theirs)
	}
	commit, err := s.commitOf(s.step, reports)
	if err != nil {
		return wire.Commit{}, err
	}
	every, steps := s.spec.Train.CheckpointEvery, s.spec.Train.Steps
	commit.Stop = s.cfg.Stop() && s.step < steps
	commit.Save = commit.Stop || s.step == steps || (every > 0 && s.step%every == 0)
	if s.cfg.Next != nil {
		next := s.cfg.Next(s.step).String()
		if next == s.plan.ScheduleChoice().String() {
			next = ""
		} else if _, err := s.with(next); err != nil {
			s.cfg.Log.Warn("the steps go on as they did: the plan cannot take the other schedule",
				"step", s.step, "schedule", next, "cause", err)
			next = ""
		}
		commit.Next = next
	}
	commit.HeldOut, commit.HeldOutF32 = e.heldOut, e.f32
	if commit.GradScale == 0 {
		s.cfg.Log.Warn("gradient is not finite, the update is skipped; a lower learning rate may help", "step", s.step, "norm", commit.Norm)
	}
	return commit, s.sendCommit(ctx, commit)
}

// commitOf adds up losses in micro-batch order and square sums in the order of layers and parts. It
// drops a gradient that is not finite by a scale of 0, on all stages alike.
func (p *program) commitOf(step plan.Step, reports []wire.Report) (wire.Commit, error) {
	train := p.spec.Train
	losses, squares := make([]float64, train.Micros), make([]float64, p.spec.Model.Layers()*len(p.plan.Replicas))
	seenLosses, seenSquares := 0, 0
	for _, r := range reports {
		for _, l := range r.Losses {
			if int(l.Micro) < 0 || int(l.Micro) >= len(losses) {
				return wire.Commit{}, fmt.Errorf("pipeline: report names micro-batch %d of %d", l.Micro, len(losses))
			}
			losses[l.Micro] = l.Loss
			seenLosses++
		}
		for _, q := range r.SumSquares {
			if int(q.Part) < 0 || int(q.Part) >= len(squares) {
				return wire.Commit{}, fmt.Errorf("pipeline: report names part %d of %d of the gradient", q.Part, len(squares))
			}
			squares[q.Part] = q.Sum
			seenSquares++
		}
	}
	if seenLosses != len(losses) || seenSquares != len(squares) {
		return wire.Commit{}, fmt.Errorf("pipeline: reports hold %d of %d losses and %d of %d parts of the gradient",
			seenLosses, len(losses), seenSquares, len(squares))
	}
	norm, scale := math.Sqrt(total(squares)), 1.0
	switch {
	case math.IsNaN(norm) || math.IsInf(norm, 0):
		scale = 0
	case train.ClipNorm > 0 && norm > train.ClipNorm:
		scale = train.ClipNorm / norm
	}
	return wire.Commit{Step: step, Loss: total(losses) / float64(len(losses)), Norm: norm, GradScale: scale}, nil
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

// receiveCommit blocks until the coordinator's commit of the step comes.
func (s *stepRun) receiveCommit(ctx context.Context) (wire.Commit, error) {
	payload, err := s.cfg.Exchange.Receive(ctx, s.plan.Coordinator().Peer, s.controlTag(s.worker, wire.KindCommit, s.step))
	if err != nil {
		return wire.Commit{}, err
	}
	return wire.DecodeCommit(payload)
}

// update makes a committed step the state of the stages here. Scale 0 stands for a gradient that is
// not finite: it must not touch the moments, because 0 times infinity is no number.
func (s *stepRun) update(ctx context.Context, commit wire.Commit) error {
	for _, h := range s.stages {
		if h.unread != nil {
			select {
			case <-h.unread.Done(): // the save in progress reads no state any more
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		h.step = s.step
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
		if err != nil {
			return err
		}
	}
	if commit.GradScale == 0 {
		return nil
	}
	for _, h := range s.stages {
		s.gather(ctx, h, commit.Stop || s.step == s.spec.Train.Steps)
	}
	return nil
}
