package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"

	"pnode/kernels"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// ErrNoCopy is wrapped by errors about state that a worker cannot give to the substitute of a lost one.
var ErrNoCopy = errors.New("pipeline: no state for a lost worker")

// Held is the state of a worker's stages after one step, while the worker goes on: its next update waits until the Held is
// released. A lost worker of another replica goes on from it elsewhere, and has the same bits then. It is a Keeper that only
// loads. A Held belongs to one goroutine.
type Held struct {
	worker *Worker
	queue  kernels.Queue
	step   plan.Step
	plan   plan.Plan
	taken  wire.Commit
	// unmeasured says that no worker has float32 shadows any more.
	unmeasured bool
}

// Hold waits for an update under way and holds the state after it. The errors wrap ErrNoCopy: the state is not there yet, or
// not as a whole. Release it.
func (w *Worker) Hold() (*Held, error) {
	queue, err := w.cfg.Device.NewQueue()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCopy, err)
	}
	w.still.Lock()
	h := &Held{worker: w, queue: queue}
	for i, stage := range w.stages {
		switch {
		case !w.loaded, stage.torn, stage.offload != nil, len(stage.layersInParts()) > 0, i > 0 && stage.step != h.step:
			h.Release()
			return nil, fmt.Errorf("%w: replica %d stage %d has none of its own", ErrNoCopy, stage.Replica, stage.Stage)
		}
		h.step = stage.step
	}
	if w.taken.Step == h.step {
		h.taken = w.taken
	}
	h.unmeasured = w.unmeasured
	p := w.program
	if w.following != "" {
		if p, err = p.with(w.following); err != nil {
			h.Release()
			return nil, fmt.Errorf("%w: %w", ErrNoCopy, err)
		}
	}
	h.plan = p.plan
	h.plan.Start = h.step
	return h, nil
}

// Release lets the worker go on. It may be called again.
func (h *Held) Release() {
	if h.worker != nil {
		h.queue.Close()
		h.worker.still.Unlock()
		h.worker = nil
	}
}

// Step returns the step after which the state is.
func (h *Held) Step() plan.Step { return h.step }

// Plan returns the worker's plan as it goes on from there: with that step as its start, and the schedule of the next one.
func (h *Held) Plan() plan.Plan { return h.plan }

// Taken returns the commit of that step, for Config.Taken: the lost worker may have died before it did what that asks for. Zero at
// the start of the worker's plan.
func (h *Held) Taken() wire.Commit { return h.taken }

// Unmeasured reports whether no worker has float32 shadows any more after that step, for Config.Unmeasured.
func (h *Held) Unmeasured() bool { return h.unmeasured }

// Save refuses: who loads from here saves elsewhere.
func (h *Held) Save(context.Context, State) error {
	return fmt.Errorf("%w: nothing is saved there", ErrNoCopy)
}

// Load writes the state of a layer, as Keeper does.
func (h *Held) Load(_ context.Context, layer int, dst io.Writer) error {
	w := h.worker
	if w == nil {
		return fmt.Errorf("%w: it was released", ErrNoCopy)
	}
	for _, stage := range w.stages {
		if stage.place.Layers.Contains(layer) {
			check := w.checkState(h.step, "layer %d's state", layer)
			_, err := io.Copy(dst, newViewReader(h.queue, stage.views(w.spec.Model, layer), check, func() {}))
			return err
		}
	}
	return fmt.Errorf("%w: layer %d is not on %s", ErrNoCopy, layer, w.worker.Device)
}

// loadAll loads the state of the plan's start.
func (w *Worker) loadAll(ctx context.Context) error {
	w.still.Lock()
	defer w.still.Unlock()
	if err := w.load(ctx); err != nil {
		return err
	}
	w.loaded = true
	return nil
}

// update makes a committed step the state here.
func (w *Worker) update(ctx context.Context, s *stepRun, c wire.Commit) error {
	w.still.Lock()
	defer w.still.Unlock()
	if err := s.update(ctx, c); err != nil {
		return err
	}
	w.taken, w.unmeasured = c, unmeasured(w.unmeasured, c)
	if c.Next != "" && !c.Stop {
		w.following = c.Next
	}
	return nil
}
