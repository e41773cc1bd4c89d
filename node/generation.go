package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pnode/node/checkpointer"
	"pnode/node/hardware"
	"pnode/node/ledger"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/link/silence"
	"pnode/pipeline/replay"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// generation carries one plan out on this node: a session of links and a worker for each device
// here.
type generation struct {
	*Node
	state   consensus.State // whose plan it is
	plan    plan.Plan
	end     context.CancelCauseFunc
	done    chan error           // one result, after the workers have returned
	loaded  chan struct{}        // closed when every worker here has its state
	loading atomic.Int32         // workers here that do not
	held    []*pipeline.Retained // what is left once done has its result
	from    []*pipeline.Retained // what the generation before has left, until workers here take it over
	kept    int                  // layers here whose state stayed in memory; valid once loaded is closed
	sent    *replay.Log          // what workers here send to other nodes
	cadence *checkpointer.Cadence
	stepped chan struct{} // closed when a worker here has made its first step
	newest  atomic.Uint64 // the newest step that a worker here has made
	first   sync.Once     // closes stepped
	session atomic.Pointer[link.Session]
	// substitutes receives who goes on in a lost member's place, once; replaced is set when it has, and is the loop's.
	substitutes chan consensus.Substitute
	replaced    bool
}

// errReplaced ends a generation because another plan took its place.
var errReplaced = errors.New("node: another plan took over")

// errGivenUp ends a generation because another member of its plan has, for want of a link.
var errGivenUp = fmt.Errorf("node: another member has given the generation up: %w", link.ErrLeft)

// missedToo is the silence of a link by which this node agrees with another one that has lost its own to the same peer.
const missedToo = silence.LeastLink / 2

// lostGrace is how long workers have to notice a lost link themselves, and to say what they missed.
const lostGrace = 300 * time.Millisecond

// lostPeerError ends a generation because a neighbour went silent.
type lostPeerError struct {
	name  string
	fault *plan.Fault
}

func (e lostPeerError) Error() string { return fmt.Sprintf("node: lost the link to %s", e.name) }

func (e lostPeerError) Unwrap() error { return e.fault }

// lost returns why the generation ends without the link to a peer, which lives as far as is known.
func (g *generation) lost(session *link.Session, peer plan.PeerID) error {
	if f := session.Fault(peer); f != nil {
		return lostPeerError{g.state.NameOf(peer), f}
	}
	return g.without(peer, "lost the link to it")
}

// without is the reason to end the generation for want of a peer.
func (g *generation) without(peer plan.PeerID, why string) error {
	return lostPeerError{g.state.NameOf(peer), &plan.Fault{Accused: peer, Kind: plan.LostLink, Step: g.monitor.NewestStep(), Detail: why}}
}

// startGeneration begins to carry the state's plan out. The result on done is nil when all
// workers here finished or stopped on a commit. The generation goes on with the state that the workers of from have in
// memory.
func (n *Node) startGeneration(ctx context.Context, state consensus.State, from []*pipeline.Retained) *generation {
	ctx, end := context.WithCancelCause(ctx)
	g := &generation{
		Node: n, state: state, plan: state.Plan, end: end, from: from,
		done: make(chan error, 1), loaded: make(chan struct{}),
		sent: n.replayer.Begin(state.Plan), cadence: checkpointer.NewCadence(), stepped: make(chan struct{}),
		substitutes: make(chan consensus.Substitute, 1),
	}
	n.group.Go(func() error {
		err := g.run(ctx)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		end(nil)
		g.done <- err
		return nil
	})
	return g
}

// stop ends the generation and blocks until its workers have returned.
func (g *generation) stop(cause error) error {
	g.end(cause)
	return <-g.done
}

// run runs the workers here until all have finished their steps or one fails. A lost link ends
// the steps; saves under way go on as long as the generation does.
func (g *generation) run(ctx context.Context) (err error) {
	session := g.links.Session(g.plan.Generation, g.plan.Peers(), link.Rules{Expect: pipeline.Expected(*g.state.Run, g.plan), Replaceable: g.replaceable})
	g.session.Store(session)
	defer func() {
		if err == nil {
			session.Close()
			return
		}
		// It may wait for a peer that is gone. What is left here does not: the others wait to hear of it.
		g.group.Go(func() error {
			session.Close()
			return nil
		})
	}()
	defer g.meter.Follow(session.Stats)()
	session.Warm(pipeline.StepBytes(*g.state.Run), g.plan.Neighbours(g.self)...) // while the state is being loaded
	defer func() {
		for _, r := range g.from {
			r.Close()
		}
	}()
	if lacking := g.keep(); g.plan.Start > 0 {
		g.checkpointer.For(g.plan).Fetch(ctx, lacking)
	}
	here := slices.DeleteFunc(g.plan.Workers(), func(id plan.WorkerID) bool { return id.Peer != g.self })
	g.loading.Store(int32(len(here)))
	var workers []*pipeline.Worker
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	for _, id := range here {
		w, err := g.newWorker(ctx, id, session)
		if err != nil {
			return hardware.ExplainMemory(err)
		}
		workers = append(workers, w)
		g.kept += w.TookOver()
	}
	err = g.runSteps(ctx, workers, session)
	if err != nil {
		g.end(err) // the saves too
	}
	for _, w := range workers {
		err = errors.Join(err, awaitSaves(ctx, w))
	}
	why := errors.Join(context.Cause(ctx), err)
	if lost := (lostPeerError{}); errors.As(why, &lost) {
		session.Drop(lost.fault.Accused) // closing would wait for it
	}
	if err != nil { // who has given the generation up reads nothing any more
		for _, p := range g.heartbeats.Stalled(g.plan.Peers(), g.plan.Generation, time.Now()).By {
			session.Drop(p)
		}
	}
	if err == nil || retains(why, g.self) {
		g.held, err = retain(workers, err)
		workers = nil
	}
	if err != nil {
		return err
	}
	// The steps are done here, but on a slow line a neighbour may still wait for the last messages.
	if err := session.Flush(ctx); err != nil && ctx.Err() == nil {
		g.log.Info("the plan ends before its last messages were read", "cause", err)
	}
	return nil
}

// awaitSaves waits for the saves of a worker. One that the next plan has cut short is no failure: the log has these layers from
// another replica, and what is in memory is as good.
func awaitSaves(ctx context.Context, w *pipeline.Worker) error {
	err, wrong := w.Saved(), (*plan.Fault)(nil)
	cut := errors.Is(err, context.Canceled) || errors.Is(err, errReplaced)
	if cut && errors.Is(context.Cause(ctx), errReplaced) && !errors.As(err, &wrong) {
		return nil
	}
	return err
}

// keep frees what the generation before has left, but for state that the plan has on the same devices. It returns the layers
// that stages here lack.
func (g *generation) keep() (lacking []int) {
	kept := map[plan.StageID][]int{}
	for _, r := range g.from {
		maps.Copy(kept, r.Keep(g.plan))
	}
	for _, id := range g.plan.Workers() {
		if id.Peer != g.self {
			continue
		}
		for _, at := range g.plan.StagesOf(id) {
			for l := g.plan.At(at).Layers.First; l < g.plan.At(at).Layers.End; l++ {
				if !slices.Contains(kept[at], l) {
					lacking = append(lacking, l)
				}
			}
		}
	}
	return lacking
}

// keptLayers returns how many layers here have the state that was in memory, of how many, once all have loaded at a moment.
func (g *generation) keptLayers() (kept, layers int, now time.Time) {
	for _, id := range g.plan.Workers() {
		for _, at := range g.plan.StagesOf(id) {
			if id.Peer == g.self {
				layers += g.plan.At(at).Layers.Len()
			}
		}
	}
	return g.kept, layers, time.Now()
}

// before returns what the generation before has left on a device, for its worker to take over; nil where that is nothing.
func (g *generation) before(id plan.WorkerID) *pipeline.Retained {
	i := slices.IndexFunc(g.from, func(r *pipeline.Retained) bool { return r.Worker() == id })
	if i < 0 {
		return nil
	}
	r := g.from[i]
	g.from = slices.Delete(g.from, i, i+1)
	return r
}

// retain takes workers over that have ended, with an error perhaps.
func retain(workers []*pipeline.Worker, err error) ([]*pipeline.Retained, error) {
	var held []*pipeline.Retained
	for _, w := range workers {
		r, failed := w.Retain()
		held, err = append(held, r), errors.Join(err, failed)
	}
	return held, err
}

// newWorker makes the worker of one device here.
func (g *generation) newWorker(ctx context.Context, id plan.WorkerID, session *link.Session) (*pipeline.Worker, error) {
	device, err := g.hardware.Device(id.Device)
	if err != nil {
		return nil, err
	}
	before, _ := g.heartbeats.Last(g.self)
	return pipeline.New(pipeline.Config{
		From: g.before(id), Worker: id, Run: *g.state.Run, Plan: g.plan, Data: g.data, Keeper: g.checkpointer.For(g.plan),
		Device: device, Host: g.hardware.Host(), Exchange: hardware.Exchange(device, g.sent.Keep(session)), Due: g.due,
		Next: g.leader.NextSchedule(g.plan), OnStep: func(r pipeline.StepResult) { g.step(session, id, r) }, NameOf: g.state.NameOf, Trace: g.trace, Log: g.log, Commits: &g.commits,
		OnLoaded: func() {
			if g.loading.Add(-1) == 0 {
				close(g.loaded)
				g.group.Go(func() error { g.settle(ctx); return nil })
			}
		},
		Usual: time.Duration(before.StepNanos),
		Loaded: func(peer plan.PeerID) bool {
			b, _ := g.heartbeats.Last(peer)
			return b.Phase == string(Training) || b.Phase == string(Draining)
		},
		Stop: g.stops,
	})
}

// stops reports to the coordinator that the plan ends with its next commit: the run is to stop or another plan follows.
func (g *generation) stops() bool {
	now := g.raft.State()
	return now.StopWanted || now.Paused()
}

// step takes in a step of a worker here. With the first one all members have what they begin with: from then on bulk gives
// way to messages, and copies are made.
func (g *generation) step(session *link.Session, id plan.WorkerID, r pipeline.StepResult) {
	g.record(g.plan, id, r)
	g.monitor.Step(r)
	for old := g.newest.Load(); uint64(r.Step) > old && !g.newest.CompareAndSwap(old, uint64(r.Step)); old = g.newest.Load() {
	}
	g.first.Do(func() {
		session.Settled()
		close(g.stepped)
	})
}

// changesPlan reports whether a plan is about to begin: the one before has ended for it, or it has made no step.
func (n *Node) changesPlan(state consensus.State) bool {
	if state.Run == nil || state.StopWanted || state.Finished || state.Checkpoint.Step >= state.Run.Train.Steps {
		return false
	}
	begins := state.Plan.Start > 0 && state.Plan.Start == state.Checkpoint.Step && n.heartbeats.Newest(state.Plan, time.Now()) <= state.Plan.Start
	return state.Ended() || begins
}

// record writes a worker's step into this node's ledger.
func (n *Node) record(p plan.Plan, id plan.WorkerID, r pipeline.StepResult) {
	if r.Final {
		return
	}
	w := ledger.Work{Generation: p.Generation, Worker: id, By: n.self, Shares: r.Schedule.Micros}
	for i, s := range r.Stages {
		w.Stages = append(w.Stages, ledger.StageWork{StageID: s.StageID, Layers: p.At(s.StageID).Layers, Micros: slices.Sorted(slices.Values(r.Added[i]))})
	}
	n.ledger.Step(w, ledger.CommitOf(r.Step, r.Loss, r.Norm))
}

// settle tells the others what this node has loaded, and has its holders fetch copies, while the steps run.
func (g *generation) settle(ctx context.Context) {
	saver := g.checkpointer.For(g.plan)
	if err := saver.Settle(ctx, g.stepped); err != nil && ctx.Err() == nil {
		g.log.Warn("the state at the start of the plan has no copy", "generation", g.plan.Generation, "cause", err)
	}
	if err := saver.KeepCopies(ctx); err != nil && ctx.Err() == nil {
		g.log.Warn("the newest checkpoint has lost a copy", "generation", g.plan.Generation, "cause", err)
	}
}

// due reports to the coordinator whether the state after a step is to be saved.
func (g *generation) due(step plan.Step) bool {
	state := g.raft.State()
	forgets := slices.ContainsFunc(g.plan.Peers(), func(p plan.PeerID) bool {
		b, _ := g.heartbeats.Last(p)
		return b.Generation == g.plan.Generation && b.Kept > state.Checkpoint.Step+1
	})
	return g.cadence.Due(step, state, forgets || g.sent.Full())
}

// runSteps returns when all workers have finished their steps, or one of them or a link fails. Where a member's process has ended
// that another one may stand in for, the log's word on it is waited for.
func (g *generation) runSteps(saves context.Context, workers []*pipeline.Worker, session *link.Session) error {
	c := newCrew(g.Node, saves)
	defer c.abort()
	loaded := g.loaded // before the loop is through with it
	for _, w := range workers {
		c.add(func(steps context.Context) error { return w.Run(steps, saves) })
	}
	var overdue <-chan time.Time
	var missing, replaced plan.PeerID
	for c.left > 0 && c.failed == nil {
		select {
		case err := <-c.ends:
			c.ended(err)
		case peer := <-session.Lost():
			switch {
			case peer == replaced:
			case missing == "" && replaced == "" && g.replaceable(peer) && session.Ended(peer):
				missing, overdue = peer, time.After(g.patience(peer))
			default:
				return g.endWithout(peer, c, session)
			}
		case <-overdue:
			return g.endWithout(missing, c, session)
		case s := <-g.substitutes:
			overdue, replaced = nil, s.Lost
			if err := g.substitute(s, session); err != nil {
				g.log.Warn("cannot go on without a lost node", "peer", s.Lost, "cause", err)
				return g.endWithout(s.Lost, c, session)
			}
			if s.By == g.self {
				g.standIn(saves, c, s, standIn{session: session, own: workers, loaded: loaded})
			}
		}
	}
	err := c.wait()
	if found := (*plan.Fault)(nil); err == nil || errors.As(err, &found) {
		return err
	}
	if missing != "" && missing != replaced {
		return g.lost(session, missing)
	}
	for {
		select { // a worker may notice the broken link first
		case peer := <-session.Lost():
			if peer != replaced {
				return g.lost(session, peer)
			}
		default:
			return err
		}
	}
}

// endWithout ends the steps for want of a peer.
func (g *generation) endWithout(peer plan.PeerID, c *crew, session *link.Session) error {
	session.Drop(peer)
	c.waitFor(lostGrace) // a worker knows more about it if it waited for that peer
	c.abort()
	if err, found := c.wait(), (*plan.Fault)(nil); errors.As(err, &found) {
		return err // whoever is found out may close its links
	}
	return g.lost(session, peer)
}

// crew runs the workers of a generation. It belongs to one goroutine.
type crew struct {
	node   *Node
	steps  context.Context // ends with abort, and when a worker fails
	abort  context.CancelFunc
	ends   chan error
	left   int   // workers that run
	failed error // of the first one that did
}

func newCrew(n *Node, ctx context.Context) *crew {
	c := &crew{node: n, ends: make(chan error)}
	c.steps, c.abort = context.WithCancel(ctx)
	return c
}

// add begins to run a worker.
func (c *crew) add(run func(steps context.Context) error) {
	c.left++
	c.node.group.Go(func() error { c.ends <- run(c.steps); return nil })
}

// ended takes in how a worker ended.
func (c *crew) ended(err error) {
	c.left--
	if err != nil && c.failed == nil {
		c.failed = err
		c.abort()
	}
}

// waitFor waits for the workers for some time, or until one fails.
func (c *crew) waitFor(d time.Duration) {
	over := time.After(d)
	for c.left > 0 && c.failed == nil {
		select {
		case err := <-c.ends:
			c.ended(err)
		case <-over:
			return
		}
	}
}

// wait waits for all workers and returns how the first one failed.
func (c *crew) wait() error {
	for c.left > 0 {
		c.ended(<-c.ends)
	}
	return c.failed
}
