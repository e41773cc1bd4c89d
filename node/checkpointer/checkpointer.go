package checkpointer

import (
	"context"
	"log/slog"
	"sync/atomic"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Config holds the parts that a Checkpointer works with. All fields but InitialPin, Awaited and Answers are needed.
type Config struct {
	Self      plan.PeerID
	Store     *checkpoint.Store
	Fetcher   Fetcher
	Consensus Consensus
	Peers     Peers
	// InitialPin names the pin of the weights that the run starts from, which the first
	// checkpoint replaces.
	InitialPin string
	// Awaited returns the steps of replaced checkpoints that stay: they are being brought to a member, or read. nil: none.
	Awaited func() []plan.Step
	// Answers reports whether a member answers a question at once, by whatever way there is. nil: nobody is asked.
	Answers func(context.Context, plan.PeerID) bool
	Log     *slog.Logger
}

// Consensus gives the replicated state; *consensus.Node implements it.
type Consensus interface {
	consensus.Log
	Propose(ctx context.Context, e consensus.Entry) error
}

// Peers exchanges requests with the members of the run.
type Peers interface {
	// Ask sends request as JSON and returns the answer. The error wraps ErrRemote where the member has answered with one.
	Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error)
	// Serve answers the requests of a protocol from now on.
	Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error))
}

// Checkpointer moves layer states between stages, the local store, other nodes and the log.
// Its methods may be called concurrently.
type Checkpointer struct {
	Config
	copying atomic.Int32            // checkpoints and copies of stages here that are under way
	turns   chan struct{}           // receives a value when the first begins and when the last ends
	cadence atomic.Pointer[Cadence] // of the newest generation here
	leftOut atomic.Uint64           // see LeftOut
	waiting waiting                 // copies that others ask for
}

// New returns a Checkpointer that holds copies for other members from now on.
func New(c Config) *Checkpointer {
	made := &Checkpointer{Config: c, turns: make(chan struct{}, 1)}
	c.Peers.Serve(protocolCopy, made.hold)
	return made
}

// Copying reports whether checkpoints of stages here, or copies of them, are under way that end with the plan.
func (c *Checkpointer) Copying() bool { return c.copying.Load() > 0 }

// LeftOut returns the newest step of which a stage here was not saved for want of room on the disk; 0 once a later one was, and with a new plan.
func (c *Checkpointer) LeftOut() plan.Step { return plan.Step(c.leftOut.Load()) }

// Turned receives a value when Copying has changed. It has one reader.
func (c *Checkpointer) Turned() <-chan struct{} { return c.turns }

// count notes that something of what Copying reports begins, until done is called.
func (c *Checkpointer) count() (done func()) {
	turn := func(by, edge int32) {
		if c.copying.Add(by) == edge {
			select {
			case c.turns <- struct{}{}:
			default: // it was not read yet
			}
		}
	}
	turn(1, 1)
	return func() { turn(-1, 0) }
}

// PlanSaver saves and loads the stages of one plan. It implements pipeline.Keeper.
type PlanSaver struct {
	*Checkpointer
	plan     plan.Plan
	replica  plan.Replica // whose state Load gives where replicas begin with their own
	salvages bool         // what the plan's end has left
	// moments is closed when Fetch has no more of them on their way; nil: it had none.
	moments <-chan struct{}
}

// For returns the PlanSaver of a plan's workers.
func (c *Checkpointer) For(p plan.Plan) PlanSaver { return PlanSaver{Checkpointer: c, plan: p} }

// Salvage returns the saver of what the workers of a plan have left in memory at its end.
func (c *Checkpointer) Salvage(p plan.Plan) PlanSaver {
	return PlanSaver{Checkpointer: c, plan: p, salvages: true}
}

// Of returns the saver of one of the plan's replicas.
func (s PlanSaver) Of(r plan.Replica) PlanSaver {
	s.replica = r
	return s
}
