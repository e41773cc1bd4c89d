package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Retained is a worker whose steps have ended before the plan's, for the state in its memory. No worker can be behind
// of another by more than one step: the coordinator commits a step when all have reported it, and who has reported
// a step has its reduced gradients. So every living worker can be brought to the newest step of which one of them
// has the commit. A Retained belongs to one goroutine.
type Retained struct{ worker *Worker }

// Reach says to which steps the state of a stage can be brought.
type Reach struct {
	plan.StageID
	// Step is the last update of the state here. Pending is the step after it where its gradients are here and
	// its commit has not come, else 0.
	Step, Pending plan.Step
}

// Retain takes over a worker whose Run and Saved have returned, with an error or not. Close the Retained in its place.
func (w *Worker) Retain() (*Retained, error) {
	r := &Retained{w}
	if w.local != nil {
		w.open = nil // an inner step is of no use without the others of its round
	}
	if w.open == nil {
		return r, nil
	}
	if g, c, ok := w.cfg.Commits.At(w.open.step); ok && g == w.plan.Generation {
		return r, r.Bring(context.Background(), c) // it came too late to be applied
	}
	return r, nil
}

// Worker returns which worker of the plan it was.
func (r *Retained) Worker() plan.WorkerID { return r.worker.worker }

// whole reports whether a stage has its whole state. Where replicas have optimizer state in parts none has: parts of
// parameters may be with others, too. Between two outer steps none has that of a step of the run.
func (r *Retained) whole(h *StageRuntime) bool {
	return r.worker.loaded && !h.torn && !r.worker.local.apart() && len(h.layersInParts()) == 0
}

// Reach returns the stages whose state is whole.
func (r *Retained) Reach() (all []Reach) {
	w := r.worker
	for _, h := range w.stages {
		if !r.whole(h) {
			continue
		}
		at := Reach{StageID: h.StageID, Step: h.step}
		if s := w.open; s != nil && s.report != nil && s.step == h.step+1 {
			at.Pending = s.step
		}
		all = append(all, at)
	}
	return all
}

// Bring applies the commit of the step that Reach calls pending, to all stages that lack it. An error that is a
// plan.Fault says that the commit cannot be the step's; the state is as before then.
func (r *Retained) Bring(ctx context.Context, c wire.Commit) error {
	w, s := r.worker, r.worker.open
	if s == nil || s.report == nil || s.step != c.Step {
		return fmt.Errorf("pipeline: %s has no gradients of step %d", w.worker.Device, c.Step)
	}
	if err := s.checkCommit(s.step, c, *s.report); err != nil {
		return err
	}
	for _, h := range s.stages {
		h.offload.start()
	}
	err := w.update(ctx, s, c)
	for _, h := range s.stages {
		if failed := h.offload.settle(); failed != nil {
			h.torn, err = true, errors.Join(err, failed)
		}
		h.offload.stop()
	}
	if err == nil {
		w.open = nil
		w.cfg.OnStep(resultOf(s, c))
	}
	return err
}

// Save hands layers of a stage to a keeper's function, in the state of the stage's step.
func (r *Retained) Save(ctx context.Context, save func(context.Context, State) error, at plan.StageID, layers plan.LayerRange) error {
	w := r.worker
	for _, h := range w.stages {
		if h.StageID != at {
			continue
		}
		s := State{Replica: h.Replica, Stage: h.Stage, Step: h.step}
		for l := layers.First; l < layers.End; l++ {
			check := w.checkState(h.step, "layer %d's state", l)
			s.Layers = append(s.Layers, LayerState{Layer: l, Reader: newViewReader(h.saves, h.views(w.spec, l), check, func() {})})
		}
		return save(ctx, s)
	}
	return fmt.Errorf("pipeline: replica %d stage %d is not on %s", at.Replica, at.Stage, w.worker.Device)
}

// own returns whose moments a stage has; nil: those of the run's layers.
func (r *Retained) own(h *StageRuntime) *plan.Own {
	switch w := r.worker; {
	case h.step == w.plan.Start:
		return w.plan.Replicas[h.Replica].Own
	case w.local != nil:
		return &plan.Own{Replica: w.cfg.Replica, Step: h.step}
	}
	return nil
}

// sameMoments reports whether two replicas have the moments of the same one.
func sameMoments(a, b *plan.Own) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Replica == b.Replica && a.Step == b.Step
}

// donors returns the stacks here that have the state which a plan starts from, for each stage that the plan puts on the
// same device and by layer. A layer's state goes to one stage. A nil Retained has none.
func (r *Retained) donors(next plan.Plan) map[plan.StageID]map[int]*model.Stack {
	if r == nil {
		return nil
	}
	given, all := map[int]bool{}, map[plan.StageID]map[int]*model.Stack{}
	for _, at := range next.StagesOf(r.worker.worker) {
		all[at] = map[int]*model.Stack{}
		for _, h := range r.worker.stages {
			for _, l := range h.layers() {
				if r.whole(h) && h.step == next.Start && sameMoments(r.own(h), next.Replicas[at.Replica].Own) && next.At(at).Layers.Contains(l) && !given[l] {
					all[at][l], given[l] = h.stack, true
				}
			}
		}
	}
	return all
}

// Keep frees everything but the state that the next plan has on the same device unchanged, for Config.From. It returns the
// layers of each stage of that plan whose state is kept. Nothing else can be done with the Retained then but to close it.
func (r *Retained) Keep(next plan.Plan) map[plan.StageID][]int {
	donors, kept := r.donors(next), map[plan.StageID][]int{}
	for at, stacks := range donors {
		kept[at] = slices.Sorted(maps.Keys(stacks))
	}
	for _, h := range r.worker.stages {
		h.freeSpare()
		h.stack.Shrink(func(layer int) bool {
			for _, stacks := range donors {
				if stacks[layer] == h.stack {
					return true
				}
			}
			return false
		})
	}
	return kept
}

// Close frees the device memory. A nil Retained has none.
func (r *Retained) Close() {
	if r != nil {
		r.worker.Close()
	}
}
