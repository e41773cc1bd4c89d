package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Worker runs what a plan has on one seat. It belongs to one goroutine.
type Worker struct {
	cfg      Config
	holdings []*holding // in the order of replicas and stages
	// twins are, in the same order, those of replica 0 in float32, where it is not throughout;
	// untwinned is why one here cannot be had.
	twins     []*holding
	untwinned error
	queue     kernels.Queue
	list      schedule.Schedule // all workers' programs
	opt       Optimizer
	square    kernels.Buffer // [1] result of SumSquares
	losses    map[plan.Micro]float64
	rows      map[plan.Micro][]float32 // losses of each token, from which these are made
	// beside the program of a step run its reductions and copies; what is to be sent goes to
	// departures, what is to be computed to passes. settling is when the program came to wait for
	// what is beside.
	beside     *errgroup.Group
	departures chan departure // nil outside of a program
	passes     chan pass      // likewise
	settling   time.Time
	awaited    []await   // by the next pass
	free       time.Time // when the device was done with the last pass: watch's within a program
	number     int       // of the seat in the plan
}

// New checks the plan against the run and allocates everything the steps will need; after
// New no step allocates on the device.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Plan.Validate(cfg.Run.Model.Layers(), cfg.Run.Train.Micros); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	if err := cfg.Plan.CheckTied(cfg.Run.Model); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	w := &Worker{cfg: cfg, opt: Optimizer{train: cfg.Run.Train}, losses: map[plan.Micro]float64{}, rows: map[plan.Micro][]float32{}}
	if err := w.build(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Worker) build() error {
	if w.number = slices.Index(w.cfg.Plan.Workers(), w.cfg.Seat); w.number < 0 {
		return fmt.Errorf("%w: the plan has nothing on device %s of %s", ErrBadConfig, w.cfg.Seat.Device, w.cfg.Seat.Peer)
	}
	var err error
	if w.list, err = Programs(w.cfg.Plan); err != nil {
		return err
	}
	if err := w.checkRoom(); err != nil {
		return err
	}
	for _, at := range w.cfg.Plan.StagesOf(w.cfg.Seat) {
		h, err := newHolding(w.cfg, at, w.list.Use(w.number, at.Replica, at.Stage))
		w.holdings = append(w.holdings, h)
		if err != nil {
			return err
		}
	}
	join(w.holdings)
	if w.square, err = w.cfg.Device.Alloc(kernels.F32, 1); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	if w.queue, err = w.cfg.Device.NewQueue(); err != nil {
		return err
	}
	if err := w.warm(); err != nil {
		return err
	}
	return w.prepare()
}

// join makes those of some stages that follow each other known to each other.
func join(stages []*holding) {
	for _, h := range stages {
		if next := find(stages, h.Replica, h.Stage+1); next != nil {
			h.behind, next.before = next, h
		}
	}
}

// find is the one of them that is a certain stage, nil where none is.
func find(stages []*holding, r plan.Replica, s plan.Stage) *holding {
	for _, h := range stages {
		if h.Replica == r && h.Stage == s {
			return h
		}
	}
	return nil
}

// Run loads the state of what is held here and trains from the plan's start step to the
// run's last one, or until a commit says stop. Saves begin under the context saves and may
// go on after Run; Saved waits for them. The error of a cancelled ctx is returned wrapped.
func (w *Worker) Run(ctx, saves context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer w.abandon()
	defer cancel()
	if err := w.load(ctx); err != nil {
		return err
	}
	w.cfg.Trace.Name(w.number, fmt.Sprintf("worker %d: %s of %s", w.number, w.cfg.Seat.Device, w.cfg.Seat.Peer.Short()))
	w.cfg.OnLoaded()
	for _, h := range w.holdings {
		h.ferry.start()
	}
	for step := w.cfg.Plan.Start + 1; step <= w.cfg.Run.Train.Steps; step++ {
		stop, err := w.step(ctx, saves, step)
		if err != nil {
			return fmt.Errorf("pipeline: generation %d step %d on %s of %s: %w", w.cfg.Plan.Generation, step, w.cfg.Seat.Device, w.cfg.Seat.Peer, err)
		}
		if stop {
			return nil
		}
	}
	return w.closingEvaluation(ctx)
}

// abandon waits until nothing of a cancelled step is under way.
func (w *Worker) abandon() {
	for _, h := range w.holdings {
		_ = h.gathering.wait()
		h.ferry.stop()
	}
}

// Saved waits for the saves under way; their errors come out here or at the next step.
func (w *Worker) Saved() error {
	var errs []error
	for _, h := range w.holdings {
		errs = append(errs, h.saving.wait())
	}
	return errors.Join(errs...)
}

// Close gives the device memory back. Run and Saved must have returned.
func (w *Worker) Close() {
	if w.queue != nil {
		w.queue.Close()
	}
	if w.square != nil {
		w.square.Free()
	}
	for _, h := range w.holdings {
		h.close()
	}
}
