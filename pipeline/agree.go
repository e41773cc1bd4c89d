package pipeline

import (
	"context"
	"fmt"
	"math"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

func (w *Worker) coordinator() bool { return w.cfg.Plan.Coordinator() == w.cfg.Seat }

// agree is the commit point of a step: a worker reports and waits for the commit, the
// coordinator collects all reports and commits. Without a commit nobody updates.
func (w *Worker) agree(ctx context.Context, step plan.Step, squares []wire.PartSquare, e evaluation) (wire.Commit, error) {
	report := w.report(squares)
	if !w.coordinator() {
		frame := wire.Frame{Tag: w.about(w.cfg.Seat, wire.KindReport, step), Payload: wire.AppendReport(nil, report)}
		if err := w.cfg.Exchange.Send(ctx, w.cfg.Plan.Coordinator().Peer, frame); err != nil {
			return wire.Commit{}, err
		}
		return w.hear(ctx, step)
	}
	reports, err := w.collect(ctx, step, report)
	if err != nil {
		return wire.Commit{}, err
	}
	commit, err := w.decide(step, reports)
	if err != nil {
		return wire.Commit{}, err
	}
	commit.HeldOut, commit.HeldOutF32 = e.heldOut, e.f32
	return commit, w.tell(ctx, step, commit)
}

// report holds what only this worker knows.
func (w *Worker) report(squares []wire.PartSquare) wire.Report {
	r := wire.Report{SumSquares: squares}
	for _, h := range w.holdings {
		if !h.last() {
			continue
		}
		for i := range h.pipe.Micros {
			m := h.pipe.FirstMicro + plan.Micro(i)
			r.Losses = append(r.Losses, wire.MicroLoss{Micro: m, Loss: w.losses[m]})
		}
	}
	return r
}

// collect waits for the reports of all workers in the order of seats.
func (w *Worker) collect(ctx context.Context, step plan.Step, own wire.Report) ([]wire.Report, error) {
	var reports []wire.Report
	for _, seat := range w.cfg.Plan.Workers() {
		if seat == w.cfg.Seat {
			reports = append(reports, own)
			continue
		}
		tag := w.about(seat, wire.KindReport, step)
		payload, err := w.cfg.Exchange.Receive(ctx, seat.Peer, tag)
		if err != nil {
			return nil, err
		}
		report, err := wire.DecodeReport(payload)
		if err != nil {
			return nil, fmt.Errorf("report of replica %d stage %d: %w", tag.Replica, tag.Stage, err)
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// decide adds up losses in micro-batch order and square sums in the order of layers and parts. A gradient
// that is not finite is dropped by a scale of 0, on all stages alike.
func (w *Worker) decide(step plan.Step, reports []wire.Report) (wire.Commit, error) {
	run := w.cfg.Run
	losses, squares := make([]float64, run.Train.Micros), make([]float64, run.Model.Layers()*len(w.cfg.Plan.Replicas))
	seenLosses, seenSquares := 0, 0
	for _, r := range reports {
		for _, l := range r.Losses {
			if int(l.Micro) < 0 || int(l.Micro) >= len(losses) {
				return wire.Commit{}, fmt.Errorf("pipeline: report names micro-batch %d of %d", l.Micro, len(losses))
			}
			losses[l.Micro] = l.Loss
			seenLosses++
		}
		for _, s := range r.SumSquares {
			if int(s.Part) < 0 || int(s.Part) >= len(squares) {
				return wire.Commit{}, fmt.Errorf("pipeline: report names part %d of %d of the gradient", s.Part, len(squares))
			}
			squares[s.Part] = s.Sum
			seenSquares++
		}
	}
	if seenLosses != len(losses) || seenSquares != len(squares) {
		return wire.Commit{}, fmt.Errorf("pipeline: reports hold %d of %d losses and %d of %d parts of the gradient", seenLosses, len(losses), seenSquares, len(squares))
	}
	norm := math.Sqrt(total(squares))
	commit := wire.Commit{Step: step, Loss: total(losses) / float64(len(losses)), Norm: norm, GradScale: clipScale(norm, run.Train.ClipNorm)}
	every := run.Train.CheckpointEvery
	commit.Stop = w.cfg.Stop() && step < run.Train.Steps
	commit.Save = commit.Stop || step == run.Train.Steps || (every > 0 && step%every == 0)
	commit.Next = w.next(step)
	if commit.GradScale == 0 {
		w.cfg.Log.Warn("gradient is not finite, the update is skipped; a lower learning rate may help", "step", step, "norm", norm)
	}
	return commit, nil
}

func total(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum
}

// clipScale brings a norm above limit down to it; limit 0 is off.
func clipScale(norm, limit float64) float64 {
	switch {
	case math.IsNaN(norm) || math.IsInf(norm, 0):
		return 0
	case limit > 0 && norm > limit:
		return limit / norm
	default:
		return 1
	}
}

// tell sends the commit to every other worker.
func (w *Worker) tell(ctx context.Context, step plan.Step, c wire.Commit) error {
	payload := wire.AppendCommit(nil, c)
	for _, seat := range w.cfg.Plan.Workers() {
		if seat == w.cfg.Seat {
			continue
		}
		frame := wire.Frame{Tag: w.about(seat, wire.KindCommit, step), Payload: payload}
		if err := w.cfg.Exchange.Send(ctx, seat.Peer, frame); err != nil {
			return err
		}
	}
	return nil
}

// hear waits for the coordinator's commit of a step.
func (w *Worker) hear(ctx context.Context, step plan.Step) (wire.Commit, error) {
	payload, err := w.cfg.Exchange.Receive(ctx, w.cfg.Plan.Coordinator().Peer, w.about(w.cfg.Seat, wire.KindCommit, step))
	if err != nil {
		return wire.Commit{}, err
	}
	return wire.DecodeCommit(payload)
}

// about is the tag of a message that names a worker, by the first that it holds.
func (w *Worker) about(seat plan.WorkerID, kind wire.Kind, step plan.Step) wire.Tag {
	first := w.cfg.Plan.StagesOf(seat)[0]
	return wire.Tag{Kind: kind, Generation: w.cfg.Plan.Generation, Step: step, Replica: first.Replica, Stage: first.Stage}
}
