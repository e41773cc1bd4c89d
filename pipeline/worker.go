package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
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

// Config is everything a worker needs. All fields are required.
type Config struct {
	Self     planner.PeerID
	Run      planner.RunSpec
	Plan     planner.Plan
	Replica  planner.Replica
	Stage    planner.Stage
	Device   kernels.Device
	Data     Data
	Exchange collective.Exchange
	Keeper   Keeper
	// Stop tells the coordinator to make its next commit the last of this plan, with a save.
	Stop     func() bool
	OnLoaded func()
	OnStep   func(StepResult)
	Log      *slog.Logger
}

// StepResult is what a worker knows of a step once it is committed.
type StepResult struct {
	Replica planner.Replica
	Stage   planner.Stage
	Step    planner.Step
	// Loss is the mean over all micro-batches, in nats a token, before the update.
	Loss float64
	// HeldOut is the held-out loss before the update; nil on steps without evaluation.
	HeldOut *float64
	// Norm is the global gradient norm before clipping.
	Norm float64
	// Final marks the closing evaluation after the last update: HeldOut only.
	Final bool
	Times StageTimes
}

// StageTimes is where a step's wall time went on this worker.
type StageTimes struct{ Forward, Backward, Wait, Update, Total time.Duration }

// Worker runs one placement. It belongs to one goroutine.
type Worker struct {
	cfg     Config
	pipe    planner.Pipeline
	place   planner.Placement
	stack   *model.Stack
	queue   kernels.Queue
	saves   kernels.Queue // of the save under way
	actions []schedule.Action
	opt     Optimizer
	slots   slots
	square  kernels.Buffer // [1] result of SumSquares
	losses  map[planner.Micro]float64
	saving  saving
	times   StageTimes
}

// New checks the placement against the run and allocates everything the steps will
// need; after New no step allocates on the device.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Plan.Validate(cfg.Run.Model.Layers(), cfg.Run.Train.Micros); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	if int(cfg.Replica) >= len(cfg.Plan.Replicas) || int(cfg.Stage) >= len(cfg.Plan.Replicas[cfg.Replica].Stages) {
		return nil, fmt.Errorf("%w: the plan has no replica %d stage %d", ErrBadConfig, cfg.Replica, cfg.Stage)
	}
	w := &Worker{cfg: cfg, pipe: cfg.Plan.Replicas[cfg.Replica], losses: map[planner.Micro]float64{}}
	w.place = w.pipe.Stages[cfg.Stage]
	if w.place.Peer != cfg.Self {
		return nil, fmt.Errorf("%w: replica %d stage %d belongs to %s, this is %s", ErrBadConfig, cfg.Replica, cfg.Stage, w.place.Peer, cfg.Self)
	}
	if err := w.build(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Worker) build() error {
	list, err := Schedule(w.cfg.Plan)
	if err != nil {
		return err
	}
	w.actions = list.Worker(w.cfg.Replica, w.cfg.Stage)
	w.slots = newSlots(w.actions)
	w.opt = Optimizer{train: w.cfg.Run.Train}
	cfg := stackConfig(w.cfg.Run, w.place.Layers, w.actions)
	cfg.Device = w.cfg.Device
	if w.stack, err = model.NewStack(cfg); err != nil {
		return fmt.Errorf("pipeline: layers [%d,%d): %w", cfg.First, cfg.End, err)
	}
	if w.square, err = w.cfg.Device.Alloc(kernels.F32, 1); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	if w.queue, err = w.cfg.Device.NewQueue(); err != nil {
		return err
	}
	w.saves, err = w.cfg.Device.NewQueue()
	return err
}

// stackConfig is the stack, without its device, that these actions on these layers need.
func stackConfig(run planner.RunSpec, layers planner.LayerRange, actions []schedule.Action) model.StackConfig {
	slots := newSlots(actions)
	return model.StackConfig{
		Model: run.Model, First: layers.First, End: layers.End, MicroBatch: run.Train.MicroBatch,
		Slots: slots.count(), SplitBackward: splits(actions), Moments: momentVectors,
		DocumentMask: run.Train.DocumentMask, Recompute: run.Train.Recompute.Uniform(layers.End - layers.First),
		Storage: run.Train.Storage,
	}
}

// Memory is what the stack of a stage of a valid plan allocates on its device: all that
// grows with the model, the micro-batch and the micro-batches in flight.
func Memory(run planner.RunSpec, plan planner.Plan, replica planner.Replica, stage planner.Stage) (model.Memory, error) {
	list, err := Schedule(plan)
	if err != nil {
		return model.Memory{}, err
	}
	layers := plan.Replicas[replica].Stages[stage].Layers
	return stackConfig(run, layers, list.Worker(replica, stage)).Memory()
}

// Schedule is the action list of every worker under a plan, with sends and receives.
func Schedule(p planner.Plan) (schedule.Schedule, error) {
	var parts []schedule.Schedule
	for r, pipe := range p.Replicas {
		part, err := pipeSchedule(p.Schedule, planner.Replica(r), pipe)
		if err != nil {
			return schedule.Schedule{}, fmt.Errorf("%w: replica %d: %w", ErrBadConfig, r, err)
		}
		parts = append(parts, part)
	}
	s := schedule.WithCommunication(schedule.Join(parts...))
	if err := schedule.Validate(s, schedule.Limits{}); err != nil {
		return schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	return s, nil
}

func pipeSchedule(name string, r planner.Replica, pipe planner.Pipeline) (schedule.Schedule, error) {
	shape := schedule.Shape{Replica: r, Stages: len(pipe.Stages), FirstMicro: pipe.FirstMicro, Micros: pipe.Micros}
	switch name {
	case "gpipe":
		return schedule.GPipe(shape)
	case "1f1b":
		return schedule.Warmups(shape, pipe.Warmups)
	default:
		return schedule.Schedule{}, fmt.Errorf("schedule %q, known are 1f1b and gpipe", name)
	}
}

// splits tells whether a program has input and weight gradients apart.
func splits(actions []schedule.Action) bool {
	for _, a := range actions {
		if a.Op == schedule.BackwardInput {
			return true
		}
	}
	return false
}

// Run loads the stage's state and trains from the plan's start step to the run's last
// one, or until a commit says stop. Saves begin under the context saves and may go on
// after Run; Saved waits for them. The error of a cancelled ctx is returned wrapped.
func (w *Worker) Run(ctx, saves context.Context) error {
	if err := w.load(ctx); err != nil {
		return err
	}
	w.cfg.OnLoaded()
	for step := w.cfg.Plan.Start + 1; step <= w.cfg.Run.Train.Steps; step++ {
		stop, err := w.step(ctx, saves, step)
		if err != nil {
			return fmt.Errorf("pipeline: generation %d step %d replica %d stage %d: %w", w.cfg.Plan.Generation, step, w.cfg.Replica, w.cfg.Stage, err)
		}
		if stop {
			return nil
		}
	}
	return w.closingEvaluation(ctx)
}

// Saved waits for the save under way; its error comes out here or at the next step.
func (w *Worker) Saved() error { return w.saving.wait() }

// step runs one optimizer update and tells whether the run stops after it.
func (w *Worker) step(ctx, saves context.Context, step planner.Step) (stop bool, err error) {
	begin := time.Now()
	if err := w.saving.poll(); err != nil {
		return false, err
	}
	w.times = StageTimes{}
	heldOut, err := w.evaluate(ctx, step)
	if err != nil {
		return false, err
	}
	w.stack.ZeroGrads(w.queue)
	clear(w.losses)
	for _, a := range w.actions {
		if err := ctx.Err(); err != nil { // a lone stage meets it nowhere else
			return false, err
		}
		if err := w.do(ctx, step, a); err != nil {
			return false, fmt.Errorf("%v: %w", a, err)
		}
	}
	squares, err := w.reduce(ctx, step)
	if err != nil {
		return false, err
	}
	commit, err := w.agree(ctx, step, squares, heldOut)
	if err != nil {
		return false, err
	}
	if err := w.saving.read(ctx); err != nil {
		return false, err
	}
	if err := w.update(step, commit.GradScale); err != nil {
		return false, err
	}
	if commit.Save {
		if err := w.save(saves, step); err != nil {
			return false, err
		}
	}
	w.times.Total = time.Since(begin)
	w.cfg.OnStep(StepResult{
		Replica: w.cfg.Replica, Stage: w.cfg.Stage, Step: step,
		Loss: commit.Loss, HeldOut: commit.HeldOut, Norm: commit.Norm, Times: w.times,
	})
	return commit.Stop, nil
}

// update applies the committed step. Scale 0 stands for a gradient that is not finite: it
// must not touch the moments, because 0 times infinity is no number.
func (w *Worker) update(step planner.Step, gradScale float64) error {
	if gradScale == 0 {
		return nil
	}
	return w.timed(&w.times.Update, func() {
		w.opt.update(w.queue, w.stack, w.cfg.Run.Model, w.place.Layers, step, gradScale)
		w.stack.RoundWeights(w.queue)
	})
}

// Close gives the device memory back. Run and Saved must have returned.
func (w *Worker) Close() {
	for _, q := range []kernels.Queue{w.queue, w.saves} {
		if q != nil {
			q.Close()
		}
	}
	if w.square != nil {
		w.square.Free()
	}
	if w.stack != nil {
		w.stack.Close()
	}
}

func (w *Worker) first() bool { return w.cfg.Stage == 0 }
func (w *Worker) last() bool  { return int(w.cfg.Stage) == len(w.pipe.Stages)-1 }
