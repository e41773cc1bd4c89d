package pipeline

import (
	"math"
	"slices"

	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// sumSlack is by how much one sum of non-negative numbers may be off another order of the same: it is
// far above 2^-53 times the entries of a report, and far below what matters.
const sumSlack = 1e-9

// mostSquares returns what the square sum of a part of a layer's gradient stays below: the gradient is a sum
// over groups of micro-batches, that of a tied embedding over two layers of each.
func (p *program) mostSquares(part int32) float64 {
	pieces, elements := p.pieces(), 0
	for _, r := range p.spec.StateLayout().Share(int(part)/pieces, model.Share{Index: int(part) % pieces, Count: pieces}) {
		elements += r.Len()
	}
	most := 2 * float64(collective.MostSum(p.spec.Train.Sums().Groups))
	return float64(max(elements, 1)) * most * most
}

// mostNorm returns what the gradient's norm stays below.
func (p *program) mostNorm() float64 {
	sum := 0.0
	for part := range p.spec.Model.Layers() * p.pieces() {
		sum += p.mostSquares(int32(part))
	}
	return math.Sqrt(sum)
}

// owes returns what a worker reports of a step: the micro-batches whose losses it has, and the parts of
// the gradient whose square sums it has, in the report's order. Where replicas have a layer in parts each
// reports its own, else replica 0 reports all.
func (p *program) owes(worker plan.WorkerID) (micros []plan.Micro, parts []int32) {
	pieces := p.pieces()
	for _, at := range p.plan.StagesOf(worker) {
		pipe := p.plan.Replicas[at.Replica]
		if int(at.Stage) == len(pipe.Stages)-1 {
			for i := range pipe.Micros {
				micros = append(micros, pipe.FirstMicro+plan.Micro(i))
			}
		}
		layers := p.plan.At(at).Layers
		for l := layers.First; l < layers.End; l++ {
			for part := range pieces {
				if p.reports(at.Replica, l, part) {
					parts = append(parts, int32(l*pieces+part))
				}
			}
		}
	}
	return micros, parts
}

// reports reports whether the holder of a layer in a replica has the square sum of a part.
func (p *program) reports(r plan.Replica, layer, part int) bool {
	if p.plan.InParts(layer) {
		return p.plan.Share(r, layer).Has(part, p.pieces())
	}
	return r == 0
}

// checkReport returns the fault of a worker whose report is not exactly what it owes: losses and square
// sums that are none, or of other parts than its own.
func (p *program) checkReport(step plan.Step, worker plan.WorkerID, r wire.Report) error {
	bad := func(format string, args ...any) error {
		return faulty(plan.BadReport, worker.Peer, step, format, args...)
	}
	micros, parts := p.owes(worker)
	if !slices.EqualFunc(r.Losses, micros, func(l wire.MicroLoss, m plan.Micro) bool { return l.Micro == m }) {
		return bad("it has the losses of %d micro-batches, want those of the micro-batches %v, each once and in order", len(r.Losses), micros)
	}
	if !slices.EqualFunc(r.SumSquares, parts, func(q wire.PartSquare, n int32) bool { return q.Part == n }) {
		return bad("it has %d square sums, want those of its %d parts of the gradient, each once and in order", len(r.SumSquares), len(parts))
	}
	for _, l := range r.Losses {
		if !within(l.Loss, wire.MaxLoss) {
			return bad("the loss of micro-batch %d is %v, want 0 to %.0e", l.Micro, l.Loss, wire.MaxLoss)
		}
	}
	for _, q := range r.SumSquares {
		if within(q.Sum, p.mostSquares(q.Part)) || p.anyScales() && overflowed(q.Sum) {
			continue
		}
		layer := int(q.Part) / p.pieces()
		return bad("the square sum of layer %d's gradient is %v, want 0 to %.3g", layer, q.Sum, p.mostSquares(q.Part))
	}
	return nil
}

// within reports whether x is a number from 0 to most.
func within(x, most float64) bool { return x >= 0 && x <= most }

// overflowed reports whether a square sum, or the norm, is that of a gradient which is not finite.
func overflowed(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 1) }

// gradScale returns by what the optimizer multiplies a gradient of a norm: 0, for no update, where loss
// scaling has made it infinite or no number.
func gradScale(norm float64, train plan.TrainSpec) float64 {
	switch {
	case overflowed(norm):
		return 0
	case train.ClipNorm > 0 && norm > train.ClipNorm:
		return train.ClipNorm / norm
	}
	return 1
}

// saves reports whether a commit of a step has to ask for a save.
func (p *program) saves(step plan.Step, stop bool) bool {
	if p.local != nil {
		return false // an outer step says
	}
	every, steps := p.spec.Train.CheckpointEvery, p.spec.Train.Steps
	return stop || step == steps || every > 0 && step%every == 0
}

// mayBeDue reports whether the coordinator may ask for more saves than the run does.
func (p *program) mayBeDue() bool { return p.spec.Train.CheckpointEvery == 0 && p.local == nil }

// meetAt returns the step at which the round with an inner step ends at the latest; 0 without local steps.
func (p *program) meetAt(step plan.Step) plan.Step {
	if p.local == nil {
		return 0
	}
	return p.local.RoundEnd(step-1, p.spec.Train.Steps)
}

// checkCommit returns the fault of the coordinator if its commit of a step does not follow from what this
// worker knows: the run's rules, and its own report.
func (p *program) checkCommit(step plan.Step, c wire.Commit, own wire.Report) error {
	bad := func(format string, args ...any) error {
		return faulty(plan.BadCommit, p.plan.Coordinator().Peer, step, format, args...)
	}
	losses, squares := sums(own)
	least, most := math.Sqrt(squares), p.mostNorm()*(1+sumSlack)
	switch {
	case c.Step != step:
		return bad("it is of step %d", c.Step)
	case !within(c.Loss, wire.MaxLoss*(1+sumSlack)):
		return bad("the loss is %v, want 0 to %.0e", c.Loss, wire.MaxLoss)
	case !within(c.Norm, most) && !(p.anyScales() && overflowed(c.Norm)):
		return bad("the gradient's norm is %v, want 0 to %.3g", c.Norm, most)
	case c.GradScale != gradScale(c.Norm, p.spec.Train):
		return bad("it scales a gradient of norm %v by %v, want %v", c.Norm, c.GradScale, gradScale(c.Norm, p.spec.Train))
	case c.Loss*float64(p.spec.Train.Micros) < losses*(1-sumSlack):
		return bad("the loss is %v over %d micro-batches, those here alone have %v together", c.Loss, p.spec.Train.Micros, losses)
	case !overflowed(c.Norm) && !(c.Norm >= least*(1-sumSlack)):
		return bad("the gradient's norm is %v, the parts here alone have %v", c.Norm, least)
	case c.Save != p.saves(step, c.Stop) && !(c.Save && p.mayBeDue()):
		return bad("save is %t, want %t", c.Save, !c.Save)
	case c.Merge && p.local == nil:
		return bad("an outer step follows, and there are no local steps")
	case c.Merge && p.local.Travel(step, p.plan.Start, p.spec.Train.Steps):
		return bad("an outer step follows, and messages of the one before are on their way")
	case p.local != nil && (c.Stop || c.Next != ""):
		return bad("an inner step ends the plan, or its schedule")
	case !c.Merge && step == p.meetAt(step):
		return bad("no outer step follows, and the round ends with this one")
	}
	if err := p.checkHeldOut(step, c); err != nil || c.Next == "" {
		return err
	}
	if _, err := p.with(c.Next); err != nil {
		return bad("its schedule %q cannot be carried out: %v", c.Next, err)
	}
	return nil
}

// checkHeldOut returns the fault of the coordinator if a commit has held-out losses that are none.
func (p *program) checkHeldOut(step plan.Step, c wire.Commit) error {
	for _, loss := range []*float64{c.HeldOut, c.HeldOutF32} {
		if loss != nil && !within(*loss, wire.MaxLoss*(1+sumSlack)) {
			return faulty(plan.BadCommit, p.plan.Coordinator().Peer, step, "a held-out loss is %v, want 0 to %.0e", *loss, wire.MaxLoss)
		}
	}
	return nil
}

// checkClosing returns the fault of the coordinator if the commit after the last update has more than
// held-out losses.
func (p *program) checkClosing(step plan.Step, c wire.Commit) error {
	rest := c
	rest.HeldOut, rest.HeldOutF32 = nil, nil
	if rest != (wire.Commit{}) {
		return faulty(plan.BadCommit, p.plan.Coordinator().Peer, step, "the commit after the last update has more than held-out losses")
	}
	return p.checkHeldOut(step, c)
}

// sums adds a report's losses and its square sums up.
func sums(r wire.Report) (losses, squares float64) {
	for _, l := range r.Losses {
		losses += l.Loss
	}
	for _, q := range r.SumSquares {
		squares += q.Sum
	}
	return losses, squares
}
