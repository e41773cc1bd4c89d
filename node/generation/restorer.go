package generation

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"pnode/node/checkpointer"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Restorer computes layers again that nobody holds any more, see consensus.Restore, where this node is the first that may and has not said
// that it cannot, or where those before it have had their time. It begins with an older checkpoint and uses the messages that others kept. The
// node's loop owns it; Failed may be called concurrently.
type Restorer struct {
	*Parts
	// begun holds the log when this node began with each plan of which something may be computed again, and with the newest.
	begun  []consensus.State
	tried  restoration        // last; zero for none
	cancel context.CancelFunc // ends that try
	done   chan struct{}      // closed once it has ended
	failed atomic.Uint64      // see Failed
	seen   struct {           // what is to be computed again, and since when; zero for nothing
		consensus.Restoration
		since time.Time
	}
	restore func(context.Context, restoration) error
}

const (
	// nextAfter is how long each member that is to compute layers again has at least before the next one begins, too. That is as long as the
	// steps took, where that is longer, mostPatience at most.
	nextAfter    = 20 * time.Second
	mostPatience = 5 * time.Minute
)

// restoration holds what one try computes again.
type restoration struct {
	consensus.Restoration
	log   consensus.State // as it is
	made  consensus.State // when the plan of the checkpoint began; zero where this process did not carry it out
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
	line := consensus.RecoveryLine(state)
	r.begun = append(slices.DeleteFunc(r.begun, func(begun consensus.State) bool {
		return !slices.ContainsFunc(line, func(c consensus.Checkpoint) bool { return c.Generation == begun.Plan.Generation })
	}), state)
}

// Follow does what the log wants of this node. stepping says that the plan makes steps here: then all of its members have their state in
// memory, and nothing is computed again. What is lost is tried once, and anew when more is lost; a try ends when nobody needs it any more.
func (r *Restorer) Follow(ctx context.Context, state consensus.State, stepping bool) {
	next := restoration{Restoration: consensus.Restore(state), log: state}
	now := time.Now()
	if checkpointer.IDOf(r.seen.Of) != checkpointer.IDOf(next.Of) || !slices.Equal(r.seen.Layers, next.Layers) {
		r.seen.Restoration, r.seen.since = next.Restoration, now
	}
	if stepping || !slices.Contains(next.By, r.Self) {
		r.Stop()
		return
	}
	if i := slices.IndexFunc(r.begun, func(s consensus.State) bool { return s.Plan.Generation == next.Of.Generation }); i >= 0 {
		next.made = r.begun[i]
	}
	next.peers = lostPeers(state, next.made, nil)
	if !r.tries(next) {
		r.Stop()
	}
	if r.tried.Of.Step != 0 {
		return
	}
	if err := next.lacks(); err != nil { // at once: whoever can need not wait
		r.fail(next, err)
		r.tried = next
		return
	}
	turn := slices.Index(r.Heartbeats.Restorers(next.By, next.Of.Step), r.Self)
	if turn < 0 || now.Sub(r.seen.since) < time.Duration(turn)*r.patience(next) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r.tried, r.cancel, r.done = next, cancel, done
	r.Group.Go(func() error {
		defer close(done)
		r.Log.Info("computing again what nobody holds of a checkpoint", "step", next.Of.Step, "layers", next.Layers, "from", next.From.Step)
		if err := r.restore(ctx, next); err != nil && ctx.Err() == nil {
			r.fail(next, err)
		}
		return nil
	})
}

// patience returns how long each member has before the next one begins, too: one that hangs, or lies, says nothing. Two do no harm, as
// they come to the same bits.
func (r *Restorer) patience(next restoration) time.Duration {
	took := float64(next.Of.Step-next.From.Step) * float64(r.Heartbeats.StepTime(next.log.Plan))
	return max(nextAfter, time.Duration(min(took, float64(mostPatience))))
}

// fail notes that a restoration cannot be done here.
func (r *Restorer) fail(next restoration, cause error) {
	r.Log.Warn("cannot compute again what nobody holds of a checkpoint", "step", next.Of.Step, "layers", next.Layers, "from", next.From.Step, "cause", cause)
	r.failed.Store(uint64(next.Of.Step))
}

// tries reports whether the last try is for a restoration. One that goes on is for a part of its layers, too: it has saved the others.
func (r *Restorer) tries(next restoration) bool {
	if checkpointer.IDOf(r.tried.Of) != checkpointer.IDOf(next.Of) || !slices.Equal(r.tried.peers, next.peers) {
		return false
	}
	select {
	case <-r.done:
		return slices.Equal(r.tried.Layers, next.Layers)
	default:
		return !slices.ContainsFunc(next.Layers, func(l int) bool { return !slices.Contains(r.tried.Layers, l) })
	}
}

// Stop ends what is done, waits for it, and forgets it.
func (r *Restorer) Stop() {
	r.cancel()
	<-r.done
	r.tried = restoration{}
	r.failed.Store(0)
}

// Failed returns the step of the checkpoint whose lost layers this node is to compute again and cannot; 0 for none.
func (r *Restorer) Failed() plan.Step { return plan.Step(r.failed.Load()) }

// lacks returns why a process cannot do this restoration at all, or nil.
func (r restoration) lacks() error {
	switch {
	case r.made.Plan.Generation == 0:
		return errors.New("generation: this process did not carry out the plan that made it")
	case len(r.made.Plan.Sharded) > 0:
		return errors.New("generation: nobody has all of the optimizer state that was in parts")
	}
	return nil
}

// restore computes a checkpoint's lost layers again and saves them.
func (p Parts) restore(ctx context.Context, r restoration) error {
	of := r.made.Plan
	var parts []consensus.SalvagePart
	for _, l := range r.Layers {
		id := r.stage(l)
		if last := len(parts) - 1; last >= 0 && parts[last].Layers.End == l && (plan.StageID{Replica: parts[last].Replica, Stage: parts[last].Stage}) == id {
			parts[last].Layers.End++
			continue
		}
		parts = append(parts, consensus.SalvagePart{
			Replica: id.Replica, Stage: id.Stage, Layers: plan.LayerRange{First: l, End: l + 1}, By: p.Self, From: r.From.Step,
		})
	}
	return p.replay(ctx, again{of: of, to: r.Of.Step, parts: parts, lost: lostPeers(r.log, r.made, parts), reached: func(plan.Step) {}, computed: func() {}})
}

// stage returns the stage of the plan with a layer, of a member that has nothing of it any more where there is one.
func (r restoration) stage(layer int) (found plan.StageID) {
	first := true
	for i, pipe := range r.made.Plan.Replicas {
		for st, place := range pipe.Stages {
			if place.Layers.Contains(layer) && (first || slices.Contains(r.peers, place.Peer)) {
				found, first = plan.StageID{Replica: plan.Replica(i), Stage: plan.Stage(st)}, false
			}
		}
	}
	return found
}
