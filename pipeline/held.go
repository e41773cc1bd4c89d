package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"pnode/kernels"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// ErrNoCopy is wrapped by errors about state that a worker cannot give to the substitute of a lost one.
var ErrNoCopy = errors.New("pipeline: no state for a lost worker")

// Held is the state of workers' stages after one step, while the workers go on: their next updates wait until the Held is
// released. Lost workers of another replica go on from it elsewhere, and have the same bits then. It is a Keeper that only
// loads. Its methods may be called concurrently.
type Held struct {
	step  plan.Step
	plan  plan.Plan
	taken wire.Commit
	// unmeasured says that no worker has float32 shadows any more.
	unmeasured bool

	mu    sync.Mutex // guards parts
	parts []heldPart // none once it is released
}

// heldPart holds one worker, with a queue to read its state.
type heldPart struct {
	worker *Worker
	queue  kernels.Queue
}

// Hold waits for updates under way and holds the state of some workers of one node after one and the same step: one that is a step
// behind is waited for until ctx ends. The errors wrap ErrNoCopy: the state is not there yet, or not as a whole. Release it.
func Hold(ctx context.Context, workers ...*Worker) (*Held, error) {
	if len(workers) == 0 {
		return nil, ErrNoCopy
	}
	for {
		h, behind, err := hold(workers)
		if err != nil || behind == nil {
			return h, err
		}
		select {
		case <-behind:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: some workers are a step behind others: %w", ErrNoCopy, ctx.Err())
		}
	}
}

// hold holds workers as they are. Where one is behind the others it holds nothing, and returns what is closed with that one's next update.
func hold(workers []*Worker) (h *Held, behind <-chan struct{}, err error) {
	h = &Held{}
	defer func() {
		if err != nil || behind != nil {
			h.Release()
			h = nil
		}
	}()
	var least *Worker
	for _, w := range workers {
		step, err := w.hold(h)
		switch {
		case err != nil:
			return h, nil, err
		case least == nil || step < least.stages[0].step:
			least = w
		}
		h.step = max(h.step, step)
	}
	if least.stages[0].step < h.step {
		return h, least.updated, nil
	}
	if least.taken.Step == h.step {
		h.taken = least.taken
	}
	h.unmeasured = least.unmeasured
	p := least.program
	if least.following != "" {
		if p, err = p.with(least.following); err != nil {
			return h, nil, fmt.Errorf("%w: %w", ErrNoCopy, err)
		}
	}
	h.plan = p.plan
	h.plan.Start = h.step
	return h, nil, nil
}

// hold adds the worker to what is held and returns the step after which its state is.
func (w *Worker) hold(h *Held) (step plan.Step, err error) {
	queue, err := w.cfg.Device.NewQueue()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoCopy, err)
	}
	w.still.Lock()
	h.parts = append(h.parts, heldPart{w, queue})
	for i, stage := range w.stages {
		switch {
		case !w.loaded, w.local != nil, w.validator.optimistic != nil, stage.torn, stage.offload != nil, len(stage.layersInParts()) > 0, i > 0 && stage.step != step:
			return 0, fmt.Errorf("%w: replica %d stage %d has none of its own", ErrNoCopy, stage.Replica, stage.Stage)
		}
		step = stage.step
	}
	return step, nil
}

// Release lets the workers go on. It may be called again.
func (h *Held) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, part := range h.parts {
		part.queue.Close()
		part.worker.still.Unlock()
	}
	h.parts = nil
}

// Step returns the step after which the state is.
func (h *Held) Step() plan.Step { return h.step }

// Plan returns the workers' plan as it goes on from there: with that step as its start, and the schedule of the next one.
func (h *Held) Plan() plan.Plan { return h.plan }

// Taken returns the commit of that step, for Config.Taken: a lost worker may have died before it did what that asks for. Zero at
// the start of the workers' plan.
func (h *Held) Taken() wire.Commit { return h.taken }

// Unmeasured reports whether no worker has float32 shadows any more after that step, for Config.Unmeasured.
func (h *Held) Unmeasured() bool { return h.unmeasured }

// Save refuses: who loads from here saves elsewhere.
func (h *Held) Save(context.Context, State) error {
	return fmt.Errorf("%w: nothing is saved there", ErrNoCopy)
}

// Load writes the state of a layer, as Keeper does: all of it, since the workers wait.
func (h *Held) Load(_ context.Context, layer int, _ Part, dst io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, part := range h.parts {
		w := part.worker
		for _, stage := range w.stages {
			if stage.place.Layers.Contains(layer) {
				check := w.checkState(h.step, "layer %d's state", layer)
				_, err := io.Copy(dst, newViewReader(part.queue, stage.views(w.spec, layer), check, func() {}))
				return err
			}
		}
	}
	return fmt.Errorf("%w: layer %d is not among it, or it was released", ErrNoCopy, layer)
}

// update makes a committed step the state here.
func (w *Worker) update(ctx context.Context, s *stepRun, c wire.Commit) error {
	w.still.Lock()
	defer w.still.Unlock()
	if err := w.validator.validate(c); err != nil {
		return err
	}
	if err := s.update(ctx, c); err != nil {
		return err
	}
	w.taken, w.unmeasured = c, unmeasured(w.unmeasured, c)
	close(w.updated)
	w.updated = make(chan struct{})
	if c.Next != "" && !c.Stop {
		w.following = c.Next
	}
	return nil
}
