package leader

import (
	"context"
	"slices"
	"sync"

	"pnode/node/gossip"
	"pnode/node/leader/blame"
	"pnode/pipeline/link/silence"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// A link may be dead, perhaps in one direction alone, while both ends live: no relay led around it, or the link would not have been
// given up. Every member of a plan exchanges messages with the coordinator, and most with others, so that no plan with both would get
// on. One of the two is left out for a while.

// showTime is how long members take at most to show that they live: a heartbeat, and a look.
const showTime = gossip.Every + decideEvery

// parted rules on a dead link whose ends live. It comes before anything is saved: what the one that is left out saves others could
// not fetch.
func (v view) parted() (verdict, bool) {
	if v.Ruled || v.Ending || v.Plan.Generation == 0 || v.spoilt() || v.Stall.Lacks {
		return verdict{}, false
	}
	r, ok := v.Trial.Parted()
	return verdict{Rule: r}, ok
}

// mayPart reports whether members that are not silent accuse one another of a dead link, and may show within a moment that they have
// lived all the time.
func (v view) mayPart() bool {
	speaks := func(p plan.PeerID) bool {
		return slices.ContainsFunc(v.Members, func(m memberView) bool {
			return m.Peer == p && !m.Restarted && m.Silent <= steadyGap && v.Stall.For <= showTime+m.Slack
		})
	}
	return !v.Ruled && slices.ContainsFunc(v.Trial.Accusations, func(a accusation) bool {
		return a.Kind == plan.LostLink && speaks(a.By) && speaks(a.Accused)
	})
}

// lively returns the members of the plan that have given signs of life all the time since a link that was given up went silent, and
// one since others were told of it: gossip takes other ways than the data. self is one of them.
func (m moment) lively(self plan.PeerID) map[plan.PeerID]bool {
	all := map[plan.PeerID]bool{}
	told := m.seen.last.Add(-m.stall.For)
	for _, p := range m.state.Plan.Peers() {
		in, _ := m.state.Member(p)
		if p == self || in.State != consensus.Gone && !m.state.Reborn(in) && m.seen.steady(in, told.Add(-silence.LeastLink), told) {
			all[p] = true
		}
	}
	return all
}

// confirm asks both ends of a link that is dead, where that is the reason of a ruling. The one that does not answer this node
// either is left out.
func (c *court) confirm(ctx context.Context, state consensus.State, r blame.Ruling) blame.Ruling {
	if !r.Parted {
		return r
	}
	if deaf, one := c.deafOf(ctx, r.Peer, r.Accuser); one && deaf != r.Peer {
		r.Peer, r.Accuser = r.Accuser, r.Peer
		r.Detail = blame.PartedFrom(state.NameOf(r.Accuser))
	}
	return r
}

// deafOf returns which of two members does not answer this leader, where the other one does.
func (c *court) deafOf(ctx context.Context, a, b plan.PeerID) (deaf plan.PeerID, one bool) {
	var asking sync.WaitGroup
	pair, answers := []plan.PeerID{a, b}, []bool{true, true}
	for i, p := range pair {
		if p != c.Self {
			asking.Go(func() { answers[i] = c.Consensus.Answers(ctx, p) })
		}
	}
	asking.Wait()
	switch {
	case answers[0] == answers[1]:
		return "", false
	case answers[0]:
		return b, true
	}
	return a, true
}
