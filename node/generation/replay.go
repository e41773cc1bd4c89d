package generation

import (
	"context"
	"errors"
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
	if restorer, _ := consensus.Restoration(state); restorer == by && g == state.Checkpoint.Generation {
		return true
	}
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
func (r *Remains) replay(ctx context.Context, s consensus.Salvage) error {
	parts := replayed(r.plan, s, r.Self)
	if len(parts) == 0 {
		return nil
	}
	return r.Parts.replay(ctx, r.plan, s.Step, parts)
}

// Restore computes layers of the newest checkpoint again, which the plan of it made and nobody holds any more, from the checkpoint before,
// and saves them.
func Restore(ctx context.Context, p Parts, of plan.Plan, lost []int) error {
	state := p.Consensus.State()
	if len(of.Sharded) > 0 {
		return errors.New("generation: nobody has all of the optimizer state that was in parts")
	}
	var parts []consensus.SalvagePart
	for _, l := range lost {
		if last := len(parts) - 1; last >= 0 && parts[last].Layers.End == l && of.Replicas[parts[last].Replica].Stages[parts[last].Stage].Layers.Contains(l) {
			parts[last].Layers.End++
			continue
		}
		id, ok := lostStage(state, of, l)
		if !ok {
			return fmt.Errorf("generation: who computed layer %d lives, and does not hold it", l)
		}
		parts = append(parts, consensus.SalvagePart{
			Replica: id.Replica, Stage: id.Stage, Layers: plan.LayerRange{First: l, End: l + 1}, By: p.Self, From: state.Older[0].Step,
		})
	}
	return p.replay(ctx, of, state.Checkpoint.Step, parts)
}

// lostStage returns the stage of a plan with a layer whose member is gone.
func lostStage(state consensus.State, of plan.Plan, layer int) (plan.StageID, bool) {
	for r, pipe := range of.Replicas {
		for s, place := range pipe.Stages {
			if m, ok := state.Member(place.Peer); place.Layers.Contains(layer) && (!ok || m.State == consensus.Gone) {
				return plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)}, true
			}
		}
	}
	return plan.StageID{}, false
}

// replay computes the steps of a plan's lost workers again here, up to one, and saves parts of their state.
func (r Parts) replay(ctx context.Context, of plan.Plan, to plan.Step, parts []consensus.SalvagePart) error {
	state := r.Consensus.State()
	p, err := r.Commits.From(parts[0].From, of)
	if err != nil {
		return err
	}
	lost := lostPeers(state, p, parts)
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
			w, err := r.lostWorker(state, id, p, frames, commits)
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
	r.Watch.Replayed()
	for _, w := range workers {
		if err := r.saveReplayed(ctx, w, p, parts); err != nil {
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
func (r Parts) lostWorker(state consensus.State, id plan.WorkerID, p plan.Plan, frames *replay.Frames, commits []wire.Commit) (*pipeline.Worker, error) {
	c := r.config(state, job{id, p, r.device(id.Device), frames.For(id.Peer)})
	c.Replay, c.Stop, c.OnLoaded = commits, func() bool { return false }, func() {}
	w, err := pipeline.New(c)
	if err != nil {
		return nil, fmt.Errorf("generation: replay %s of %s: %w", id.Device, state.NameOf(id.Peer), hardware.ExplainMemory(err))
	}
	return w, nil
}
