package pipeline

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"pnode/kernels"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

// ErrBadConfig is wrapped by the errors of New that say which field does not fit.
var ErrBadConfig = errors.New("pipeline: bad worker config")

// Data gives token windows; dataset.Dataset is one. What it gives is a pure function of the
// arguments; it may have to fetch it until ctx ends.
type Data interface {
	// Micro gives tokens and targets [batch,T] of a micro-batch of a step.
	Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error)
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
	Seat   plan.WorkerID
	Run    plan.RunSpec
	Plan   plan.Plan
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
	Next     func(step plan.Step) plan.ScheduleChoice
	OnLoaded func()
	OnStep   func(StepResult)
	Trace    *trace.Recorder
	Log      *slog.Logger
}

// StepResult is what a worker knows of a step once it is committed.
type StepResult struct {
	Step plan.Step
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
	Course plan.ScheduleChoice
	// Final marks the closing evaluation after the last update: held-out losses only.
	Final bool
	// Total is the step's wall time, Stages where it went.
	Total  time.Duration
	Stages []StageTimes
}

// StageTimes is where a step's wall time went on one stage of this worker. Wait is for
// messages to the stage.
type StageTimes struct {
	plan.StageID
	Forward, Backward, Wait, Update time.Duration
	// Forth are the activations that the stage sent on, Back the gradients that it sent back.
	Forth, Back CodecUse
}
