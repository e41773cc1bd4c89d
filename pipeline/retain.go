package pipeline

import (
	"context"
	"errors"
	"fmt"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Retained is a worker whose steps have ended before the plan's, for the state in its memory. No worker can be ahead
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

// Reach returns the stages whose state is whole. Where replicas have optimizer state in parts no single one is:
// parts of parameters may be with others, too.
func (r *Retained) Reach() (all []Reach) {
	w := r.worker
	for _, h := range w.stages {
		if !w.loaded || h.torn || len(h.layersInParts()) > 0 {
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
	err := s.update(ctx, c)
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
			s.Layers = append(s.Layers, LayerState{Layer: l, Reader: newViewReader(h.saves, h.views(w.spec.Model, l), check, func() {})})
		}
		return save(ctx, s)
	}
	return fmt.Errorf("pipeline: replica %d stage %d is not on %s", at.Replica, at.Stage, w.worker.Device)
}

// Close frees the device memory.
func (r *Retained) Close() { r.worker.Close() }
