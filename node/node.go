package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/checkpoint"
	"pnode/kernels/devices"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/export/otlp"
	"pnode/node/generation"
	"pnode/node/gossip"
	"pnode/node/hardware"
	"pnode/node/hardware/sensors"
	"pnode/node/hearsay"
	"pnode/node/ingest"
	"pnode/node/leader"
	"pnode/node/ledger"
	"pnode/node/listening"
	"pnode/node/metrics"
	"pnode/node/monitor"
	"pnode/node/notice"
	"pnode/node/outersteps"
	"pnode/node/plain"
	"pnode/node/replayer"
	"pnode/node/textsamples"
	"pnode/pipeline/link"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/clock"
	"pnode/swarm/consensus"
	"pnode/swarm/door"
)

// Output is where a node shows itself to whoever started it, and what it needs of them.
type Output struct {
	// Events gets everything that happens, one call at a time.
	Events func(api.Event)
	// Notice gets lines for people: the invite, what the text is.
	Notice func(string)
	// Newcomer hears of each machine of the local network that asks to be let in, with what lets it in or refuses it; it does not block. nil: people
	// are told in a notice.
	Newcomer func(n api.Newcomer, answer api.Decision)
	Log      *slog.Logger
	// Probe looks at the devices of this machine's drivers; without it the node computes on
	// the processor alone.
	Probe devices.Probe
	// simulation, if not nil, stands in for this machine's sockets.
	simulation *simulation
}

// simulation lets tests run whole nodes in virtual time. Such a node has no local API, whose socket would hold that time up.
type simulation struct {
	network *swarm.Simulated
	// opened gets the node before its parts start.
	opened func(*Node)
	// slow, if not nil, is called before each write of the log.
	slow func()
}

// simulated returns what stands in for sockets; nil for nothing.
func (o Output) simulated() *swarm.Simulated {
	if o.simulation == nil {
		return nil
	}
	return o.simulation.network
}

// memory returns what measures this process's memory: nothing where many nodes of a simulation share it.
func (o Output) memory() func() int64 {
	if o.simulation != nil {
		return nil
	}
	return hardware.ProcessBytes
}

// tellFolder prints where the run is and how to look on, once it is known that there is one.
func (o Output) tellFolder(dir string) {
	o.Notice("run folder: " + dir)
	o.Notice("live page: pnode watch --dir " + plain.Quote(dir))
}

// Node holds the parts of one member of a run. open sets them and bootstrap adds the text; they
// do not change afterwards. The loop owns everything that does.
type Node struct {
	log        *slog.Logger
	names      *monitor.Names
	out        Output
	dir        string
	self       plan.PeerID
	name       string // of the machine, for people
	epoch      uint64 // of this process: larger each time it starts
	started    time.Time
	clock      *clock.Clock
	membership membership
	// recoverAfter is how long no leader may be known until this node recovers the run; 0 is never.
	recoverAfter time.Duration
	// admitted reports that the run has let this node in: from then on the membership is saved.
	admitted bool
	// kept are the peers that belonged to the run at the start before; set only on resume.
	kept []plan.PeerID
	// keptOwners are its owners then; set only on resume.
	keptOwners []plan.PeerID
	// lastKnown holds the others' addresses from the start before; set only on resume.
	lastKnown []string

	store        *checkpoint.Store
	disk         *diskPace // the store is on
	hardware     *hardware.Machine
	swarm        *swarm.Swarm
	door         *door.Door
	ownership    ownership
	requests     requests
	raft         *consensus.Node
	links        *link.Endpoint
	ledger       *ledger.Recorder
	words        outersteps.Words // of replicas with local steps here
	meter        gossip.LinkMeter
	heartbeats   *gossip.Tracker
	listening    *listening.Listening
	announcer    *gossip.Announcer
	leader       *leader.Leader
	checkpointer *checkpointer.Checkpointer
	custody      *custody
	sampler      *textsamples.Sampler
	replayer     *replayer.Replayer
	parts        generation.Parts // what generations need of this node
	restorer     *generation.Restorer
	hearsay      *hearsay.Hearsay
	monitor      *monitor.Monitor
	api          *api.Server // nil in a simulation, as are metrics and sensors
	metrics      *metrics.Exporter
	sensors      *sensors.Watch
	trace        *trace.Recorder // nil without one
	spans        *otlp.Exporter  // of some steps; nil where nobody wants them
	endSpans     func()          // sends the last of these, and waits

	group    errgroup.Group
	base     context.Context // of everything that runs until Close
	cancel   context.CancelFunc
	notices  notice.Setting
	leaving  chan notice.Notice // whoever asks this node to leave
	handover handover
	broken   chan error // the first error of an essential goroutine
}

// watchDisk ends the node when its folder was removed, or the consensus could
// not store what it must.
func (n *Node) watchDisk(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-n.store.Failed():
		return err
	case err := <-n.raft.Failed():
		return err
	}
}

// contacts returns the peers to which a proposal may be sent while no leader is known.
func (n *Node) contacts() []plan.PeerID {
	var peers []plan.PeerID
	for _, c := range n.swarm.Members() {
		peers = append(peers, c.Peer)
	}
	return peers
}

// living returns the nodes that may be asked for chunks.
func (n *Node) living() []plan.PeerID { return livingOf(n.raft.State(), n.contacts()) }

// silent reports whether another node was not heard of for longer than one that lives should be, or data does not reach it.
func (n *Node) silent(p plan.PeerID) bool {
	return n.listening.Silent(p) > 3*gossip.Every || n.links.Missing(p)
}

// trains reports whether a node's workers have their state, as far as is known here.
func (n *Node) trains(p plan.PeerID) bool {
	b, _ := n.heartbeats.Last(p)
	return b.Phase == string(Training) || b.Phase == string(Draining)
}

// livingOf returns the roster's members that are not gone, and who else is connected: the founder
// of a run may enter the roster after others. The connection to a node that died outlives it.
func livingOf(state consensus.State, connected []plan.PeerID) []plan.PeerID {
	var peers []plan.PeerID
	for _, m := range state.Members {
		if m.State != consensus.Gone {
			peers = append(peers, m.Peer)
		}
	}
	for _, p := range connected {
		if _, member := state.Member(p); !member {
			peers = append(peers, p)
		}
	}
	return peers
}

// Close ends everything that open started and waits for it.
func (n *Node) Close() error {
	var errs []error
	if n.raft != nil {
		errs = append(errs, n.raft.Close())
	}
	if n.endSpans != nil { // before those go to whom it says what is missing
		n.endSpans()
	}
	if n.cancel != nil {
		n.cancel()
	}
	if n.monitor != nil {
		n.monitor.Close()
	}
	errs = append(errs, n.group.Wait())
	if n.swarm != nil {
		errs = append(errs, n.ownership.closeLAN(), n.saveMembership(), n.swarm.Close())
	}
	if n.hardware != nil {
		errs = append(errs, n.hardware.Close())
	}
	errs = append(errs, n.ledger.Close(), n.store.Close(), n.trace.Close())
	return errors.Join(errs...)
}

// saveMembership writes down where this node and the others are, once it is in the run.
func (n *Node) saveMembership() error {
	if !n.admitted {
		return nil
	}
	n.membership.Known = n.swarm.Known()
	if n.raft != nil {
		state := n.raft.State()
		n.membership.Admitted = admittedOf(state, n.membership.Admitted)
		if state.Run != nil {
			n.membership.Owners, n.membership.OwnerNames = state.Owners, namesIn(state, state.Owners)
		}
	}
	if last, ok := n.swarm.Listening(); ok {
		n.membership.Last = last
	}
	return n.membership.save(n.dir)
}

// endWith has the loop end with an error. The first one is enough.
func (n *Node) endWith(err error) {
	select {
	case n.broken <- err:
	default:
	}
}

// requestLeave wakes the loop. Of many requests at the same time some are enough.
func (n *Node) requestLeave(why notice.Notice) {
	select {
	case n.leaving <- why:
	default:
	}
}

// sendHeartbeats publishes a heartbeat at this node's pace until ctx ends, within a second where it tells something new, and at once where
// a stage became slower or another schedule is wanted. It shows when nothing moves.
func (n *Node) sendHeartbeats(ctx context.Context) {
	tick := time.NewTicker(gossip.Every)
	defer tick.Stop()
	for {
		if b := n.heartbeat(); n.heartbeats.Due(b, time.Now()) {
			n.publish(b)
		}
		n.monitor.ShowWaiting(time.Now())
		n.monitor.ShowClocks(n.clock.Astray())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-n.monitor.Slower():
		case <-n.leader.Wished():
		case <-n.checkpointer.Turned():
		}
	}
}

// sendHeartbeat sends this node's heartbeat, due or not.
func (n *Node) sendHeartbeat() { n.publish(n.heartbeat()) }

// publish notes a heartbeat of this node here and sends it.
func (n *Node) publish(b gossip.Heartbeat) {
	if err := n.heartbeats.Send(n.base, n.swarm.Topics(), b); err != nil {
		n.log.Debug("heartbeat", "cause", err)
	}
}

// heartbeat returns what this node says of itself now.
func (n *Node) heartbeat() gossip.Heartbeat {
	b := n.monitor.Heartbeat()
	n.leader.Fill(&b)
	if whole := n.custody.whole.Copy(); whole != (plan.WholeCopy{}) {
		b.Whole = &whole
	}
	if kept := n.replayer.Kept(); kept.Generation == cmp.Or(b.Stalled, b.Generation) {
		b.Kept, b.NoReplay = kept.First, kept.Failed
	}
	b.HandedIn, b.Found, b.Met = n.words.Of(b.Generation), n.words.Found(b.Generation), n.words.Met()
	b.NoRestore, b.LeftOut = n.restorer.Failed(), n.checkpointer.LeftOut()
	b.Copying, b.Cadence = n.checkpointer.Copying(), n.checkpointer.Told(b.Generation)
	switch state := n.raft.State(); {
	case n.custody.extends > state.Checkpoint.Step:
		b.Extends = n.custody.extends
	case state.Finished:
		b.Finished = state.Checkpoint.Step
	}
	return b
}

// chunks returns the run's chunks on this node.
func (n *Node) chunks() ingest.Chunks {
	return ingest.Chunks{Store: n.store, Fetch: n.checkpointer.Fetcher.Await}
}

// The invite that train prints is for inviteUses nodes within inviteTTL.
const (
	inviteUses = 64
	inviteTTL  = 24 * time.Hour
	// inviteTimeout is how long the start waits for it, besides what the log takes.
	inviteTimeout = 10 * time.Second
)

// announceInvite prints an invite where others can reach this node. Without one the node goes on: others can make it later.
func (n *Node) announceInvite(ctx context.Context) error {
	if n.membership.Listen == "" || !n.raft.State().Owner(n.self) {
		return nil
	}
	return n.out.tellInvite(ctx, inviteTimeout+n.raft.Patience(), func(ctx context.Context) (string, error) {
		return n.ownership.Invite(ctx, api.InviteRequest{TTL: inviteTTL, Uses: inviteUses})
	})
}

// tellInvite prints an invite, or why there is none. Only the end of ctx is an error.
func (o Output) tellInvite(ctx context.Context, patience time.Duration, invite func(context.Context) (string, error)) error {
	proposing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := invite(proposing)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		o.Log.Warn("no invite", "cause", err)
		o.Notice(fmt.Sprintf("no invite could be made: %v; the run goes on, make one with `pnode invite`", err))
	default:
		o.Notice(fmt.Sprintf("join from another machine or terminal (%d nodes may, until %s) with:\n  pnode join %s",
			inviteUses, time.Now().Add(inviteTTL).Format("2006-01-02 15:04 MST"), text))
	}
	return nil
}

// The methods that follow are those of api.Node that neither package monitor nor ownership has.

// Leave begins this node's way out of the run.
func (n *Node) Leave(context.Context) error {
	n.requestLeave(notice.Notice{Why: "pnode leave"})
	return nil
}

// Stop asks all nodes to save and stop. Where nobody has led the run for leaderPatience it refuses at once: the log takes nothing then.
func (n *Node) Stop(ctx context.Context) error {
	if lost := n.raft.Quorum().LostSince; !lost.IsZero() && time.Since(lost) > leaderPatience {
		return api.NotReady(fmt.Sprintf("no leader of the run answers this node, so nothing can stop all of it now; `pnode status --dir %[1]s` says what is missing, Ctrl-C or `pnode leave --dir %[1]s` ends this node alone", plain.Quote(n.dir)))
	}
	return n.raft.Propose(ctx, consensus.WantStop{})
}

// leaderPatience is how long a run may be without a leader until a request to stop it is refused.
const leaderPatience = 6 * time.Second

// Recover goes on with the run without the majority of voters that is lost for good.
func (n *Node) Recover(ctx context.Context) (api.Recovery, error) {
	r, err := n.raft.Recover(ctx)
	if err != nil {
		return api.Recovery{}, err
	}
	state := n.raft.State()
	if state.Recovery == nil || state.Recovery.ID() != r.ID() {
		known, err := n.raft.Logged()
		return api.Recovery{By: known.NameOf(r.By), Follows: true}, err
	}
	oldest, whole := consensus.NewestWhole(state)
	return api.Recovery{
		By: state.NameOf(r.By), Without: namesIn(state, r.Dead), Incarnation: state.Incarnation, Lost: !whole, Step: oldest.Step, Newest: max(state.Checkpoint.Step, n.monitor.NewestStep()),
	}, nil
}

// heardAgo returns how long ago a peer was heard of, at most since this node was started.
func (n *Node) heardAgo(p plan.PeerID) time.Duration {
	now := time.Now()
	if ago, ok := n.heartbeats.Ago(p, now); ok {
		return ago
	}
	return now.Sub(n.started)
}

// Checkpoints lists the checkpoints that this node keeps.
func (n *Node) Checkpoints() (api.CheckpointList, error) {
	return checkpointer.List(n.store, n.raft.State().NameOf)
}

// Profiles lists what plans know of the members' devices and lines.
func (n *Node) Profiles() (api.Profiles, error) {
	return monitor.Profiles(n.raft.State(), n.heartbeats)
}
