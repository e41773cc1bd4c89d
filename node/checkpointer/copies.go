package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/neterr"
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
		err := s.copyTo(ctx, request, holder, patience)
		switch {
		case err == nil:
			return holder
		case ctx.Err() != nil || s.over(request.Generation):
			return ""
		}
		s.Log.Warn("nobody else has a copy of what this node computes of the newest checkpoint yet; the next one gets one again", "step", request.Step, "holder", holder, "cause", err)
		if !s.replaced(ctx, request, holder, err) {
			return ""
		}
		lost = append(lost, holder)
	}
}

// copyTo has a holder fetch a copy. Where none gets there it asks again, until the holder was out of reach for too long, or asking is of no use.
func (s PlanSaver) copyTo(ctx context.Context, request copyRequest, holder plan.PeerID, patience time.Duration) error {
	var reached time.Time // the last time before the first copy that did not get there
	for {
		heard, err := s.ask(ctx, request, holder, patience)
		if !errors.Is(err, errOutOfReach) {
			return err
		}
		if reached.IsZero() {
			reached = heard
		}
		if time.Since(reached) >= holderPatience || !s.again(ctx, request, holder) {
			return err
		}
	}
}

// ask asks a holder for a copy once. It returns when the holder was last known to answer, or was asked. The error wraps errOutOfReach where the copy
// did not get there: what the holder itself says of why it has none is another matter, and so is a copy that takes too long.
func (s PlanSaver) ask(ctx context.Context, request copyRequest, holder plan.PeerID, patience time.Duration) (heard time.Time, err error) {
	asking, free := s.untilPause(ctx, request, holder, patience)
	defer free()
	listening, end := s.untilSilent(asking, holder)
	answer, err := s.Peers.Ask(listening, holder, protocolCopy, request)
	ended := context.Cause(listening)
	heard = end()
	switch {
	case err == nil && len(answer) == 0:
		return heard, nil
	case err == nil && string(answer) == copyUnsent:
		if lacks := func(h plan.Hash) bool { return !s.Store.HasChunk(h) }; slices.ContainsFunc(request.Chunks, lacks) {
			return heard, ErrNoChunks // it was to get them from others
		}
		return heard, errUnsent
	case err == nil: // the holder says that another plan is to follow
		if s.pauses(ctx) {
			return heard, errPaused
		}
		return heard, errNoPause
	case ended != nil:
		return heard, ended
	case errors.Is(err, ErrRemote) || neterr.Exhausted(err):
		return heard, err
	default:
		return heard, fmt.Errorf("%w: %w", errOutOfReach, err)
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
	if s.plan.Local != nil { // all replicas have the same
		return nil
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
	for s.plan.Local == nil && ctx.Err() == nil && !s.superseded(s.plan.Generation) {
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
