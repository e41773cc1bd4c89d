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
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// ErrBadConfig is wrapped by the errors of New that name the field which does not fit.
var ErrBadConfig = errors.New("pipeline: bad worker config")

// Data gives token windows; dataset.Dataset is one. They are a pure function of the arguments; Data
// may have to fetch them until ctx ends.
type Data interface {
	// Micro returns tokens and targets [batch,T] of a micro-batch of a step.
	Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error)
	// HeldOut returns window set index of the held-out text, in [0, HeldOutMicros).
	HeldOut(ctx context.Context, index, batch int) (tokens, targets []int32, err error)
	HeldOutMicros(batch, limit int) int
	// DocumentStarts returns for each of these tokens [batch,T] where in its row its document begins.
	DocumentStarts(tokens []int32) []int32
}

// Keeper stores and loads layer states (see LayerState for the layout).
type Keeper interface {
	// Save reads the state, unless it has it of another replica. It returns when the state is safe here, at the
	// holder where no other plan follows at once, and is reported to the leader.
	Save(ctx context.Context, s State) error
	// Load writes the state of a layer at the plan's start step to dst, LayerStateBytes, or a part of it. At step 0
	// it is asked only where the run has initial weights, and writes those as a whole: the parameters of the
	// model without adapters. A replica that begins with Own gets moments, and what messages lacked, of that one, and nothing of a part that was not saved.
	Load(ctx context.Context, layer int, of Part, dst io.Writer) error
}

// Part names what of a layer's state is loaded.
type Part int

// The parts of a state, in stored order.
const (
	Whole Part = iota
	Parameters
	Moments
	// OuterMomentum and Missed are of checkpoints of local plans, see LayerState.
	OuterMomentum
	Missed
)

// Config holds everything that a worker needs. All fields but Replica, First, Local, Due, Next, Late, Loaded, Commits, Replay, Taken, Unmeasured, Again, Committed, From, Usual, NameOf, Trace and, where the plan keeps
// nothing there, Host are required.
type Config struct {
	Worker plan.WorkerID
	Run    plan.RunSpec
	Plan   plan.Plan
	Device kernels.Device
	// Host is the memory for optimizer state that the plan keeps off the device.
	Host     *host.Memory
	Data     Data
	Exchange collective.Exchange
	Keeper   Keeper
	// Replica and First say which replica of a plan with local steps this is, where Run and Plan are its own, see plan.Alone: its micro-batch m
	// is First + m of the run's, and its messages have the number Replica.
	Replica plan.Replica
	First   plan.Micro
	// Local has the replica make outer steps with the others; nil: it never meets them.
	Local *Local
	// Stop reports to the coordinator that its next commit is to be the last of this plan, with a save.
	Stop func() bool
	// Due reports to the coordinator that the state after a step is to be saved, where the run does not say every how
	// many steps; nil: it is not.
	Due func(step plan.Step) bool
	// Next returns to the coordinator, at the commit of a step, the schedule of the steps after it;
	// the present one, or one that cannot be carried out, changes nothing.
	Next func(step plan.Step) plan.ScheduleChoice
	// Late has the first step begin with the parameters: moments, which only the update needs, are loaded meanwhile, and the step is reported
	// once they are here. It changes nothing where the plan keeps them off the device.
	Late bool
	// OnLoaded is called when the worker has all of its state, by any goroutine.
	OnLoaded func()
	// Loaded reports whether a peer has its state, as far as is known here: before all have, nobody is late with
	// the first step. Nil: all have.
	Loaded func(plan.PeerID) bool
	// Replay holds the commits of the steps after the plan's start, where these were made before: the worker computes
	// them again, from what others sent then, and ends; Retain has its state. See package replay.
	Replay []wire.Commit
	// Taken is the commit of the plan's start step where the worker goes on in the place of a lost one: what it asks for besides
	// the update is done first, a save and perhaps the end. The coordinator sends it to all others before. Zero: nothing.
	Taken wire.Commit
	// Unmeasured says that no worker has float32 shadows at the plan's start any more, since an evaluation went without them: this one
	// makes none either before another schedule begins.
	Unmeasured bool
	// SecondTry says that all workers have the plan's first activations in a second try, see Commits.SecondTry.
	SecondTry bool
	// Committed holds the commits of the steps after that, in order, which a lost coordinator had made and some worker may have taken: its
	// substitute repeats them. One of step 0 is that after the last update. Nil: nobody has any.
	Committed []wire.Commit
	// Commits takes in the commits of the steps.
	Commits *Commits
	// From holds the worker of the generation before on the device, after Keep. State that the plan has here unchanged
	// stays in memory: it is neither allocated nor loaded. Nil: all is loaded.
	From *Retained
	// Usual is what a step took in the generation before; 0 where nobody here knows.
	Usual  time.Duration
	OnStep func(StepResult)
	// NameOf returns what people call a peer, for traces and logs; nil: the end of its ID.
	NameOf func(plan.PeerID) string
	Trace  *trace.Recorder
	Log    *slog.Logger
}

// StepResult is a worker's account of a step after its commit.
type StepResult struct {
	Step plan.Step
	// Replica has made the step on its own, with its share of the micro-batches; nil: all replicas together.
	Replica *plan.Replica
	// Loss is the mean over all micro-batches, in nats a token, before the update.
	Loss float64
	// HeldOut is the held-out loss before the update; nil on steps without evaluation.
	HeldOut *float64
	// HeldOutF32 is the same with all in float32, messages included: nil where all is, or where it
	// was not measured.
	HeldOutF32 *float64
	// Norm is the global gradient norm before clipping.
	Norm float64
	// Schedule is the choice that the step ran on.
	Schedule plan.ScheduleChoice
	// Optimistic says that the worker applied the step before its commit, RolledBack that the commit asked for another update.
	Optimistic, RolledBack bool
	// Final marks the closing evaluation after the last update: held-out losses only.
	Final bool
	// Total is the step's wall time, Stages where it went.
	Total  time.Duration
	Stages []StageTimes
	// Added lists for each of Stages the run's micro-batches that its gradient was summed over, as they came.
	Added [][]plan.Micro
}

// StageTimes says where a step's wall time went on one stage of this worker. Wait is for messages to
// the stage.
type StageTimes struct {
	plan.StageID
	Forward, Backward, Wait, Update time.Duration
	// SentForward counts the activations that the stage sent on, SentBack the gradients that it sent
	// back.
	SentForward, SentBack CodecUse
}

// sent returns the counts of messages of a kind.
func (t *StageTimes) sent(k wire.Kind) *CodecUse {
	if k == wire.Gradient {
		return &t.SentBack
	}
	return &t.SentForward
}

// codecSteps is how many steps lie between two log lines on what a codec costs.
const codecSteps = 50

// CodecUse says how the boundary tensors that a stage sent to a neighbour were written.
type CodecUse struct {
	Messages int
	// FellBack of them did not fit the boundary's codec and took a better one.
	FellBack int
	// RelError is the largest relative error of a message, as its sender measured it: the root of the
	// summed squares of the receiver's errors, divided by the root of the tensor's.
	RelError float64
}

func (u *CodecUse) add(e wire.Encoded) {
	u.Messages++
	if e.Refused != 0 { // NaN too
		u.FellBack++
	}
	u.RelError = max(u.RelError, e.RelError)
}

// Plus returns the use of both.
func (u CodecUse) Plus(v CodecUse) CodecUse {
	return CodecUse{u.Messages + v.Messages, u.FellBack + v.FellBack, max(u.RelError, v.RelError)}
}
