package pipeline

import (
	"context"
	"fmt"
	"math"

	"pnode/pipeline/wire"
	"pnode/planner"
)

// layerSquare is the square sum of one layer's reduced gradient.
type layerSquare struct {
	layer int
	sum   float64
}

func (w *Worker) coordinator() bool { return w.cfg.Replica == 0 && w.last() }

// agree is the commit point of a step: a worker reports and waits for the commit, the
// coordinator collects all reports and commits. Without a commit nobody updates.
func (w *Worker) agree(ctx context.Context, step planner.Step, squares []layerSquare, heldOut *float64) (wire.Commit, error) {
	report := w.report(squares)
	if !w.coordinator() {
		peer := w.cfg.Plan.Coordinator()
		frame := wire.Frame{Tag: w.own(wire.KindReport, step), Payload: wire.AppendReport(nil, report)}
		if err := w.cfg.Exchange.Send(ctx, peer, frame); err != nil {
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
	commit.HeldOut = heldOut
	return commit, w.tell(ctx, step, commit)
}

// report holds what only this worker knows; square sums come from replica 0 alone,
// because after the reduction all replicas hold the same gradient.
func (w *Worker) report(squares []layerSquare) wire.Report {
	var r wire.Report
	if w.last() {
		for i := range w.pipe.Micros {
			m := w.pipe.FirstMicro + planner.Micro(i)
			r.Losses = append(r.Losses, wire.MicroLoss{Micro: m, Loss: w.losses[m]})
		}
	}
	if w.cfg.Replica == 0 {
		for _, s := range squares {
			r.SumSquares = append(r.SumSquares, wire.LayerSquare{Layer: int32(s.layer), Sum: s.sum})
		}
	}
	return r
}

// collect waits for the reports of all workers in (replica, stage) order.
func (w *Worker) collect(ctx context.Context, step planner.Step, own wire.Report) ([]wire.Report, error) {
	var reports []wire.Report
	for r, pipe := range w.cfg.Plan.Replicas {
		for s, place := range pipe.Stages {
			tag := wire.Tag{Kind: wire.KindReport, Generation: w.cfg.Plan.Generation, Step: step, Replica: planner.Replica(r), Stage: planner.Stage(s)}
			if tag == w.own(wire.KindReport, step) {
				reports = append(reports, own)
				continue
			}
			payload, err := w.cfg.Exchange.Receive(ctx, place.Peer, tag)
			if err != nil {
				return nil, err
			}
			report, err := wire.DecodeReport(payload)
			if err != nil {
				return nil, fmt.Errorf("report of replica %d stage %d: %w", r, s, err)
			}
			reports = append(reports, report)
		}
	}
	return reports, nil
}

// decide adds up losses in micro-batch order and square sums in layer order. A gradient
// that is not finite is dropped by a scale of 0, on all stages alike.
func (w *Worker) decide(step planner.Step, reports []wire.Report) (wire.Commit, error) {
	run := w.cfg.Run
	losses, squares := make([]float64, run.Train.Micros), make([]float64, run.Model.Layers())
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
			if int(s.Layer) < 0 || int(s.Layer) >= len(squares) {
				return wire.Commit{}, fmt.Errorf("pipeline: report names layer %d of %d", s.Layer, len(squares))
			}
			squares[s.Layer] = s.Sum
			seenSquares++
		}
	}
	if seenLosses != len(losses) || seenSquares != len(squares) {
		return wire.Commit{}, fmt.Errorf("pipeline: reports hold %d of %d losses and %d of %d layers", seenLosses, len(losses), seenSquares, len(squares))
	}
	norm := math.Sqrt(total(squares))
	commit := wire.Commit{Step: step, Loss: total(losses) / float64(len(losses)), Norm: norm, GradScale: clipScale(norm, run.Train.ClipNorm)}
	every := run.Train.CheckpointEvery
	commit.Stop = w.cfg.Stop() && step < run.Train.Steps
	commit.Save = commit.Stop || step == run.Train.Steps || (every > 0 && step%every == 0)
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
func (w *Worker) tell(ctx context.Context, step planner.Step, c wire.Commit) error {
	payload := wire.AppendCommit(nil, c)
	for r, pipe := range w.cfg.Plan.Replicas {
		for s, place := range pipe.Stages {
			tag := wire.Tag{Kind: wire.KindCommit, Generation: w.cfg.Plan.Generation, Step: step, Replica: planner.Replica(r), Stage: planner.Stage(s)}
			if tag == w.own(wire.KindCommit, step) {
				continue
			}
			if err := w.cfg.Exchange.Send(ctx, place.Peer, wire.Frame{Tag: tag, Payload: payload}); err != nil {
				return err
			}
		}
	}
	return nil
}

// hear waits for the coordinator's commit of a step.
func (w *Worker) hear(ctx context.Context, step planner.Step) (wire.Commit, error) {
	peer := w.cfg.Plan.Coordinator()
	payload, err := w.cfg.Exchange.Receive(ctx, peer, w.own(wire.KindCommit, step))
	if err != nil {
		return wire.Commit{}, err
	}
	return wire.DecodeCommit(payload)
}

// own is the tag of a message that names this worker.
func (w *Worker) own(kind wire.Kind, step planner.Step) wire.Tag {
	return wire.Tag{Kind: kind, Generation: w.cfg.Plan.Generation, Step: step, Replica: w.cfg.Replica, Stage: w.cfg.Stage}
}
