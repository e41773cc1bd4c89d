package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"pnode/node/checkpointer"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Restorer computes layers of the newest checkpoint again that nobody holds any more, where the log names this node for it. It begins with
// the checkpoint before and uses the messages that others kept. The node's loop owns it; Failed may be called concurrently.
type Restorer struct {
	*Parts
	// begun is the log when this node began with the newest plan that it carried out, made when it began with the plan of the newest
	// checkpoint, if that is an older one.
	begun, made consensus.State
	tried       restoration        // last; zero for none
	cancel      context.CancelFunc // ends that try
	done        chan struct{}      // closed once it has ended
	failed      atomic.Uint64      // see Failed
	restore     func(context.Context, restoration) error
}

// restoration holds what one try computes again.
type restoration struct {
	of    checkpointer.ID
	log   consensus.State // as it is
	made  consensus.State // when the plan of the checkpoint began
	lost  []int           // layers
	peers []plan.PeerID   // of that plan who has no messages of it any more
}

// NewRestorer returns a Restorer that has not carried out any plan.
func NewRestorer(p *Parts) *Restorer {
	r := &Restorer{Parts: p, cancel: func() {}, done: make(chan struct{})}
	r.restore = func(ctx context.Context, of restoration) error { return r.Parts.restore(ctx, of) }
	close(r.done)
	return r
}

// Begin notes that this node begins with the plan of a state.
func (r *Restorer) Begin(state consensus.State) {
	if r.begun.Plan.Generation == state.Checkpoint.Generation {
		r.made = r.begun
	}
	r.begun = state
}

// Follow does what the log wants of this node. stepping says that the plan makes steps here: then all of its members have their state in
// memory, and nothing is computed again. What is lost is tried once, and anew when more is lost; a try ends when nobody needs it any more.
func (r *Restorer) Follow(ctx context.Context, state consensus.State, stepping bool) {
	by, lost := consensus.Restoration(state)
	if by != r.Self || stepping {
		r.Stop()
		return
	}
	next := restoration{of: checkpointer.IDOf(state.Checkpoint), log: state, made: r.made, lost: lost}
	if r.begun.Plan.Generation == state.Checkpoint.Generation {
		next.made = r.begun
	}
	next.peers = lostPeers(state, next.made, nil)
	if r.tries(next) {
		return
	}
	r.Stop()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r.tried, r.cancel, r.done = next, cancel, done
	r.Group.Go(func() error {
		defer close(done)
		r.Log.Info("computing again what nobody holds of the newest checkpoint", "step", next.of.Step, "layers", lost)
		if err := r.restore(ctx, next); err != nil && ctx.Err() == nil {
			r.Log.Warn("cannot compute again what nobody holds of the newest checkpoint", "step", next.of.Step, "layers", lost, "cause", err)
			r.failed.Store(uint64(next.of.Step))
		}
		return nil
	})
}

// tries reports whether the last try is for a restoration. One that goes on is for a part of its layers, too: it has saved the others.
func (r *Restorer) tries(next restoration) bool {
	if r.tried.of != next.of || !slices.Equal(r.tried.peers, next.peers) {
		return false
	}
	select {
	case <-r.done:
		return slices.Equal(r.tried.lost, next.lost)
	default:
		return !slices.ContainsFunc(next.lost, func(l int) bool { return !slices.Contains(r.tried.lost, l) })
	}
}

// Stop ends what is done, waits for it, and forgets it.
func (r *Restorer) Stop() {
	r.cancel()
	<-r.done
	r.tried = restoration{}
	r.failed.Store(0)
}

// Failed returns the step of the newest checkpoint whose lost layers this node is to compute again and cannot; 0 for none.
func (r *Restorer) Failed() plan.Step { return plan.Step(r.failed.Load()) }

// restore computes a checkpoint's lost layers again and saves them.
func (p Parts) restore(ctx context.Context, r restoration) error {
	of := r.made.Plan
	switch {
	case of.Generation != r.of.Generation:
		return errors.New("generation: this process did not carry out the plan that made it")
	case len(of.Sharded) > 0:
		return errors.New("generation: nobody has all of the optimizer state that was in parts")
	case len(r.log.Older) == 0:
		return errors.New("generation: no checkpoint before it is kept")
	}
	var parts []consensus.SalvagePart
	for _, l := range r.lost {
		if last := len(parts) - 1; last >= 0 && parts[last].Layers.End == l && of.Replicas[parts[last].Replica].Stages[parts[last].Stage].Layers.Contains(l) {
			parts[last].Layers.End++
			continue
		}
		id, ok := lostStage(r.log, of, l)
		if !ok {
			return fmt.Errorf("generation: who computed layer %d lives, and does not hold it", l)
		}
		parts = append(parts, consensus.SalvagePart{
			Replica: id.Replica, Stage: id.Stage, Layers: plan.LayerRange{First: l, End: l + 1}, By: p.Self, From: r.log.Older[0].Step,
		})
	}
	return p.replay(ctx, again{of: of, to: r.of.Step, parts: parts, lost: lostPeers(r.log, r.made, parts), computed: func() {}})
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
