package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/node/api"
	"pnode/node/hardware"
	"pnode/node/replayer"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/replay"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// replayed returns the parts of a salvage that a member is to replay: those of other peers' stages.
func replayed(p plan.Plan, s consensus.Salvage, by plan.PeerID) []consensus.SalvagePart {
	return slices.DeleteFunc(slices.Clone(s.Parts), func(part consensus.SalvagePart) bool {
		id := plan.StageID{Replica: part.Replica, Stage: part.Stage}
		return part.By != by || p.Has(by, id)
	})
}

// replays reports whether the log has a member replay workers of a generation.
func replays(state consensus.State, by plan.PeerID, g plan.Generation) bool {
	return state.Plan.Generation == g && state.Salvage != nil && len(replayed(state.Plan, *state.Salvage, by)) > 0
}

// lostPeers returns whose workers are run in a replay: of those that the salvage has replayed, and of all other members that are
// gone, since they may have sent messages to each other.
func lostPeers(state consensus.State, p plan.Plan, parts []consensus.SalvagePart) []plan.PeerID {
	return slices.DeleteFunc(p.Peers(), func(peer plan.PeerID) bool {
		m, ok := state.Member(peer)
		asked := slices.ContainsFunc(parts, func(part consensus.SalvagePart) bool {
			return p.Has(peer, plan.StageID{Replica: part.Replica, Stage: part.Stage})
		})
		return ok && m.State != consensus.Gone && !state.Reborn(m) && !asked
	})
}

// replay computes the steps of lost workers again here, as a salvage has this node do, and saves their state.
func (r *remains) replay(ctx context.Context, s consensus.Salvage) error {
	parts := replayed(r.plan, s, r.self)
	if len(parts) == 0 {
		return nil
	}
	state := r.raft.State()
	p, err := r.commits.From(parts[0].From, r.plan)
	if err != nil {
		return err
	}
	lost := lostPeers(state, p, parts)
	living := p.Senders(lost, state.Run.Model.Tied())
	commits, err := r.commits.UpTo(s.Step, p)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	frames := replay.NewFrames(ctx, living, lost, s.Step, func(ctx context.Context, from plan.PeerID, step plan.Step) ([]replay.Message, error) {
		messages, err := r.replayer.Messages(ctx, from, replayer.Request{Generation: p.Generation, Step: step, Lost: lost})
		for _, m := range messages {
			if err == nil {
				err = pipeline.Expected(*state.Run, p)(from, m.To, m.Frame.Tag, len(m.Frame.Payload))
			}
		}
		return messages, err
	})
	r.checkpointer.For(p).Fetch(ctx, layersOf(p, lost)) // at once: a worker asks for one after the other
	var workers []*pipeline.Worker
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	for _, id := range p.Workers() {
		if slices.Contains(lost, id.Peer) {
			w, err := r.lostWorker(id, *state.Run, p, frames, commits)
			if err != nil {
				return err
			}
			workers = append(workers, w)
		}
	}
	r.log.Info("replaying the steps of members that are gone", "generation", p.Generation, "from", p.Start, "to", s.Step, "workers", len(workers))
	group, running := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error { return w.Run(running, running) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, w := range workers {
		held, err := w.Retain()
		if err != nil {
			return err
		}
		for _, part := range parts {
			id := plan.StageID{Replica: part.Replica, Stage: part.Stage}
			if p.At(id).Worker() != held.Worker() {
				continue
			}
			if err := held.Save(ctx, r.checkpointer.Salvage(p).Save, id, part.Layers); err != nil {
				return err
			}
		}
	}
	return nil
}

// layersOf returns the layers that peers have by a plan.
func layersOf(p plan.Plan, peers []plan.PeerID) (layers []int) {
	for _, id := range p.Workers() {
		if !slices.Contains(peers, id.Peer) {
			continue
		}
		for _, at := range p.StagesOf(id) {
			for l := p.At(at).Layers.First; l < p.At(at).Layers.End; l++ {
				layers = append(layers, l)
			}
		}
	}
	return layers
}

// lostWorker makes the worker of a lost peer's device on a device of this node, the one of the same name if there is one.
func (r *remains) lostWorker(id plan.WorkerID, run plan.RunSpec, p plan.Plan, frames *replay.Frames, commits []wire.Commit) (*pipeline.Worker, error) {
	device, err := r.hardware.Device(id.Device)
	if err != nil {
		device = r.hardware.First()
	}
	w, err := pipeline.New(pipeline.Config{
		Worker: id, Run: run, Plan: p, Data: r.data, Keeper: r.checkpointer.For(p), Device: device, Host: r.hardware.Host(),
		Exchange: hardware.Exchange(device, frames.For(id.Peer)), Replay: commits,
		Stop: func() bool { return false }, OnLoaded: func() {}, OnStep: func(s pipeline.StepResult) { r.record(p, id, s) }, NameOf: r.raft.State().NameOf, Log: r.log,
	})
	if err != nil {
		return nil, fmt.Errorf("node: replay %s of %s: %w", id.Device, r.raft.State().NameOf(id.Peer), hardware.ExplainMemory(err))
	}
	return w, nil
}

// The log's word on a lost member is waited for as long as a leader needs to ask the member's host, or to be elected first.
const (
	substitutePatience = 1500 * time.Millisecond
	electionPatience   = 3 * time.Second
)

// patience bounds the wait for the log's word on a lost member.
func (g *generation) patience(lost plan.PeerID) time.Duration {
	if leader, _, _ := g.raft.Leader(); leader == "" || leader == lost {
		return electionPatience
	}
	return substitutePatience
}

// replaceable reports whether another member could go on in a peer's place: from its own memory, or from the newest checkpoint,
// for which this node has kept what it sent since.
func (g *generation) replaceable(peer plan.PeerID) bool {
	if len(g.plan.Substitutes(peer)) > 0 {
		return true
	}
	return len(g.plan.Replayers(peer)) > 0 && g.sent.First() <= max(g.plan.Start, g.raft.State().Checkpoint.Step)+1
}

// made returns the newest step that a worker here has made, which all workers have reported. Others may say that there are more.
func (g *generation) made() plan.Step { return max(g.plan.Start, plan.Step(g.newest.Load())) }

// substitute has the session exchange a lost member's messages with its substitute, which gets what was sent since its state
// again. No worker has state that is older than the one before the newest: the others' reports are in every commit.
func (g *generation) substitute(s consensus.Substitute, session *link.Session) error {
	state := g.raft.State()
	after := max(g.plan.Start, g.made()-1, min(g.sent.First()-1, state.Checkpoint.Step))
	if s.Replays {
		after = s.From
	}
	frames, kept := g.sent.After(after, s.Lost)
	if !kept {
		return fmt.Errorf("node: the messages after step %d are kept from step %d on", after, g.sent.First())
	}
	if err := session.Substitute(s.Lost, s.By, after, frames); err != nil {
		return err
	}
	if s.Lost == g.plan.Coordinator().Peer {
		g.commits.Settle(g.plan.Generation, session.LastCommit(s.Lost))
	}
	text := fmt.Sprintf("%s is gone, and %s computes its part from step %d on: no step is done again", state.NameOf(s.Lost), state.NameOf(s.By), g.monitor.NewestStep()+1)
	if s.Replays {
		text = fmt.Sprintf("%s is gone, and %s computes its part from the checkpoint of step %d on: nobody else does a step again", state.NameOf(s.Lost), state.NameOf(s.By), s.From)
	}
	g.monitor.Publish(api.Event{Kind: api.KindMember, Generation: g.plan.Generation, Step: g.monitor.NewestStep(), Message: text})
	return nil
}

// standIn holds what a substitute works with.
type standIn struct {
	session *link.Session
	own     []*pipeline.Worker // of this node
	loaded  <-chan struct{}    // closed once they have their state
}

// standIn runs the workers of a lost member here.
func (g *generation) standIn(saves context.Context, c *crew, s consensus.Substitute, with standIn) {
	for _, id := range g.plan.Workers() {
		if id.Peer != s.Lost {
			continue
		}
		c.add(func(steps context.Context) error {
			saves, cancel := context.WithCancel(saves)
			defer cancel()
			// An error here is to end the generation, and not this node.
			declined := func(err error) error {
				if s.Replays && steps.Err() == nil {
					g.replayer.Fail() // another one is asked
				}
				return g.without(s.Lost, fmt.Sprintf("%s cannot go on in its place: %v", g.state.NameOf(g.self), err))
			}
			last, err := g.madeBefore(steps, id, s, with)
			if err != nil {
				return declined(err)
			}
			var loaded atomic.Bool
			w, release, err := g.newSubstitute(steps, id, s, last.commit, with, &loaded)
			if err != nil {
				return declined(err)
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
			case !loaded.Load(), errors.Is(err, pipeline.ErrMade) && last.by == g.self:
				return declined(err)
			case errors.Is(err, pipeline.ErrMade):
				return &plan.Fault{Accused: last.by, Kind: plan.BadCommit, Step: last.commit.Step, Detail: err.Error()}
			}
			return err
		})
	}
}

// lastMade is the newest commit of a lost coordinator that some member of the plan has, and who says so; zero where nobody has any.
type lastMade struct {
	commit wire.Commit
	by     plan.PeerID
}

// madeBefore returns what a lost worker may have committed. Where it was the coordinator all members of the plan are asked, each of which
// answers once it takes nothing of the lost one any more.
func (g *generation) madeBefore(ctx context.Context, id plan.WorkerID, s consensus.Substitute, with standIn) (newest lastMade, err error) {
	if id != g.plan.Coordinator() {
		return lastMade{}, nil
	}
	peers := slices.DeleteFunc(g.plan.Peers(), func(p plan.PeerID) bool { return p == s.Lost })
	answers := make([][]byte, len(peers))
	group, asking := errgroup.WithContext(ctx)
	for i, peer := range peers {
		group.Go(func() (err error) {
			if peer == g.self {
				answers[i] = with.session.LastCommit(s.Lost)
				return nil
			}
			asking, cancel := context.WithTimeout(asking, substitutePatience)
			defer cancel()
			answers[i], err = g.requests.Ask(asking, peer, protocolLastCommit, lastCommitRequest{g.plan.Generation})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return lastMade{}, fmt.Errorf("node: the newest commit: %w", err)
	}
	for i, encoded := range answers {
		if len(encoded) == 0 {
			continue
		}
		commit, err := wire.DecodeCommit(encoded)
		switch {
		case err != nil:
			return lastMade{}, fmt.Errorf("node: the newest commit, from %s: %w", g.state.NameOf(peers[i]), err)
		case commit.Step == newest.commit.Step && !bytes.Equal(encoded, wire.AppendCommit(nil, newest.commit)):
			return lastMade{}, fmt.Errorf("node: %s and %s have other commits of step %d", g.state.NameOf(newest.by), g.state.NameOf(peers[i]), commit.Step)
		case commit.Step > newest.commit.Step:
			newest = lastMade{commit, peers[i]}
		}
	}
	return newest, nil
}

// newSubstitute makes a lost member's worker here, on a device of the same name if there is one. loaded becomes
// true when it has its state, and release lets go of what it loads from.
func (g *generation) newSubstitute(ctx context.Context, id plan.WorkerID, s consensus.Substitute, newest wire.Commit, with standIn, loaded *atomic.Bool) (w *pipeline.Worker, release func(), err error) {
	from, err := g.lostState(ctx, id, s, with)
	if err != nil {
		return nil, nil, err
	}
	var made []wire.Commit
	var commits *pipeline.Commits
	if id == g.plan.Coordinator() {
		if commits = &g.commits; newest.Step > from.plan.Start {
			made, err = g.commits.UpTo(newest.Step-1, from.plan)
			made = append(made, newest)
		}
		if err != nil {
			from.release()
			return nil, nil, err
		}
	}
	device, err := g.hardware.Device(id.Device)
	if err != nil {
		device = g.hardware.First()
	}
	before, _ := g.heartbeats.Last(g.self)
	w, err = pipeline.New(pipeline.Config{
		Worker: id, Run: *g.state.Run, Plan: from.plan, Taken: from.taken, Made: made, Data: g.data, Keeper: from.keeper,
		Device: device, Host: g.hardware.Host(), Exchange: hardware.Exchange(device, with.session.As(id.Peer, g.made())),
		OnLoaded: func() {
			g.log.Info("goes on in the place of a lost node", "peer", id.Peer, "device", id.Device, "after", from.plan.Start)
			loaded.Store(true)
			from.release()
		},
		OnStep: func(r pipeline.StepResult) { g.record(from.plan, id, r) }, NameOf: g.state.NameOf, Trace: g.trace, Log: g.log, Commits: commits,
		Usual: time.Duration(before.StepNanos), Due: g.due, Next: g.leader.NextSchedule(from.plan), Stop: g.stops,
	})
	if err != nil {
		from.release()
		return nil, nil, hardware.ExplainMemory(err)
	}
	return w, from.release, nil
}

// lostState holds what a lost member's worker goes on from.
type lostState struct {
	plan    plan.Plan // from the step of the state on
	taken   wire.Commit
	keeper  pipeline.Keeper
	release func()
}

// lostState returns the state of the newest checkpoint, or that of a worker here that has the lost one's layers. That one waits with
// its next update until the state is released.
func (g *generation) lostState(ctx context.Context, id plan.WorkerID, s consensus.Substitute, with standIn) (lostState, error) {
	if s.Replays {
		p, err := g.commits.From(s.From, g.plan)
		return lostState{plan: p, keeper: g.checkpointer.For(p), release: func() {}}, err
	}
	select {
	case <-with.loaded:
	case <-ctx.Done():
		return lostState{}, ctx.Err()
	}
	donor := g.plan.Donor(id, g.self)
	var held *pipeline.Held
	var err error
	for _, w := range with.own {
		if w.ID() == donor {
			held, err = w.Hold()
		}
	}
	if held == nil {
		return lostState{}, fmt.Errorf("node: no state of %s: %w", id.Device, err)
	}
	return lostState{held.Plan(), held.Taken(), heldKeeper{held, g.checkpointer.For(g.plan)}, held.Release}, nil
}

// heldKeeper loads what a worker here has in memory, and saves as its own workers do.
type heldKeeper struct {
	*pipeline.Held
	saver pipeline.Keeper
}

// Save saves a stage in the lost member's place.
func (k heldKeeper) Save(ctx context.Context, s pipeline.State) error { return k.saver.Save(ctx, s) }
