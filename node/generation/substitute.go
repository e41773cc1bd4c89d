package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"pnode/node/hardware"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// replaceable reports whether another member could go on in a peer's place: from its own memory, or from the newest checkpoint,
// for which this node has kept what it sent since.
func (g *Generation) replaceable(peer plan.PeerID) bool {
	if len(g.plan.Substitutes(peer)) > 0 {
		return true
	}
	return len(g.plan.Replayers(peer)) > 0 && g.sent.First() <= max(g.plan.Start, g.Consensus.State().Checkpoint.Step)+1
}

// made returns the newest step that a worker here has made, which all workers have reported. Others may say that there are more.
func (g *Generation) made() plan.Step { return max(g.plan.Start, plan.Step(g.newest.Load())) }

// substitute has the session exchange a lost member's messages with its substitute, which gets what was sent since its state
// again.
func (g *Generation) substitute(s consensus.Substitute, session *link.Session) error {
	after := oldestInMemory(g.plan.Start, g.made(), g.sent.First(), g.Consensus.State().Checkpoint.Step)
	if s.Replays {
		after = s.From
	}
	err := session.Substitute(s.Lost, s.By, after, func() ([]wire.Frame, error) {
		frames, kept := g.sent.After(after, s.Lost)
		if !kept {
			return nil, fmt.Errorf("generation: the messages after step %d are kept from step %d on", after, g.sent.First())
		}
		return frames, nil
	})
	if err != nil {
		return err
	}
	if s.Lost == g.plan.Coordinator().Peer {
		g.Commits.Settle(g.plan.Generation, session.LastCommit(s.Lost))
	}
	g.Watch.Substituted(s)
	return nil
}

// oldestInMemory returns the oldest step of which a worker may have the state, in a plan from start on of which this node has made a
// step. It is no older than the one before, as the others' reports are in every commit, nor than a checkpoint for which this node has
// forgotten what it sent before its first kept step.
func oldestInMemory(start, made, first, checkpoint plan.Step) plan.Step {
	return max(start, made-min(made, 1), min(first-min(first, 1), checkpoint))
}

// standIn runs a lost member's workers on this node, which the log names as its substitute.
type standIn struct {
	*Generation
	of      consensus.Substitute
	session *link.Session
	own     []*pipeline.Worker // of this node
}

// begin begins to run the workers. saves lasts as long as the generation does.
func (s standIn) begin(saves context.Context, c *crew) {
	for _, id := range s.plan.Workers() {
		if id.Peer == s.of.Lost {
			c.add(func(steps context.Context) error { return s.answers(s.runWorker(steps, saves, id)) })
		}
	}
}

// answers has this node answer for what its workers in the lost member's place do wrong.
func (s standIn) answers(err error) error {
	if fault := (*plan.Fault)(nil); errors.As(err, &fault) && fault.Accused == s.of.Lost && fault.Kind != plan.LostLink {
		fault.Accused = s.Self
	}
	return err
}

// runWorker makes one of the workers and runs it.
func (s standIn) runWorker(steps, saves context.Context, id plan.WorkerID) error {
	saves, cancel := context.WithCancel(saves)
	defer cancel()
	last, err := s.madeBefore(steps, id)
	if err != nil {
		return s.declined(steps, err)
	}
	var loaded atomic.Bool
	w, release, err := s.makeWorker(steps, id, last.commit, &loaded)
	if err != nil {
		return s.declined(steps, err)
	}
	defer w.Close()
	defer release()
	if err = w.Run(steps, saves); err != nil {
		cancel()
	}
	saved := w.Saved() // before the worker is closed
	switch {
	case err == nil:
		return saved
	case !loaded.Load(), errors.Is(err, pipeline.ErrMade) && last.by == s.Self:
		return s.declined(steps, err)
	case errors.Is(err, pipeline.ErrMade):
		return &plan.Fault{Accused: last.by, Kind: plan.BadCommit, Step: last.commit.Step, Detail: err.Error()}
	}
	return err
}

// declined returns why the generation ends where this node cannot go on in the lost member's place: such an error ends the
// generation, and not this node.
func (s standIn) declined(steps context.Context, err error) error {
	if s.of.Replays && steps.Err() == nil {
		s.Replayer.Fail() // another one is asked
	}
	return s.without(s.of.Lost, fmt.Sprintf("%s cannot go on in its place: %v", s.state.NameOf(s.Self), err))
}

// makeWorker makes a lost member's worker here, on a device of the same name if there is one. loaded becomes
// true when it has its state, and release lets go of what it loads from.
func (s standIn) makeWorker(ctx context.Context, id plan.WorkerID, newest wire.Commit, loaded *atomic.Bool) (w *pipeline.Worker, release func(), err error) {
	from, err := s.lostState(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(s.plan.Workers(), func(w plan.WorkerID) bool { return w.Peer == id.Peer && w != id }) {
		s.session.Skip(id.Peer, from.plan.Start) // of several workers one may have the state of the step before
	}
	device := s.device(id.Device)
	c := s.training(job{id, from.plan, device, s.session.As(id.Peer, s.made())})
	c.Taken, c.Unmeasured, c.Keeper = from.taken, from.unmeasured, from.keeper
	c.OnLoaded = func() {
		s.Log.Info("goes on in the place of a lost node", "peer", id.Peer, "device", id.Device, "after", from.plan.Start)
		loaded.Store(true)
		s.StandIn(id, from.plan.Start)
		from.release()
	}
	c.OnStep = func(r pipeline.StepResult) {
		s.record(from.plan, id, r)
		s.StandIn(id, r.Step)
	}
	if id == s.plan.Coordinator() {
		c.Commits = s.Commits
		var taken wire.Commit
		if taken, c.Made, err = s.Commits.Repeated(newest, from.plan); taken.Step > 0 {
			c.Taken = taken
		}
	}
	if err == nil {
		w, err = pipeline.New(c)
	}
	if err != nil {
		from.release()
		return nil, nil, hardware.ExplainMemory(err)
	}
	return w, from.release, nil
}

// lostState holds what a lost member's worker goes on from.
type lostState struct {
	plan       plan.Plan // from the step of the state on
	taken      wire.Commit
	unmeasured bool
	keeper     pipeline.Keeper
	release    func()
}

// lostState returns the state of the newest checkpoint, or that of a worker here that has the lost one's layers. That one waits with
// its next update until the state is released.
func (s standIn) lostState(ctx context.Context, id plan.WorkerID) (lostState, error) {
	if s.of.Replays {
		p, err := s.Commits.From(s.of.From, s.plan)
		unmeasured := s.Commits.Unmeasured(p.Generation, s.of.From)
		return lostState{plan: p, unmeasured: unmeasured, keeper: s.Checkpointer.For(p), release: func() {}}, err
	}
	select {
	case <-s.loaded:
	case <-ctx.Done():
		return lostState{}, ctx.Err()
	}
	donor := s.plan.Donor(id, s.Self)
	var held *pipeline.Held
	var err error
	for _, w := range s.own {
		if w.ID() == donor {
			held, err = w.Hold()
		}
	}
	if held == nil {
		return lostState{}, fmt.Errorf("generation: no state of %s: %w", id.Device, err)
	}
	return lostState{held.Plan(), held.Taken(), held.Unmeasured(), heldKeeper{held, s.Checkpointer.For(s.plan)}, held.Release}, nil
}

// heldKeeper loads what a worker here has in memory, and saves as its own workers do.
type heldKeeper struct {
	*pipeline.Held
	saver pipeline.Keeper
}

// Save saves a stage in the lost member's place.
func (k heldKeeper) Save(ctx context.Context, s pipeline.State) error { return k.saver.Save(ctx, s) }
