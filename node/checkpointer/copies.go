package checkpointer

import (
	"context"
	"errors"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// copy has a stage's holder fetch a copy, and returns the holder; empty without a copy. Where the holder is lost meanwhile,
// or copies have not got there for some time, the one that takes its place is asked.
func (s PlanSaver) copy(ctx context.Context, request copyRequest, patience time.Duration) plan.PeerID {
	var lost []plan.PeerID
	for {
		holder := s.Consensus.State().Holder(request.stage())
		if holder == "" || holder == s.Self || slices.Contains(lost, holder) { // a substitute may be the holder itself
			return ""
		}
		asked := time.Now()
		asking, free := s.untilPause(ctx, request, holder, patience)
		listening, end := s.untilSilent(asking, holder)
		answer, err := s.Peers.Ask(listening, holder, protocolCopy, request)
		gone, silent := errors.Is(context.Cause(asking), errGone), errors.Is(context.Cause(listening), errSilent)
		end()
		free()
		switch {
		case err == nil && len(answer) == 0:
			s.failing.forget(holder)
			return holder
		case ctx.Err() != nil || s.over(request.Generation):
			return ""
		case err == nil: // the holder says that another plan is to follow
			if s.pauses(ctx) || ctx.Err() != nil {
				return ""
			}
			err = errNoPause
		case gone:
			err = errGone
		case silent:
			err = errSilent
		}
		s.Log.Warn("nobody else has a copy of what this node computes of the newest checkpoint yet; the next one gets one again", "step", request.Step, "holder", holder, "cause", err)
		if !gone && !s.replaced(ctx, request, holder, asked) {
			return ""
		}
		lost = append(lost, holder)
	}
}

var (
	// errPaused ends a copy: another plan is to follow, whose state needs the lines.
	errPaused = errors.New("checkpointer: another plan is to follow")
	// errNoPause says that the holder gave the copy up for a plan of which the log knows nothing.
	errNoPause = errors.New("checkpointer: the holder waits for another plan, and none is to follow")
	// errGone ends a copy before the connection does, which lasts for half a minute: the next save waits for it.
	errGone = errors.New("checkpointer: the other node of the copy is gone")
)

// untilPause returns a context that ends after some time, when the other end of a copy is gone, and when its plan is over, or
// about to be. The copies of the last step of a plan are wanted even then, and those of the run's first checkpoint: there is none to go
// back to.
func (c *Checkpointer) untilPause(ctx context.Context, r copyRequest, other plan.PeerID, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(ctx, patience)
	ctx, end := context.WithCancelCause(ctx)
	now := c.Consensus.State()
	wanted := now.Paused() || now.Checkpoint.Step == 0
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for ctx.Err() == nil {
			changed := c.Consensus.Changed()
			if m, known := c.Consensus.State().Member(other); known && m.State == consensus.Gone {
				end(errGone)
				return
			}
			if !wanted && c.over(r.Generation) {
				end(errPaused)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	return ctx, func() {
		end(nil)
		stop()
		<-watching
	}
}

// over reports whether a plan has ended, or is about to.
func (c *Checkpointer) over(g plan.Generation) bool {
	return c.Consensus.State().Paused() || c.superseded(g)
}

// superseded reports whether the log has another plan.
func (c *Checkpointer) superseded(g plan.Generation) bool {
	return c.Consensus.State().Plan.Generation != g
}

// reportCopy reports a stage that a holder has a copy of, empty for none. Where the log has another holder by now and refuses
// that, the stage is reported without the copy.
func (s PlanSaver) reportCopy(ctx context.Context, saved consensus.StageSaved, holder plan.PeerID) error {
	if holder != "" {
		if taken, err := s.reportHolders(ctx, saved, s.Self, holder); taken || err != nil {
			return err
		}
	}
	return s.report(ctx, saved, s.Self)
}

// reportHolders reports a stage with a copy. It returns false where the log has another holder by now and refuses that.
func (s PlanSaver) reportHolders(ctx context.Context, saved consensus.StageSaved, holders ...plan.PeerID) (taken bool, err error) {
	err = s.report(ctx, saved, holders...)
	if errors.Is(err, consensus.ErrRejected) && !errors.Is(err, consensus.ErrStale) {
		s.Log.Info("the log does not take this stage's copy", "step", saved.Step, "holders", holders, "cause", err)
		return false, nil
	}
	return err == nil, err
}

// Settle tells the log which of its stages' layers this node has stored, now that it has them. Once the plan has made a step
// it has their holders fetch copies, from whoever has stored them: before, lines carry state to members that all wait for. A
// member that leaves goes once others are known to have what it had.
func (s PlanSaver) Settle(ctx context.Context, stepped <-chan struct{}) error {
	start := s.Consensus.State().Checkpoint
	if start.Step != s.plan.Start || start.Step == 0 {
		return nil
	}
	own := s.own(start)
	for _, st := range own {
		if !storedBy(st.saved.Layers, s.Self) && len(s.Fetcher.Missing(st.request.Chunks)) == 0 { // some may be in memory alone
			if err := s.report(ctx, st.saved, s.Self); errors.Is(err, consensus.ErrStale) {
				return nil // a newer checkpoint has its own copies
			} else if err != nil {
				return err
			}
		}
	}
	select {
	case <-stepped:
		return s.copyAll(ctx, own)
	case <-ctx.Done():
		return nil
	}
}

// KeepCopies has copies of this node's stages made where those of the newest checkpoint were lost with their holders,
// until ctx ends.
func (s PlanSaver) KeepCopies(ctx context.Context) error {
	seen := uint64(0)
	for ctx.Err() == nil && !s.superseded(s.plan.Generation) {
		changed := s.Consensus.Changed()
		state := s.Consensus.State()
		if state.Epoch != seen {
			seen = state.Epoch
			own := slices.DeleteFunc(s.own(state.Checkpoint), func(st stage) bool { return !st.lacksCopies(state, s.Self) })
			if err := s.copyAll(ctx, own); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// stage is a stage of this node in a committed checkpoint.
type stage struct {
	request copyRequest
	saved   consensus.StageSaved
}

// lacksCopies reports whether a stage's node has to see to copies of it: it has stored the state, or it has the state in
// memory alone and fewer than two members that stay have stored it. Then the first replica's node does.
func (st stage) lacksCopies(state consensus.State, self plan.PeerID) bool {
	if storedBy(st.saved.Layers, self) {
		return true
	}
	return st.request.Replica == 0 && slices.ContainsFunc(st.saved.Layers, func(l consensus.LayerRef) bool {
		stay := slices.DeleteFunc(slices.Clone(l.Holders), func(p plan.PeerID) bool {
			m, _ := state.Member(p)
			return m.State != consensus.Active && m.State != consensus.Joining || !l.StoredBy(p)
		})
		return len(stay) < 2
	})
}

// own returns the stages that this node has by the plan, as a checkpoint has them.
func (s PlanSaver) own(made consensus.Checkpoint) (own []stage) {
	for r, pipe := range s.plan.Replicas {
		for i, place := range pipe.Stages {
			if place.Peer != s.Self || len(made.Layers) < place.Layers.End {
				continue
			}
			st := stage{
				copyRequest{Generation: s.plan.Generation, Step: made.Step, Replica: plan.Replica(r), Stage: plan.Stage(i)},
				consensus.StageSaved{Step: made.Step, Generation: made.Generation, Layers: made.Layers[place.Layers.First:place.Layers.End]},
			}
			for _, l := range st.saved.Layers {
				st.request.Chunks = append(st.request.Chunks, l.Chunks...)
			}
			own = append(own, st)
		}
	}
	return own
}

// copyAll has the holders of stages fetch copies, where they have none.
func (s PlanSaver) copyAll(ctx context.Context, stages []stage) error {
	defer s.count()()
	for _, st := range stages {
		if holder := s.Consensus.State().Holder(st.request.stage()); holder == "" || storedBy(st.saved.Layers, holder) {
			continue
		}
		if holder := s.copy(ctx, st.request, slowCopyTimeout); holder != "" {
			if _, err := s.reportHolders(ctx, st.saved, holder); errors.Is(err, consensus.ErrStale) {
				return nil // a newer checkpoint has its own copies
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// storedBy reports whether a peer is known to have stored all of some layers.
func storedBy(layers []consensus.LayerRef, peer plan.PeerID) bool {
	return !slices.ContainsFunc(layers, func(l consensus.LayerRef) bool { return !l.StoredBy(peer) })
}
