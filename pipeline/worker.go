package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/pipeline/wire"
	"pnode/planner"
)

// ErrBadConfig is wrapped by the errors of New that say which field does not fit.
var ErrBadConfig = errors.New("pipeline: bad worker config")

// Data gives token windows; dataset.Dataset is one. What it gives is a pure function of the
// arguments; it may have to fetch it until ctx ends.
type Data interface {
	// Micro gives tokens and targets [batch,T] of a micro-batch of a step.
	Micro(ctx context.Context, step planner.Step, micro planner.Micro, batch int) (tokens, targets []int32, err error)
	// HeldOut gives window set index of the held-out text, in [0, HeldOutMicros).
	HeldOut(ctx context.Context, index, batch int) (tokens, targets []int32, err error)
	HeldOutMicros(batch, limit int) int
	// DocumentStarts gives where in its row the document of each of these tokens [batch,T]
	// begins.
	DocumentStarts(tokens []int32) []int32
}

// Keeper stores and loads layer states (see LayerState for the layout).
type Keeper interface {
	// Save reads the state; it returns when the state is safe here and at the holder and
	// is reported to the planner.
	Save(ctx context.Context, s State) error
	// Load writes the state of a layer at the plan's start step to dst, LayerStateBytes. At
	// step 0 it is asked only where the run has initial weights, and writes these: the
	// parameters of the model without adapters.
	Load(ctx context.Context, layer int, dst io.Writer) error
}

// Config is everything a worker needs. All fields but Next, Trace and, where the plan keeps nothing
// there, Host are required.
type Config struct {
	Seat   planner.Seat
	Run    planner.RunSpec
	Plan   planner.Plan
	Device kernels.Device
	// Host is the memory for optimizer state that the plan keeps off the device.
	Host     *host.Memory
	Data     Data
	Exchange collective.Exchange
	Keeper   Keeper
	// Stop tells the coordinator to make its next commit the last of this plan, with a save.
	Stop func() bool
	// Next tells the coordinator, at the commit of a step, the course of the steps behind it;
	// the present one, or one that cannot be carried out, changes nothing.
	Next     func(step planner.Step) planner.Course
	OnLoaded func()
	OnStep   func(StepResult)
	Trace    *trace.Recorder
	Log      *slog.Logger
}

// StepResult is what a worker knows of a step once it is committed.
type StepResult struct {
	Step planner.Step
	// Loss is the mean over all micro-batches, in nats a token, before the update.
	Loss float64
	// HeldOut is the held-out loss before the update; nil on steps without evaluation.
	HeldOut *float64
	// HeldOutF32 is the same with all in float32, messages included: nil where all is, or where it
	// was not measured.
	HeldOutF32 *float64
	// Norm is the global gradient norm before clipping.
	Norm float64
	// Course is the one on which the step went.
	Course planner.Course
	// Final marks the closing evaluation after the last update: held-out losses only.
	Final bool
	// Total is the step's wall time, Stages where it went.
	Total  time.Duration
	Stages []StageTimes
}

// StageTimes is where a step's wall time went on one stage of this worker. Wait is for
// messages to the stage.
type StageTimes struct {
	planner.Holding
	Forward, Backward, Wait, Update time.Duration
	// Forth are the activations that the stage sent on, Back the gradients that it sent back.
	Forth, Back CodecUse
}

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
	losses    map[planner.Micro]float64
	rows      map[planner.Micro][]float32 // losses of each token, from which these are made
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
	w := &Worker{cfg: cfg, opt: Optimizer{train: cfg.Run.Train}, losses: map[planner.Micro]float64{}, rows: map[planner.Micro][]float32{}}
	if err := w.build(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Worker) build() error {
	if w.number = slices.Index(w.cfg.Plan.Seats(), w.cfg.Seat); w.number < 0 {
		return fmt.Errorf("%w: the plan has nothing on device %s of %s", ErrBadConfig, w.cfg.Seat.Device, w.cfg.Seat.Peer)
	}
	var err error
	if w.list, err = Programs(w.cfg.Plan); err != nil {
		return err
	}
	if err := w.checkRoom(); err != nil {
		return err
	}
	for _, at := range w.cfg.Plan.Holdings(w.cfg.Seat) {
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
func find(stages []*holding, r planner.Replica, s planner.Stage) *holding {
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

// step runs one optimizer update and tells whether the run stops after it.
func (w *Worker) step(ctx, saves context.Context, step planner.Step) (stop bool, err error) {
	begin := time.Now()
	for _, h := range w.holdings {
		h.times = StageTimes{Holding: h.Holding}
		if err := h.saving.poll(); err != nil {
			return false, err
		}
	}
	evaluated, err := w.evaluate(ctx, step)
	if err != nil {
		return false, err
	}
	if err := w.gradients(ctx, step); err != nil {
		return false, err
	}
	squares, err := w.squares()
	if err != nil {
		return false, err
	}
	commit, err := w.agree(ctx, step, squares, evaluated)
	if err != nil {
		return false, err
	}
	if err := w.apply(ctx, saves, step, commit); err != nil {
		return false, err
	}
	w.dropTwins(commit)
	w.note(step, schedule.Action{Op: schedule.Step}, w.settling)
	result := StepResult{
		Step: step, Loss: commit.Loss, HeldOut: commit.HeldOut, HeldOutF32: commit.HeldOutF32, Norm: commit.Norm,
		Course: w.cfg.Plan.Course(), Total: time.Since(begin),
	}
	for _, h := range w.holdings {
		h.tally(w.cfg.Log, step)
		result.Stages = append(result.Stages, h.times)
	}
	w.cfg.OnStep(result)
	if commit.Next != "" && !commit.Stop {
		err = w.follow(commit.Next)
	}
	return commit.Stop, err
}

// gradients runs the program: afterwards every layer here has the gradient of the step,
// summed over micro-batches and replicas. What runs beside it ends with it.
func (w *Worker) gradients(ctx context.Context, step planner.Step) error {
	clear(w.losses)
	clear(w.rows)
	for _, h := range w.holdings {
		h.stack.ZeroGrads(w.queue)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.beside, ctx = errgroup.WithContext(ctx)
	departures, passes := make(chan departure, maxDepartures), make(chan pass, maxPasses)
	w.departures, w.passes, w.awaited, w.free = departures, passes, nil, time.Now()
	w.beside.Go(func() error { return depart(departures, cancel) })
	w.beside.Go(func() error { return w.watch(ctx, step, passes, cancel) })
	program := w.list.Workers[w.number]
	for i, a := range program {
		err := ctx.Err() // a lone stage meets it nowhere else
		if err == nil {
			err = w.expectActivations(ctx, step, program[i:])
		}
		if err == nil {
			err = w.do(ctx, step, a)
		}
		if err != nil {
			cause := context.Cause(ctx) // of what ended beside the program
			cancel(err)
			return errors.Join(cause, w.settle(), fmt.Errorf("%v: %w", a, err))
		}
	}
	return nil
}

// settle waits for what runs beside the program, which sends and computes no more.
func (w *Worker) settle() error {
	if w.departures != nil {
		close(w.departures)
		close(w.passes)
		w.departures, w.passes = nil, nil
	}
	return w.beside.Wait()
}

// apply makes a committed step the state of what is held here, and has it saved where the
// commit says so.
func (w *Worker) apply(ctx, saves context.Context, step planner.Step, commit wire.Commit) error {
	for _, h := range w.holdings {
		if err := h.saving.read(ctx); err != nil {
			return err
		}
		if err := w.update(h, step, commit.GradScale); err != nil {
			return err
		}
	}
	for _, h := range w.holdings {
		if commit.GradScale != 0 {
			w.gather(ctx, h, step, commit.Stop || step == w.cfg.Run.Train.Steps)
		}
	}
	if !commit.Save {
		return nil
	}
	if err := w.allGathered(); err != nil {
		return err
	}
	for _, h := range w.holdings {
		if err := h.ferry.settle(); err != nil {
			return err
		}
		if err := w.save(saves, h, step); err != nil {
			return err
		}
	}
	return nil
}

// update applies the committed step to a stage. Scale 0 stands for a gradient that is not
// finite: it must not touch the moments, because 0 times infinity is no number.
func (w *Worker) update(h *holding, step planner.Step, gradScale float64) error {
	h.step = step
	begin := time.Now()
	defer func() { h.times.Update += time.Since(begin) }()
	if gradScale == 0 {
		w.roundAgain(h)
		return w.queue.Sync()
	}
	return w.opt.update(w.queue, h, step, gradScale)
}

// roundAgain rounds parameters that a step has left as they were like those that it has changed:
// a run that is resumed behind it does not know.
func (w *Worker) roundAgain(h *holding) {
	if noise := w.opt.rounding(h.step); noise.On {
		h.stack.RoundWeights(w.queue, noise)
	}
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
