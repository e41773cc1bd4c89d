package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Save stores a stage's state here, has its holder fetch a copy and reports the stage to the
// log. A save for which the disk has no room is left out, unless it is the plan's last one. Without a copy the report
// names this node as the only holder: a checkpoint on one node is better than none.
//
// Where another plan is to follow, all wait for it: the stage is reported as soon as it can be read here, before it is durable, and whoever
// gets its layers next fetches them directly. Where the run ends or stops it is durable before. Else it is made durable with the checkpoint's manifest, and the log told so: Commit and Stored. The holder gets a copy only if no plan comes, and none of what is
// salvaged: the next plan's holders get theirs. The run's first checkpoint has copies in any case: there is none to go
// back to. Where replicas make local steps each saves what it has, in common with the others and for itself, and no copy is made: what is in
// common is with all of them.
func (s PlanSaver) Save(ctx context.Context, state pipeline.State) error {
	apart := s.plan.Local != nil
	pause := s.salvages || state.Last && (apart && s.followed(state.Step) || !apart && s.pauses(ctx))
	if state.Replica != 0 && !pause && !apart {
		return nil
	}
	if !pause {
		defer s.count()()
	}
	now := s.Consensus.State()
	prompt := pause && now.Checkpoint.Step > 0
	inMemory := prompt && now.Run != nil && !now.StopWanted && state.Step != now.Run.Train.Steps // what nothing follows is lost with its process for good
	writing := s.Store.Begin()
	if inMemory {
		writing = s.Store.BeginBehind()
	}
	defer writing.Abort()
	saved := consensus.StageSaved{Step: state.Step, Generation: s.plan.Generation, Last: state.Last}
	if state.Own {
		saved.Own = &state.Replica
	}
	request := copyRequest{Generation: s.plan.Generation, Step: state.Step, Replica: state.Replica, Stage: state.Stage, own: state.Own}
	var err error
	ahead, stop := readAhead(ctx, state.Layers)
	defer stop()
	for _, l := range ahead {
		ref, cut := consensus.LayerRef{Layer: l.Layer}, checkpoint.Cut{}
		if now.Run != nil && l.Layer < now.Run.Model.Layers() {
			cut = s.cutOf(*now.Run, state.Own, l.Layer)
		}
		if ref.Chunks, ref.SizeBytes, err = writing.WriteLayer(ctx, l.Reader, cut); err != nil {
			err = fmt.Errorf("layer %d: %w", l.Layer, err)
			break
		}
		request.Chunks = append(request.Chunks, ref.Chunks...)
		saved.Layers = append(saved.Layers, ref)
	}
	if err == nil && !inMemory {
		err = s.Store.Pin(request.pin(), request.Chunks)
	}
	if errors.Is(err, checkpoint.ErrDiskFull) && !state.Last && !s.salvages {
		s.leftOut.Store(uint64(state.Step))
		s.Log.Warn("no room for a checkpoint: training goes on, and the next one is tried again", "step", state.Step, "cause", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("checkpointer: save step %d: %w", state.Step, err)
	}
	if old := s.leftOut.Load(); old < uint64(state.Step) { // another stage here may lack the room for this very step
		s.leftOut.CompareAndSwap(old, 0)
	}
	if s.salvages || prompt {
		err := s.reportPrompt(ctx, saved, request, inMemory)
		if errors.Is(err, consensus.ErrStale) { // the log had these layers from another replica, and has the next plan
			return nil
		}
		if err != nil || s.salvages || apart || s.planFollows(ctx) {
			return err
		}
	}
	holder := plan.PeerID("")
	if !apart {
		patience := slowCopyTimeout
		if state.Last || s.Consensus.State().Run.Train.CheckpointEvery > 0 {
			patience = copyTimeout
		}
		holder = s.copy(ctx, request, patience)
	}
	err = s.reportCopy(ctx, saved, holder)
	if errors.Is(err, consensus.ErrStale) && !state.Last { // a later step is saved, or the plan is over: nothing is lost
		s.Log.Info("a checkpoint came too late", "step", state.Step, "cause", err)
		return nil
	}
	return err
}

// reportPrompt reports a stage at once, for which all wait, with this node as its only holder. What is in memory is pinned once that is over.
func (s PlanSaver) reportPrompt(ctx context.Context, saved consensus.StageSaved, request copyRequest, inMemory bool) error {
	if !inMemory {
		return s.report(ctx, saved, s.Self)
	}
	stored := saved
	saved.Unstored = s.processEpoch()
	err := s.report(ctx, saved, s.Self)
	if errors.Is(err, consensus.ErrRejected) && !errors.Is(err, consensus.ErrStale) { // a stop came before the report, of which this node may not know yet
		err = s.report(ctx, stored, s.Self)
	}
	if !errors.Is(err, consensus.ErrRejected) { // where nobody said whether it was taken, the log may count on the chunks
		if err := s.Store.Pin(request.pin(), request.Chunks); err != nil {
			s.Log.Warn("what this node computes of the newest checkpoint may be swept", "step", saved.Step, "cause", err)
		}
	}
	return err
}

// pauses reports whether the plan ends for another one to follow, rather than with the run. What the coordinator
// knows of may reach the log here a moment later.
func (s PlanSaver) pauses(ctx context.Context) (pauses bool) {
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	err := consensus.Await(ctx, s.Consensus, func(now consensus.State) bool {
		pauses = !now.StopWanted && (now.Paused() || now.Plan.Generation != s.plan.Generation)
		return pauses || now.StopWanted
	})
	return err == nil && pauses
}

// followed reports whether another plan follows on one with local steps that ends with a step.
func (s PlanSaver) followed(step plan.Step) bool {
	now := s.Consensus.State()
	return now.Run != nil && !now.StopWanted && step < now.Run.Train.Steps
}

// planFollows blocks until the plan of this saver ends, which ends ctx. It returns false when that takes longer than a plan
// that was searched for ahead.
func (s PlanSaver) planFollows(ctx context.Context) bool {
	late := time.NewTimer(planPatience)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-late.C:
		return false
	}
}

// processEpoch returns the epoch of this process, as the log has it.
func (c *Checkpointer) processEpoch() uint64 {
	m, _ := c.Consensus.State().Member(c.Self)
	return m.ProcessEpoch
}

// report has the log take a stage as saved, with its holders. What is to count as stored here is made durable first.
func (c *Checkpointer) report(ctx context.Context, saved consensus.StageSaved, holders ...plan.PeerID) error {
	saved.Layers = slices.Clone(saved.Layers)
	for i, l := range saved.Layers {
		saved.Layers[i].Holders, saved.Layers[i].Whole, saved.Layers[i].Unstored = holders, 0, nil // the log counts these
		if saved.Unstored == 0 && slices.Contains(holders, c.Self) {
			if err := c.Store.Settle(l.Chunks); err != nil {
				return fmt.Errorf("checkpointer: store step %d: layer %d: %w", saved.Step, l.Layer, err)
			}
		}
	}
	if err := c.Consensus.Propose(ctx, saved); err != nil {
		return fmt.Errorf("checkpointer: report step %d as saved: %w", saved.Step, err)
	}
	return nil
}

// Stored makes those layers of a state's newest checkpoint durable that the log has in this node's memory alone, and tells the log so, and of
// one that is not complete yet as well. What an earlier process had in memory counts where it is here.
func (c *Checkpointer) Stored(ctx context.Context, state consensus.State) (err error) {
	for _, made := range append([]consensus.Checkpoint{state.Checkpoint}, state.Pending...) {
		err = errors.Join(err, c.stored(ctx, made))
	}
	return err
}

func (c *Checkpointer) stored(ctx context.Context, made consensus.Checkpoint) error {
	err := c.storedOf(ctx, made, nil, made.Layers)
	for _, o := range made.Own {
		err = errors.Join(err, c.storedOf(ctx, made, &o.Replica, o.Layers))
	}
	return err
}

// storedOf does it for layers of a checkpoint: those that all have in common, or a replica's own.
func (c *Checkpointer) storedOf(ctx context.Context, made consensus.Checkpoint, own *plan.Replica, layers []consensus.LayerRef) error {
	saved := consensus.StageSaved{Step: made.Step, Generation: made.Generation, Last: made.Last, Own: own} // as reported: the checkpoint may not be complete
	for _, l := range layers {
		if slices.Contains(l.Holders, c.Self) && !l.StoredBy(c.Self) && len(c.Fetcher.Missing(l.Chunks)) == 0 {
			saved.Layers = append(saved.Layers, l)
		}
	}
	if len(saved.Layers) == 0 {
		return nil
	}
	for _, l := range saved.Layers {
		if err := c.Store.Settle(l.Chunks); err != nil {
			return fmt.Errorf("checkpointer: store step %d: layer %d: %w", made.Step, l.Layer, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storedPatience)
	defer cancel()
	err := c.report(ctx, saved, c.Self)
	if errors.Is(err, consensus.ErrStale) { // the log keeps newer ones
		return nil
	}
	return err
}
