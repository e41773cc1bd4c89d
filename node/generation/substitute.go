package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// committed returns the newest step that a worker here has made, which all workers have reported. Others may say that there are more.
func (g *Generation) committed() plan.Step { return max(g.plan.Start, plan.Step(g.newest.Load())) }

// substitute has the session exchange a lost member's messages with its substitute, which gets what was sent since its state
// again.
func (g *Generation) substitute(s consensus.Substitute, session *link.Session) error {
	after := oldestInMemory(g.plan.Start, g.committed(), g.sent.First(), g.Consensus.State().Checkpoint.Step)
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
func oldestInMemory(start, committed, first, checkpoint plan.Step) plan.Step {
	return max(start, committed-min(committed, 1), min(first-min(first, 1), checkpoint))
}

// standIn runs a lost member's workers on this node, which the log names as its substitute.
type standIn struct {
	*Generation
	of      consensus.Substitute
	session *link.Session
	own     []*pipeline.Worker // of this node
	memory  *memory
}

// begin begins to run the workers. saves lasts as long as the generation does.
func (s standIn) begin(saves context.Context, c *crew) {
	parts := s.parts()
	s.memory = &memory{}
	s.memory.users.Store(int32(len(parts)))
	for _, id := range parts {
		c.add(func(steps context.Context) error { return s.answers(s.runWorker(steps, saves, id)) })
	}
}

// parts returns the lost member's workers.
func (s standIn) parts() []plan.WorkerID {
	return slices.DeleteFunc(s.plan.Workers(), func(id plan.WorkerID) bool { return id.Peer != s.of.Lost })
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
	release := sync.OnceFunc(s.memory.release)
	defer release()
	last, err := s.committedBefore(steps, id)
	if err != nil {
		return s.declined(steps, err)
	}
	var loaded atomic.Bool
	w, err := s.makeWorker(steps, id, last, func() { loaded.Store(true); release() })
	if err != nil {
		return s.declined(steps, err)
	}
	defer w.Close()
	if err = w.Run(steps, saves); err != nil {
		cancel()
	}
	saved := w.Saved() // before the worker is closed
	switch {
	case err == nil:
		return saved
	case !loaded.Load(), errors.Is(err, pipeline.ErrOtherCommit) && last.by == s.Self:
		return s.declined(steps, err)
	case errors.Is(err, pipeline.ErrOtherCommit):
		return &plan.Fault{Accused: last.by, Kind: plan.BadCommit, Step: last.step, Detail: err.Error()}
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

// makeWorker makes a lost member's worker here, on a device of the same name if there is one. It calls loaded when it has its state.
func (s standIn) makeWorker(ctx context.Context, id plan.WorkerID, newest newestCommit, loaded func()) (w *pipeline.Worker, err error) {
	from, err := s.lostState(ctx)
	if err != nil {
		return nil, err
	}
	s.session.Skip(id.Peer, from.plan.Start)
	device := s.device(id.Device)
	c := s.training(job{id, from.plan, device, s.session.As(id.Peer, s.committed())})
	c.SecondTry = s.Commits.SecondTry(from.plan, from.plan.Start)
	c.Taken, c.Unmeasured, c.Keeper = from.taken, from.unmeasured, from.keeper
	c.OnLoaded = func() {
		s.Log.Info("goes on in the place of a lost node", "peer", id.Peer, "device", id.Device, "after", from.plan.Start)
		loaded()
		s.StandIn(id, from.plan.Start)
	}
	c.OnStep = func(r pipeline.StepResult) {
		s.record(from.plan, id, r)
		s.StandIn(id, r.Step)
	}
	if id == s.plan.Coordinator() {
		c.Commits = s.Commits
		var taken wire.Commit
		ask := func(step plan.Step) (wire.Commit, error) {
			return s.askCommit(ctx, newest.by, commitRequest{s.plan.Generation, step})
		}
		if taken, c.Committed, err = s.Commits.Repeated(newest.step, newest.commit, from.plan, ask); taken.Step > 0 {
			c.Taken = taken
		}
	}
	if err == nil {
		w, err = pipeline.New(c)
	}
	return w, hardware.ExplainMemory(err)
}

// lostState holds what a lost member's worker goes on from.
type lostState struct {
	plan       plan.Plan // from the step of the state on
	taken      wire.Commit
	unmeasured bool
	keeper     pipeline.Keeper
}

// lostState returns the state of the newest checkpoint, or that of workers here that have the lost member's layers.
func (s standIn) lostState(ctx context.Context) (lostState, error) {
	if s.of.Replays {
		p, err := s.Commits.From(s.of.From, s.plan)
		unmeasured := s.Commits.Unmeasured(p.Generation, s.of.From)
		return lostState{plan: p, unmeasured: unmeasured, keeper: s.Checkpointer.For(p)}, err
	}
	held, err := s.hold(ctx)
	if err != nil {
		return lostState{}, err
	}
	return lostState{held.Plan(), held.Taken(), held.Unmeasured(), heldKeeper{held, s.Checkpointer.For(s.plan)}}, nil
}

// memory is the state of workers here that all of a lost member's go on from: what these had sent to each other is lost, so they begin
// after one step. The workers here wait with their next updates until the last of its users has loaded it, or has failed.
type memory struct {
	users atomic.Int32
	once  sync.Once
	held  *pipeline.Held
	err   error
}

func (m *memory) release() {
	if m.users.Add(-1) == 0 && m.held != nil {
		m.held.Release()
	}
}

// hold holds the state, once for all users.
func (s standIn) hold(ctx context.Context) (*pipeline.Held, error) {
	m := s.memory
	m.once.Do(func() {
		select {
		case <-s.loaded:
		case <-ctx.Done():
			m.err = ctx.Err()
			return
		}
		var donors []*pipeline.Worker
		for _, w := range s.own {
			gives := func(id plan.WorkerID) bool { return s.plan.Donor(id, s.Self) == w.ID() }
			if slices.ContainsFunc(s.parts(), gives) {
				donors = append(donors, w)
			}
		}
		ctx, cancel := context.WithTimeout(ctx, substitutePatience)
		defer cancel()
		m.held, m.err = pipeline.Hold(ctx, donors...)
	})
	return m.held, m.err
}

// heldKeeper loads what a worker here has in memory, and saves as its own workers do.
type heldKeeper struct {
	*pipeline.Held
	saver pipeline.Keeper
}

// Save saves a stage in the lost member's place.
func (k heldKeeper) Save(ctx context.Context, s pipeline.State) error { return k.saver.Save(ctx, s) }
