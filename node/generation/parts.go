package generation

import (
	"context"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/host"
	"pnode/node/checkpointer"
	"pnode/node/gossip"
	"pnode/node/hardware"
	"pnode/node/ledger"
	"pnode/node/outersteps"
	"pnode/node/replayer"
	"pnode/pipeline"
	"pnode/pipeline/collective"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/link"
	"pnode/pipeline/trace"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Parts holds what a generation needs of its node. All fields but Exchange and Trace are needed.
type Parts struct {
	Self plan.PeerID
	// Group runs all goroutines. The node waits for it.
	Group        *errgroup.Group
	Consensus    Consensus
	Peers        Peers
	Links        *link.Endpoint
	Hardware     Hardware
	Checkpointer *checkpointer.Checkpointer
	Replayer     *replayer.Replayer
	Heartbeats   *gossip.Tracker
	Meter        *gossip.LinkMeter
	Ledger       *ledger.Recorder
	Data         pipeline.Data
	// Words takes in what replicas with local steps here have handed in, for heartbeats.
	Words *outersteps.Words
	// Keys are this node's, under what its workers send in rounds of local steps.
	Keys seals.Keys
	// Exchange, unless nil, stands between a worker and its links: in tests of members that send other things than their workers do.
	Exchange func(plan.WorkerID, collective.Exchange) collective.Exchange
	// Commits outlives generations: others ask for commits of the one before.
	Commits *pipeline.Commits
	// Next returns what gives the schedules of a plan's steps, see pipeline.Config.
	Next func(plan.Plan) func(plan.Step) plan.ScheduleChoice
	// Ready reports whether a peer's workers have their state, as far as is known here.
	Ready func(plan.PeerID) bool
	// Newest returns the newest committed step.
	Newest func() plan.Step
	// StandIn hears which step a lost member's worker here has come to, at first that of the state that it begins with.
	StandIn func(plan.WorkerID, plan.Step)
	Watch   Watch
	Trace   *trace.Recorder
	Log     *slog.Logger
}

// toldBy returns what a member has said last of how often checkpoints are made; nil without a word.
func (p Parts) toldBy(peer plan.PeerID) *holders.Cadence {
	b, _ := p.Heartbeats.Last(peer)
	return b.Cadence
}

// Consensus gives the replicated state and its leader; *consensus.Node implements it.
type Consensus interface {
	outersteps.Log
	// Leader returns the leader, empty while none is known, and whether that is this node.
	Leader() (leader plan.PeerID, term plan.Term, self bool)
}

// Hardware has the node's devices; *hardware.Machine implements it.
type Hardware interface {
	// Device returns the device with a name. The error wraps kernels.ErrLost when it stopped working.
	Device(name string) (kernels.Device, error)
	// First returns the device that the node computes on when any will do.
	First() kernels.Device
	// Processor returns a device whose memory is the node's, whatever it computes on.
	Processor() (kernels.Device, error)
	// Host returns the memory for what stages keep off their devices.
	Host() *host.Memory
}

// Peers exchanges requests with the members of the run.
type Peers interface {
	// Ask sends request as JSON and returns the answer.
	Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error)
	// Serve answers the requests of a protocol from now on.
	Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error))
}

// Watch hears what happens. Its methods may be called concurrently.
type Watch interface {
	// Step takes in a step of a worker of this node. Where its replica makes it alone, it counts once it is in Counted.
	Step(pipeline.StepResult)
	// Counted takes in the run's steps of a round of local steps, of which a replica is coordinated here.
	Counted([]pipeline.StepResult)
	// Retained takes in what the workers here have left, which the others are to know at once.
	Retained([]gossip.RetainedStage)
	// Released says that the others need not know of it any more.
	Released()
	// Salvaging says that a salvage is carried out here, for which so many steps of lost members are computed again.
	Salvaging(replays plan.Step)
	// Replaying says that one of their workers has come to a step.
	Replaying(plan.Step)
	// Replayed says that this node has computed them again.
	Replayed()
	// Substituted says that another member goes on in a lost one's place, and that the links here know it.
	Substituted(consensus.Substitute)
}

// job says which worker of a plan is to be made, where it computes, and how it exchanges messages.
type job struct {
	worker   plan.WorkerID
	plan     plan.Plan
	device   kernels.Device
	exchange collective.Exchange
}

// config returns what the workers of the plan, of its substitutes and of its replays have in common. Each adds what it begins
// with and how it ends.
func (p Parts) config(state consensus.State, j job) pipeline.Config {
	return pipeline.Config{
		Worker: j.worker, Run: *state.Run, Plan: j.plan, Device: j.device, Exchange: hardware.Exchange(j.device, j.exchange), Host: p.Hardware.Host(),
		Data: p.Data, Keeper: p.Checkpointer.For(j.plan), NameOf: state.NameOf, Log: p.Log,
		OnStep: func(r pipeline.StepResult) { p.record(j.plan, j.worker, r) },
	}
}

// device returns the device for a worker of this node, or of a lost member: the one of the same name, if there is one here.
func (p Parts) device(name string) kernels.Device {
	device, err := p.Hardware.Device(name)
	if err != nil {
		return p.Hardware.First()
	}
	return device
}

// own returns this node's workers of a plan.
func (p Parts) own(of plan.Plan) []plan.WorkerID {
	return slices.DeleteFunc(of.Workers(), func(id plan.WorkerID) bool { return id.Peer != p.Self })
}

// record writes a worker's step into this node's ledger.
func (p Parts) record(of plan.Plan, id plan.WorkerID, r pipeline.StepResult) {
	if r.Final {
		return
	}
	w := ledger.Work{Generation: of.Generation, Worker: id, By: p.Self, Kind: kernels.KindOf(p.device(id.Device)), Replica: r.Replica, Shares: r.Schedule.Micros}
	if r.Replica != nil {
		w.Shares = nil // of it alone
	}
	for i, s := range r.Stages {
		w.Stages = append(w.Stages, ledger.StageWork{StageID: s.StageID, Layers: of.At(s.StageID).Layers, Micros: slices.Sorted(slices.Values(r.Added[i]))})
	}
	p.Ledger.Step(w, ledger.CommitOf(r.Step, r.Loss, r.Norm))
}
