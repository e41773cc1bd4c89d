package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/node/ledger"
	"pnode/node/plain"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/twofold"
)

// Config gives a Monitor its view of the node.
type Config struct {
	Self  plan.PeerID
	Run   plan.RunID
	Epoch uint64 // of this process
	Dir   string // keeps the loss curves
	// Idle devices compute nothing: losses mean nothing.
	Idle bool
	// Trying are addresses at which a node that comes back looks for the others.
	Trying []string
	// Heard returns how long ago a peer was heard of, at most since this process was started.
	Heard func(plan.PeerID) time.Duration
	// Unheard returns how long a peer was listened for without being heard, also by processes before.
	Unheard func(plan.PeerID) time.Duration
	// RecoverAfter is how long no leader may be known until this node recovers the run; 0 is never.
	RecoverAfter time.Duration
	// SlowDisk returns how long a write to a slow disk takes, 0 where the disk is quick enough; nil finds it so.
	SlowDisk  func() time.Duration
	Consensus Consensus
	Beats     *gossip.Tracker
	Peers     Peers
	// Stored returns the newest checkpoint that this node has a manifest of.
	Stored func() (checkpoint.Manifest, error)
	Living func() []plan.PeerID // may be asked
	// Kept returns the first step of which this node has kept all messages.
	Kept func() plan.Step
	// Recorded returns the newest step that this node's ledger has.
	Recorded func() ledger.Position
	// Links returns the rates of this node's links.
	Links func() []gossip.LinkRate
	Addrs func() []string
	// Memory returns how many bytes of memory this process takes, 0 where that is not known; nil knows nothing.
	Memory func() int64
	// Sensors returns what is known of the temperature and power of this node's devices; nil knows nothing.
	Sensors func() []api.Sensor
	Log     *slog.Logger
}

// Consensus is the replicated state of the run; *consensus.Node implements it.
type Consensus interface {
	State() consensus.State
	Leader() (plan.PeerID, plan.Term, bool)
	Quorum() consensus.Quorum
	// Logged returns the state by all of the log here, committed or not.
	Logged() (consensus.State, error)
}

// Peers exchanges requests with the members of the run.
type Peers interface {
	Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error)
	Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error))
}

// Monitor reports what a node does and knows of its run. Its methods may be called concurrently.
type Monitor struct {
	Config
	api.Hub // of what happens on this node
	steps   steps
	outer   outerWatch
	slow    *gossip.SlowDowns
	// Interruption follows the way from one plan to the next.
	Interruption Interruption
	view         viewCache
	memory       atomic.Int64 // this process takes, as measured last
	roster       roster       // the run loop's
	departed     departures
	rulings      []consensus.Blame     // known to the run loop; nil before its first look
	substitute   *consensus.Substitute // the run loop's, as last shown
	logged       loggedState
	// clocks belongs to whoever calls ShowClocks.
	clocks clockWatch
	// spares and shown belong to whoever calls ShowWaiting.
	spares spareWatch
	shown  shownWait

	mu       sync.Mutex // guards what follows
	phase    string
	stalled  plan.Generation // the generation that this node gave up; 0 for none
	stallWhy error
	lacks    bool // chunks of the checkpoint, which is why
	retained []gossip.RetainedStage
	deadline Deadline
	serving  string // why a node of a finished run stays; empty while it does not
}

// New returns the monitor of a node that joins. It answers other nodes' questions about steps
// and losses from now on.
func New(c Config) *Monitor {
	m := &Monitor{Config: c, phase: phaseJoining, slow: gossip.NewSlowDowns(), clocks: clockWatch{}}
	m.steps.log.publish = func(e api.Event) {
		if run := m.Consensus.State().Run; run != nil {
			e.LearningRate = pipeline.LearningRate(run.Train, e.Step)
		}
		e.MemoryBytes = m.memory.Load()
		m.Publish(e)
	}
	if l, err := twofold.Read(m.Dir, LossesFile, api.MaxLossesBytes, api.DecodeLosses); err == nil {
		m.Recall(l)
	} else if !errors.Is(err, fs.ErrNotExist) {
		m.Log.Warn("the loss curve begins anew", "cause", err)
	}
	m.Peers.Serve(protocolSteps, m.answerSteps)
	m.Peers.Serve(protocolLosses, func(context.Context, plan.PeerID, []byte) ([]byte, error) {
		return json.Marshal(m.History().Losses)
	})
	return m
}

// Forward hands all events to one function until Close. Cut off for being slow, it begins again
// where it was.
func (m *Monitor) Forward(to func(api.Event)) {
	last := uint64(0)
	for more := true; more; {
		more = false
		for e := range m.Events(context.Background()) {
			if e.Seq > last {
				to(e)
				last, more = e.Seq, true
			}
		}
	}
}

// SetPhase notes the node's phase, in a word of api.Status, and publishes it.
func (m *Monitor) SetPhase(phase string) {
	m.mu.Lock()
	m.phase = phase
	m.mu.Unlock()
	m.Publish(api.Event{Kind: api.KindState, Generation: m.Consensus.State().Plan.Generation, Message: phase})
}

// Begin notes that the node follows a new plan, and publishes it.
func (m *Monitor) Begin(state consensus.State) {
	m.SetStalled(0, nil, false, nil)
	m.Publish(api.Event{
		Kind: api.KindPlan, Generation: state.Plan.Generation, Step: state.Plan.Start,
		Message: summarize(state.Plan, reasonOf(state)),
	})
	m.Interruption.plan(state, m.Self, time.Now())
	m.steps.begin(state.Plan, state.Partings, state.Run.Train.Steps)
}

// SetStalled notes the generation that this node gave up, and why; 0 for none. lacks marks one
// given up for want of chunks of its checkpoint. What the workers here have left goes with it, as of SetRetained: the leader plans
// as soon as it knows that all have given the generation up.
func (m *Monitor) SetStalled(g plan.Generation, why error, lacks bool, left []gossip.RetainedStage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stalled, m.stallWhy, m.lacks, m.retained = g, why, lacks, left
}

// SetRetained notes what the workers here have left of the generation that this node gave up.
func (m *Monitor) SetRetained(stages []gossip.RetainedStage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retained = stages
}

// SetServing notes why this node stays in a finished run; empty for no reason.
func (m *Monitor) SetServing(why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serving = why
}

// SetDeadline notes when a node that comes back stops looking for the others.
func (m *Monitor) SetDeadline(d Deadline) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deadline = d
}

// Stalled reports whether this node gave up the current generation.
func (m *Monitor) Stalled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stalled != 0
}

// Saved publishes a newly committed checkpoint, or the way back to an older one.
func (m *Monitor) Saved(e api.Event) {
	m.Interruption.save(time.Now())
	m.Publish(e)
}

// Step takes in a step of one of this node's workers. It is the workers' OnStep.
func (m *Monitor) Step(r pipeline.StepResult) {
	state := m.Consensus.State()
	left := m.steps.report(r, tokensPerStep(*state.Run), time.Now())
	if !r.Final { // after the report: the heartbeat that tells of it is of this step
		train, model := state.Run.Train, state.Run.Model
		work := gossip.Work{Micros: train.Micros, MessageBytes: 4 * train.MicroBatch * model.Context * model.Channels}
		m.slow.Note(state.Plan.Generation, r, m.Links(), work)
	}
	if told, ok := m.Interruption.step(r.Step, time.Now()); ok {
		m.Publish(api.Event{Kind: api.KindInterruption, Generation: state.Plan.Generation, Step: r.Step, Message: told.Text(), Interruption: &told})
	}
	if left == "" {
		return
	}
	text := fmt.Sprintf("from step %d on %s", r.Step, otherSchedule(r.Schedule, left))
	leader, _, _ := m.Consensus.Leader()
	if w := m.Beats.Wish(leader); w.Generation == state.Plan.Generation && w.Schedule == r.Schedule.String() {
		why, _, _ := strings.Cut(w.Why, ";") // the status has all of it
		text += ": " + why
	}
	m.Publish(api.Event{Kind: api.KindSchedule, Generation: state.Plan.Generation, Step: r.Step, Message: text})
}

// Counted takes in the run's steps of a round of local steps, which have counted.
func (m *Monitor) Counted(steps []pipeline.StepResult) {
	m.steps.count(steps, tokensPerStep(*m.Consensus.State().Run), time.Now())
}

// otherSchedule names a schedule that takes the place of another one, whose text is given.
func otherSchedule(to plan.ScheduleChoice, left string) string {
	from, err := plan.ParseScheduleChoice(left)
	switch {
	case err != nil:
		return to.Short()
	case from.Short() == to.Short():
		return to.Short() + " in other orders"
	}
	return to.Short() + " instead of " + from.Short()
}

// Slower receives a value when a stage or a link here has become slower, which others should hear of at once. It has one
// reader.
func (m *Monitor) Slower() <-chan struct{} { return m.slow.News() }

// NewestStep returns the newest committed step of the current generation.
func (m *Monitor) NewestStep() plan.Step { return m.steps.current().Step }

// Heartbeat returns what this node's next heartbeat reports of its work and the newest step.
func (m *Monitor) Heartbeat() gossip.Heartbeat {
	b := gossip.Heartbeat{Peer: m.Self, Links: m.Links(), Replayed: m.Interruption.replaying()}
	m.steps.fillHeartbeat(&b)
	m.slow.Fill(&b)
	m.mu.Lock()
	defer m.mu.Unlock()
	b.Phase, b.Stalled, b.Retained = m.phase, m.stalled, m.retained
	if m.stallWhy != nil {
		b.Reason, b.Lacks = plain.Text(m.stallWhy), m.lacks
		if f := (*plan.Fault)(nil); errors.As(m.stallWhy, &f) {
			b.Fault = f
		}
		var lack interface{ LackedLayer() int }
		if m.lacks && errors.As(m.stallWhy, &lack) {
			layer := lack.LackedLayer()
			b.LacksLayer = &layer
		}
	}
	return b
}
