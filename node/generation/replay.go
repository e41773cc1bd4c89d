package generation

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"pnode/node/hardware"
	"pnode/node/replayer"
	"pnode/pipeline"
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

// Replays reports whether the log has a member replay workers of a generation.
func Replays(state consensus.State, by plan.PeerID, g plan.Generation) bool {
	if r := consensus.Restore(state); slices.Contains(r.By, by) && g == r.Of.Generation {
		return true
	}
	return state.Plan.Generation == g && state.Salvage != nil && len(replayed(state.Plan, *state.Salvage, by)) > 0
}

// lostPeers returns whose workers are run in a replay of the plan with which begun ends: of those that parts name, and of all other members
// that are gone, since they may have sent messages to each other. Who was started again after that plan has nothing of it, whatever came
// since.
func lostPeers(state, begun consensus.State, parts []consensus.SalvagePart) []plan.PeerID {
	p := begun.Plan
	state.PlanEpoch = begun.PlanEpoch
	return slices.DeleteFunc(p.Peers(), func(peer plan.PeerID) bool {
		m, ok := state.Member(peer)
		was, _ := begun.Member(peer)
		asked := slices.ContainsFunc(parts, func(part consensus.SalvagePart) bool {
			return p.Has(peer, plan.StageID{Replica: part.Replica, Stage: part.Stage})
		})
		return ok && m.State != consensus.Gone && !state.Reborn(m) && m.ProcessEpoch == was.ProcessEpoch && !asked
	})
}

// replay computes the steps of lost workers again here, as a salvage has this node do, and saves their state.
func (r *Remains) replay(ctx context.Context, s consensus.Salvage) error {
	parts := replayed(r.plan, s, r.Self)
	if len(parts) == 0 {
		return nil
	}
	return r.Parts.replay(ctx, again{of: r.plan, to: s.Step, parts: parts, lost: lostPeers(r.Consensus.State(), r.begun, parts), reached: r.Watch.Replaying, computed: r.Watch.Replayed})
}

// again says which steps are computed again: those of a plan's lost workers up to one, for parts of their state, which are saved after computed
// was called. Before that reached is called with each step of a worker.
type again struct {
	of       plan.Plan
	to       plan.Step
	parts    []consensus.SalvagePart
	lost     []plan.PeerID
	reached  func(plan.Step)
	computed func()
}

// replay computes steps again here and saves what is wanted of them.
func (r Parts) replay(ctx context.Context, a again) error {
	state, to, lost := r.Consensus.State(), a.to, a.lost
	p, err := r.Commits.From(a.parts[0].From, a.of)
	if err != nil {
		return err
	}
	living := p.Senders(lost, state.Run.Model.Tied())
	commits, err := r.Commits.UpTo(to, p)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	frames := replay.NewFrames(ctx, living, lost, to, func(ctx context.Context, from plan.PeerID, step plan.Step) ([]replay.Message, error) {
		messages, err := r.Replayer.Messages(ctx, from, replayer.Request{Generation: p.Generation, Step: step, Lost: lost})
		for _, m := range messages {
			if err == nil {
				err = pipeline.Expected(*state.Run, p)(from, m.To, m.Frame.Tag, len(m.Frame.Payload))
			}
		}
		return messages, err
	})
	_, moments := r.Checkpointer.For(p).Fetch(ctx, layersOf(p, lost)) // at once: a worker asks for one after the other
	moments()
	var workers []*pipeline.Worker
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	for _, id := range p.Workers() {
		if slices.Contains(lost, id.Peer) {
			w, err := r.lostWorker(state, id, p, frames, commits, a.reached)
			if err != nil {
				return err
			}
			workers = append(workers, w)
		}
	}
	r.Log.Info("replaying the steps of members that are gone", "generation", p.Generation, "from", p.Start, "to", to, "workers", len(workers))
	group, running := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error { return w.Run(running, running) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	a.computed()
	for _, w := range workers {
		if err := r.saveReplayed(ctx, w, p, a.parts); err != nil {
			return err
		}
	}
	return nil
}

// saveReplayed saves the parts of a salvage that a lost worker has, whose steps are done.
func (r Parts) saveReplayed(ctx context.Context, w *pipeline.Worker, p plan.Plan, parts []consensus.SalvagePart) error {
	held, err := w.Retain()
	if err != nil {
		return err
	}
	for _, part := range parts {
		id := plan.StageID{Replica: part.Replica, Stage: part.Stage}
		if p.At(id).Worker() != held.Worker() {
			continue
		}
		if err := held.Save(ctx, r.Checkpointer.Salvage(p).Save, id, part.Layers); err != nil {
			return err
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

// lostWorker makes the worker of a lost peer's device on a device of this node.
func (r Parts) lostWorker(state consensus.State, id plan.WorkerID, p plan.Plan, frames *replay.Frames, commits []wire.Commit, reached func(plan.Step)) (*pipeline.Worker, error) {
	c := r.config(state, job{id, p, r.device(id.Device), frames.For(id.Peer)})
	c.SecondTry = r.Commits.SecondTry(p, p.Start)
	c.Replay, c.Stop, c.OnLoaded = commits, func() bool { return false }, func() {}
	record := c.OnStep
	c.OnStep = func(r pipeline.StepResult) {
		record(r)
		reached(r.Step)
	}
	w, err := pipeline.New(c)
	if err != nil {
		return nil, fmt.Errorf("generation: replay %s of %s: %w", id.Device, state.NameOf(id.Peer), hardware.ExplainMemory(err))
	}
	return w, nil
}
