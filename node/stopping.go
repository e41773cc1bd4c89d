package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// stopTimeout bounds the wait of a stopped run's nodes for its owner's node to have the last checkpoint whole, where nobody said when
	// they must be gone.
	stopTimeout = leaveTimeout
	// votesTimeout bounds the wait for the owner's node to vote alone.
	votesTimeout = 5 * time.Second
	// showEvery is the time between two words of how far the copy is.
	showEvery = 5 * time.Second
	// rateAfter is how long chunks come until their rate counts.
	rateAfter = 5 * time.Second
)

// stopView is the input to awaited, all of it plain values.
type stopView struct {
	State consensus.State
	// Copies say which checkpoint members keep whole, as they last said.
	Copies map[plan.PeerID]plan.WholeCopy
	// Here are the members that have not stopped.
	Here map[plan.PeerID]bool
}

// awaited returns the owners' nodes that are here, are to have the stopped run's checkpoint whole, and lack it. settled reports that one has
// it.
func (v stopView) awaited() (awaited []plan.PeerID, settled bool) {
	for _, o := range v.State.Owners {
		lacks := func(l consensus.LayerRef) bool { return !l.StoredBy(o) }
		m, _ := v.State.Member(o)
		switch c := v.Copies[o]; {
		case !v.Here[o] || m.State == "" || m.State == consensus.Gone:
		case v.State.Checkpoint.Step == 0:
		case c.Has(v.State.Checkpoint.Step, v.State.Checkpoint.Generation), !slices.ContainsFunc(v.State.Checkpoint.Layers, lacks): // a full list of holders lacks it
			return nil, true
		case !c.Off && c.Why == "" && len(v.Here) > 1:
			awaited = append(awaited, o)
		}
	}
	return awaited, false
}

// stopping is the end of a node of a run that was stopped: it stays until the owner's node can go on by itself.
type stopping struct {
	*loop
	begun, settled time.Time
	came           int64     // bytes of the copy that were there when it was first seen
	coming         time.Time // since then
	told           time.Time // people, of how far it is
}

// settle blocks until an owner's node has the last checkpoint whole and votes alone where votes move, or not for want of time.
func (s *stopping) settle(ctx context.Context) {
	s.begun = time.Now()
	tick := time.NewTicker(gossip.Every / 4)
	defer tick.Stop()
	for {
		changed := s.raft.Changed()
		over, text := s.look(s.raft.State(), time.Now())
		if text != "" && (over || time.Since(s.told) >= showEvery) {
			s.told = time.Now()
			state := s.raft.State()
			s.monitor.Publish(api.Event{Kind: api.KindDrain, Generation: state.Plan.Generation, Step: state.Checkpoint.Step, Message: text})
		}
		if over {
			return
		}
		select {
		case <-ctx.Done():
			return
		case why := <-s.leaving:
			s.exit.ask(why, time.Now())
		case <-changed:
		case <-tick.C:
		}
	}
}

// look reports whether nothing is waited for any more, and says for people what is, or what was in vain.
func (s *stopping) look(state consensus.State, now time.Time) (over bool, text string) {
	v := stopView{State: state, Copies: map[plan.PeerID]plan.WholeCopy{s.self: s.custody.whole.Copy()}, Here: map[plan.PeerID]bool{s.self: true}}
	for _, m := range state.Members {
		b, _ := s.heartbeats.Last(m.Peer)
		if m.Peer != s.self && m.State != consensus.Gone && b.Phase != string(Stopped) && s.heartbeats.Silent(m.Peer, s.begun, now) < lingerSilence {
			v.Here[m.Peer], v.Copies[m.Peer] = true, s.heartbeats.Whole(m.Peer)
		}
	}
	awaited, settled := v.awaited()
	if settled {
		if s.settled.IsZero() {
			s.settled = now
		}
		other := func(p plan.PeerID) bool { return !state.Owner(p) }
		return !consensus.AllGo(state) || !slices.ContainsFunc(s.raft.Quorum().Voters, other) || now.Sub(s.settled) > votesTimeout || s.exit.overdue(now), ""
	}
	if len(awaited) == 0 {
		return true, ""
	}
	return s.awaits(v, awaited[0], now)
}

// awaits says how far the copy of an owner's node is, and reports whether it does not come in time.
func (s *stopping) awaits(v stopView, owner plan.PeerID, now time.Time) (over bool, text string) {
	until := s.begun.Add(stopTimeout)
	if at := s.exit.notice.At; !at.IsZero() {
		until = at.Add(-s.exit.parting)
	}
	c, rate, late := v.Copies[owner], "", false
	if c.Next == v.State.Checkpoint.Step {
		if s.coming.IsZero() {
			s.coming, s.came = now, c.DoneBytes
		}
		rate = fmt.Sprintf(": %.1f of %s", float64(c.DoneBytes)/1e6, megabytes(c.SizeBytes))
		if took := now.Sub(s.coming); took >= rateAfter && c.DoneBytes > s.came {
			perS := float64(c.DoneBytes-s.came) / took.Seconds()
			left := time.Duration(float64(c.SizeBytes-c.DoneBytes) / perS * float64(time.Second))
			rate += fmt.Sprintf(" at %s/s, %s to go", megabytes(int64(perS)), plan.Duration(left.Round(time.Second)))
			late = now.Add(left).After(until)
		}
	}
	step, why, who := v.State.Checkpoint.Step, cmp.Or(s.exit.notice.Why, "the run stops"), "goes to "+v.State.NameOf(owner)
	if owner == s.self {
		who = "comes to this node"
	}
	if late || !now.Before(until) {
		return true, fmt.Sprintf("stopping (%s): the layers of step %d that others have did not come to %s in time%s. To go on from there it needs %s, too", why, step, v.State.NameOf(owner), rate, s.holders(v.State, owner))
	}
	return false, fmt.Sprintf("stopping (%s): step %d is saved. What others have of it %s, the owner's, so that it can go on without them%s; at most until %s", why, step, who, rate, until.Format(time.TimeOnly))
}

// holders names who has the layers that an owner's node lacks.
func (s *stopping) holders(state consensus.State, owner plan.PeerID) string {
	var names []string
	for _, l := range state.Checkpoint.Layers {
		if slices.Contains(l.Holders, owner) {
			continue
		}
		for _, h := range l.Holders {
			names = append(names, state.NameOf(h))
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " and ")
}
