package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"time"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/export/otlp"
	"pnode/node/generation"
	"pnode/node/gossip"
	"pnode/node/hardware"
	"pnode/node/hardware/sensors"
	"pnode/node/hearsay"
	"pnode/node/ingest"
	"pnode/node/leader"
	"pnode/node/leader/witness"
	"pnode/node/ledger"
	"pnode/node/listening"
	"pnode/node/metrics"
	"pnode/node/monitor"
	"pnode/node/notice"
	"pnode/node/plain"
	"pnode/node/replayer"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/link/silence"
	"pnode/pipeline/trace"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/announce"
	"pnode/swarm/clock"
	"pnode/swarm/consensus"
	"pnode/swarm/door"
	"pnode/swarm/listen"
)

// opening holds what Train and Join find out before the parts are started.
type opening struct {
	cfg        config.Config // Dir, and what the node may use of this machine
	membership membership
	identity   admission.Identity
	store      *checkpoint.Store
	hardware   hardware.Options
	// announce are the addresses that others are told besides those that are found; listen, if not empty, goes before the
	// membership's.
	announce announce.List
	relay    config.RelayRate
	listen   string
	// founder starts the consensus log of a new run; returning comes back to one, with a
	// store that must be there.
	founder, returning bool
	// extends is the later end that this start gives the run; 0 leaves it.
	extends plan.Step
	// reading opens the store to read alone.
	reading bool
}

// prepare reads how the hardware is used and opens the folder's identity and store.
func (o *opening) prepare(log *slog.Logger) (err error) {
	if o.hardware, err = hardware.OptionsOf(o.cfg); err != nil {
		return err
	}
	if !o.reading {
		mendFiles(o.cfg.Dir, log)
	}
	if o.identity, err = admission.LoadIdentity(o.cfg.Dir); err != nil {
		return err
	}
	o.store, err = checkpoint.Open(storeDir(o.cfg.Dir), checkpoint.Options{
		Self: o.identity.Peer(), Coming: checkpointer.Coming, Logger: log, MustExist: o.returning, ReadOnly: o.reading,
	})
	if errors.Is(err, checkpoint.ErrLocked) {
		return fmt.Errorf("%w (%w)", runs(o.cfg.Dir), err)
	}
	return err
}

// Running returns why a folder is no place for another start: a node runs there, or one of several local ones. It is nil while none does. The
// error wraps ErrRunning.
func Running(dir string) error {
	for _, node := range append(config.NodeDirs(dir), dir) {
		if checkpoint.Peek(storeDir(node)).InUse {
			return runs(dir)
		}
	}
	return nil
}

func runs(dir string) error {
	quoted := plain.Quote(dir)
	return fmt.Errorf("%w in %s already: `pnode status --dir %s` shows it, and Ctrl-C or `pnode leave --dir %s` ends it. For another node on this machine name another folder with --dir", ErrRunning, dir, quoted, quoted)
}

// tellVisible prints what the members of the run get to see, unless all are on this machine: none of them connects to
// this node, and it connects to none.
func (o *opening) tellVisible(out Output) {
	if !config.Reachable(o.membership.Listen) && !slices.ContainsFunc(o.membership.Known, far) {
		return
	}
	lines := config.TellMember()
	if own, _ := o.membership.owner(); o.founder || own {
		lines = config.TellOwner()
	}
	for _, line := range lines {
		out.Notice(line)
	}
}

// open starts all parts of a node. On an error everything is closed again, the store
// included.
func open(ctx context.Context, o opening, out Output) (_ *Node, err error) {
	dir, err := filepath.Abs(o.cfg.Dir) // for commands that people paste elsewhere
	if err != nil {
		return nil, fmt.Errorf("node: the run's folder: %w", err)
	}
	times := clock.New(nil, o.returning)
	names := &monitor.Names{}
	out.Log = names.Log(out.Log)
	n := &Node{
		log: out.Log, names: names, out: out, dir: dir, self: o.identity.Peer(), name: cmp.Or(o.cfg.Name, o.membership.Name, o.cfg.MachineName()),
		membership: o.membership, store: o.store, heartbeats: gossip.NewTracker(), clock: times,
		door:    door.New(admission.Run{ID: o.membership.Run, OwnerKey: o.membership.OwnerKey}, o.membership.Admitted, times.Now),
		started: time.Now(), recoverAfter: time.Duration(o.cfg.OnLostMajority),
		leaving: make(chan notice.Notice, 4), broken: make(chan error, 1),
	}
	n.ledger = ledger.New(n.dir, ledger.Head{Run: o.membership.Run, Peer: n.self, Name: n.name}, out.Log)
	n.membership.Name, n.membership.KeepWhole = n.name, cmp.Or(o.cfg.KeepWhole, n.membership.KeepWhole)
	if o.returning {
		if lost := lostRun(n.dir); lost != "" {
			n.out.Notice(lost)
		}
		n.lastKnown, n.kept, n.keptOwners = o.membership.Known, o.membership.Admitted, o.membership.Owners
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	n.listening = listening.New(n.dir, n.started, func(p plan.PeerID, now time.Time) (time.Duration, bool) {
		ago, heard := n.heartbeats.Ago(p, now)
		return max(0, ago-n.heartbeats.Slack(p)), heard
	}, out.Log)
	if n.epoch, err = nextEpoch(n.dir, time.Now()); err != nil {
		return nil, err
	}
	if n.notices, err = o.cfg.NoticeSetting(); err != nil {
		return nil, err
	}
	warn := func(text string) { // also people who watch several nodes
		n.monitor.Publish(api.Event{Kind: api.KindWarning, Generation: n.raft.State().Plan.Generation, Message: text})
	}
	if n.trace, n.spans, err = o.openTrace(n.name, warn); err != nil {
		return nil, err
	}
	o.hardware.Probe, o.hardware.Log = out.Probe, out.Log
	if n.hardware, err = hardware.Open(ctx, o.hardware); err != nil {
		return nil, err
	}
	// The end of ctx begins this node's way out, in good order: the parts live until Close.
	n.base, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := n.openNetwork(o); err != nil {
		return nil, err
	}
	names.Know(func(p plan.PeerID) string {
		state := n.raft.State()
		name := state.NameOf(p)
		if _, member := state.Member(p); member || name != p.Short() {
			return name
		}
		return string(p)
	})
	n.openRooms(o)
	n.custody.extends = o.extends
	scraped, err := o.cfg.MetricsAddr()
	if err != nil {
		return nil, err
	}
	if err := n.listen(scraped); err != nil {
		return nil, err
	}
	n.start()
	return n, nil
}

// openTrace begins to record what workers do, where somebody wants it, and to send some of it to a collector.
func (o *opening) openTrace(node string, warn func(string)) (r *trace.Recorder, e *otlp.Exporter, err error) {
	var spans func(trace.Span)
	switch {
	case o.cfg.OTLP != "":
		e, err = otlp.New(otlp.Options{
			URL: o.cfg.OTLP, Run: string(o.membership.Run), Node: node, Every: plan.Step(o.cfg.OTLPEvery), Warn: warn,
		})
		if err != nil {
			return nil, nil, err
		}
		spans = e.Span
	case o.cfg.Trace == "":
		return nil, nil, nil
	}
	r, err = trace.Open(o.cfg.Trace, plan.Step(o.cfg.OTLPEvery), spans)
	return r, e, err
}

// openNetwork brings this node into reach of the others: the swarm, the consensus on one of its
// protocols, and the links between stages.
func (n *Node) openNetwork(o opening) (err error) {
	if n.swarm, err = n.openSwarm(o); err != nil {
		return err
	}
	n.disk = &diskPace{dir: n.dir, log: n.log}
	store := raftStore{Bucket: n.store.Bucket("raft"), pace: n.disk}
	if n.out.simulation != nil {
		store.slow = n.out.simulation.slow
	}
	n.raft, err = consensus.Start(n.base, consensus.Config{
		Transport: raftTransport{n.swarm}, KV: store,
		Epoch: n.epoch, Run: string(o.membership.Run), Signer: o.identity, Bootstrap: o.founder, Contacts: n.contacts, Logger: n.log,
		Heard: n.listening.Silent, RecoverAfter: n.recoverAfter, Now: n.clock.Now,
		Owner: ownerOf(admission.Run{ID: o.membership.Run, OwnerKey: o.membership.OwnerKey}), Proof: o.membership.Capability,
	})
	if err != nil {
		return err
	}
	n.door.Open(n.raft)
	owner, err := o.owner()
	if err != nil {
		return err
	}
	n.ownership = ownership{self: n.self, run: o.membership.Run, owner: owner, swarm: n.swarm, log: n.raft, now: n.clock.Now}
	if own, _ := o.membership.owner(); o.cfg.LAN {
		if err := n.ownership.openLAN(n.name, own || o.founder, n.out); err != nil {
			return err
		}
	}
	n.links = link.NewEndpoint(n.swarm.Data(), link.Options{
		LeastTimeout: silence.LeastLink, Log: n.log, Name: func(p plan.PeerID) string { return n.raft.State().NameOf(p) },
	})
	return nil
}

// sensed returns what the sensors of a node's devices say; nothing in a simulation, which has none.
func sensed(w *sensors.Watch) (all []api.Sensor) {
	if w == nil {
		return nil
	}
	for _, r := range w.Readings(time.Now()) {
		all = append(all, api.Sensor{Device: r.Device, Celsius: r.Celsius, Watts: r.Watts})
	}
	return all
}

// lastStep returns the run's last step, 0 before the log says it.
func (n *Node) lastStep() plan.Step {
	if run := n.raft.State().Run; run != nil {
		return run.Train.Steps
	}
	return 0
}

// listen hears the members' gossip, and takes the port of the local interface, and an address for metrics where one is named.
func (n *Node) listen(scraped string) (err error) {
	members := n.swarm.Topics()
	n.heartbeats.Clock = n.clock
	hear := func(p gossip.Profile) { n.leader.Hear(n.base, p) }
	if err := errors.Join(n.heartbeats.Listen(members, n.lastStep), gossip.ListenToProfiles(members, hear)); err != nil {
		return err
	}
	if n.out.simulation != nil {
		n.out.simulation.opened(n)
		return nil
	}
	n.sensors = n.hardware.Sensors()
	n.metrics = metrics.New(metrics.Source{
		Status: n.monitor.Status, Traffic: n.links.Traffic, Control: n.swarm.Traffic,
		Voters: func() (int, uint64) { q := n.raft.Quorum(); return len(q.Voters), q.Changes },
	}, n.log)
	if err := n.metrics.Listen(scraped, n.out.Notice); err != nil {
		return err
	}
	n.api, err = api.Listen(api.Options{Dir: n.dir, Log: n.log, Metrics: n.metrics.Handler(), Node: struct {
		*monitor.Monitor
		*Node
		*ownership
		*custody
	}{n.monitor, n, &n.ownership, n.custody}})
	if err != nil {
		err = errors.Join(err, n.metrics.Close())
	}
	return err
}

// start runs what goes on until Close. The error of a part that the node cannot do without ends
// the loop.
func (n *Node) start() {
	essentials := []func(context.Context) error{n.links.Run, n.watchDisk}
	if n.api != nil {
		essentials = append(essentials, n.api.Run, n.metrics.Run)
		n.group.Go(func() error { n.monitor.Forward(n.metrics.Event); return nil })
		n.group.Go(func() error { n.sensors.Run(n.base); return nil })
	}
	for _, essential := range essentials {
		n.group.Go(func() error {
			if err := essential(n.base); err != nil {
				n.endWith(err)
			}
			return nil
		})
	}
	for _, run := range []func(context.Context){n.leader.Run, n.sendHeartbeats, n.monitor.FollowSteps, n.monitor.KeepLosses, n.ledger.Run, n.hearsay.Run, n.followRemovals} {
		n.group.Go(func() error { run(n.base); return nil })
	}
	n.group.Go(func() error {
		n.listening.Run(n.base, func() []plan.PeerID { return n.raft.Quorum().Voters })
		return nil
	})
	n.group.Go(func() error { n.monitor.Forward(n.out.Events); return nil })
	if n.spans != nil {
		ctx, cancel := context.WithCancel(n.base)
		ended := make(chan struct{})
		n.group.Go(func() error { n.spans.Run(ctx); close(ended); return nil })
		n.endSpans = func() { cancel(); <-ended }
	}
}

// openRooms gives each room what it needs of the node and its settings.
func (n *Node) openRooms(o opening) {
	n.requests = requests{n.swarm, n.log}
	commits := &pipeline.Commits{}
	generation.ServeCommits(n.requests, commits, n.raft.State)
	n.announcer = &gossip.Announcer{
		Self: n.self, Epoch: n.epoch, Members: n.swarm.Topics(), Network: n.swarm, Machine: n.hardware, State: n.raft.State, Log: n.log,
	}
	n.leader = leader.New(leader.Config{
		Self: n.self, Dir: n.dir, Consensus: n.raft, Peers: leaderPeers{n.swarm}, Heartbeats: n.heartbeats, Now: n.clock.Now, Log: n.log,
		Electable:    func() bool { return slices.Contains(n.raft.Quorum().Voters, n.self) },
		Losses:       func(g plan.Generation, step plan.Step) []gossip.StepLoss { return n.monitor.Losses(g, step) },
		Patience:     n.raft.Patience,
		AwaitHolders: time.Duration(o.cfg.AwaitHolders),
		Stops:        func() []planner.Stop { return n.monitor.Interruption.Pauses() },
		Exhibits:     witness.Config{Ask: n.words.Asker(n.requests, n.self), Keys: o.identity, Log: n.log},
	})
	n.words.ServeExhibits(n.requests)
	n.custody = &custody{
		mode: n.membership.KeepWhole, idle: n.hardware.Idle(), owners: n.keptOwners, unsettled: n.membership.Unsettled, heartbeats: n.heartbeats,
		wanted: make(chan struct{}, 1),
	}
	n.checkpointer = checkpointer.New(checkpointer.Config{
		Self: n.self, Store: n.store, Consensus: n.raft, Peers: n.requests, InitialPin: ingest.InitialPin, Log: n.log,
		Fetcher: checkpointer.Fetcher{Self: n.self, Store: n.store, Fetch: n.links.Fetch, Living: n.living, Silent: n.silent, Busy: busy}, Awaited: n.custody.steps, Answers: n.raft.Answers,
	})
	n.sampler = newSampler(n, plan.Step(o.cfg.SampleEvery), o.cfg.SamplePrompt)
	n.custody.asked.Store(o.cfg.SampleEvery > 0) // the model writes from what is whole here
	n.custody.whole = &checkpointer.Whole{
		Checkpointer: n.checkpointer, Keeps: n.custody.keeps, Wanted: n.custody.wanted, Changing: n.custody.changing, Took: n.sampler.Whole,
	}
	n.replayer = replayer.New(replayer.Config{
		Self: n.self, Peers: n.requests, Fetch: n.links.Fetch, Budget: n.hardware.SpareBytes,
		Log: n.raft, Replays: generation.Replays,
	})
	stored := n.handover.count(busyWithout(n.store.Chunk))
	n.links.ServeChunks(func(h plan.Hash) ([]byte, error) {
		if data, ok := n.replayer.Chunk(h); ok {
			return data, nil
		}
		return stored(h)
	})
	n.hearsay = hearsay.New(hearsay.Config{
		Self: n.self, Epoch: n.epoch, Peers: n.requests, State: n.raft.State, Living: n.living, Ledger: n.ledger, Log: n.log, Spread: gossip.Spread,
		Newest: func(p plan.Plan) plan.Step { return n.heartbeats.Newest(p, time.Now()) },
	})
	n.monitor = monitor.New(monitor.Config{
		Self: n.self, Run: n.membership.Run, Epoch: n.epoch, Dir: n.dir, Idle: n.hardware.Idle(), Trying: n.lastKnown,
		Heard: n.heardAgo, Unheard: n.listening.Silent, RecoverAfter: n.recoverAfter, SlowDisk: func() time.Duration { return n.disk.Slow(time.Now()) },
		Consensus: n.raft, Beats: n.heartbeats, Peers: n.requests, Stored: func() (checkpoint.Manifest, error) { return checkpoint.Newest(storeDir(n.dir)) }, Living: n.living, Kept: n.replayer.Since, Recorded: n.ledger.End, Links: n.meter.Rates, Addrs: n.announcer.Addrs, Log: n.log,
		Memory: n.out.memory(), Sensors: func() []api.Sensor { return sensed(n.sensors) },
	})
	n.custody.known = n.monitor.Known
	n.parts = generation.Parts{
		Self: n.self, Group: &n.group, Consensus: n.raft, Peers: n.requests, Links: n.links, Hardware: n.hardware, Checkpointer: n.checkpointer,
		Replayer: n.replayer, Heartbeats: n.heartbeats, Meter: &n.meter, Ledger: n.ledger, Words: &n.words, Keys: o.identity, Commits: commits,
		Next: n.leader.NextSchedule, Ready: n.trains, Newest: n.monitor.NewestStep,
		StandIn: func(w plan.WorkerID, step plan.Step) { n.monitor.Interruption.StandIn(w, step, time.Now()) },
		Watch:   reporter{n.monitor, n.raft.State, n.sendHeartbeat}, Trace: n.trace, Log: n.log,
	}
	n.restorer = generation.NewRestorer(&n.parts)
}

// openSwarm listens where this node was found last, if that is still free, and else where
// it was asked to.
func (n *Node) openSwarm(o opening) (*swarm.Swarm, error) {
	m := o.membership
	cfg := swarm.Config{
		Identity: o.identity, Epoch: n.epoch, Run: m.Run, OwnerKey: m.OwnerKey, Capability: m.Capability, Bootstrap: m.Known,
		MDNS: n.out.simulation == nil, Announce: o.announce, Logger: n.log, Admit: n.door.Admit, Offer: n.door.Offer, Socket: n.hardware.Socket(),
		RelayBytesPerS: o.relay.BytesPerS(), Simulated: n.out.simulated(), Clock: n.clock,
	}
	m.Listen = cmp.Or(o.listen, m.Listen)
	_, port, err := net.SplitHostPort(m.Listen)
	anyPort := m.Listen == "" || err == nil && port == "0"
	outgrown := config.Reachable(m.Listen) && !config.Reachable(m.Last) // others are to reach it now
	if m.Last != "" && m.Last != m.Listen && anyPort && !outgrown {
		cfg.Listen = []string{m.Last}
		s, err := swarm.New(n.base, cfg)
		if !errors.Is(err, listen.ErrPortInUse) {
			return s, err
		}
		n.log.Info("the last port is taken, listening on another", "last", m.Last)
	}
	cfg.Listen = nil
	if m.Listen != "" {
		cfg.Listen = []string{m.Listen}
	}
	return swarm.New(n.base, cfg)
}

// owner returns what this node signs invites with: the root key of a run that was founded here, or its identity where it
// came by an invite for owners; the zero Owner for others.
func (o *opening) owner() (admission.Owner, error) {
	owner, err := admission.LoadOwner(o.cfg.Dir)
	if errors.Is(err, admission.ErrNoOwnerKey) {
		owner, err = admission.OwnerBy(o.identity, o.membership.Capability, o.membership.OwnerKey)
	}
	if errors.Is(err, admission.ErrNoOwnerKey) {
		err = nil
	}
	return owner, err
}

// leaderPeers answers the leader's questions about members.
type leaderPeers struct{ *swarm.Swarm }

// Refuses reports whether a member's host says that its process has ended.
func (p leaderPeers) Refuses(ctx context.Context, peer plan.PeerID) bool {
	return p.Data().Refuses(ctx, peer)
}
