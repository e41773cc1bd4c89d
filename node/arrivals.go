package node

import (
	"fmt"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// sightedMember is a member as it was last told of.
type sightedMember struct {
	boot  uint64
	state consensus.MemberState
}

// arrivals tells what changes in the roster. The run loop owns it.
type arrivals struct {
	known map[plan.PeerID]sightedMember // nil before the first look
}

// news are sentences about what changed since the last look; the first look counts who is
// there. self is told as this node.
func (a *arrivals) news(members []consensus.Member, self plan.PeerID) (news []string) {
	before := a.known
	a.known = map[plan.PeerID]sightedMember{}
	active := 0
	for _, m := range members {
		a.known[m.Peer] = sightedMember{m.Boot, m.State}
		if m.State != consensus.Gone {
			active++
		}
		if was, ok := before[m.Peer]; before != nil {
			if text := change(was, ok, m); text != "" {
				news = append(news, called(m.Peer, self)+" "+text)
			}
		}
	}
	if before == nil {
		return []string{fmt.Sprintf("this node is in the run, one of %s", plan.Count(active, "node"))}
	}
	return news
}

// change is what happened to a member that was in some state, if it was known.
func change(was sightedMember, known bool, m consensus.Member) string {
	switch {
	case m.State == consensus.Gone && known && was.state == consensus.Gone:
		return ""
	case m.State == consensus.Gone && m.Reason == "":
		return "has left"
	case m.State == consensus.Gone:
		return "is gone: " + m.Reason
	case !known:
		return "has joined with " + describeDevices(m.Profile)
	case was.boot != m.Boot:
		return "was started again and is back with " + describeDevices(m.Profile)
	case was.state == consensus.Gone:
		return "is back"
	case m.State == consensus.Draining && was.state != consensus.Draining:
		return "is leaving"
	}
	return ""
}

func called(peer, self plan.PeerID) string {
	if peer == self {
		return "this node"
	}
	return peer.Short()
}

// tellArrivals makes changes of the roster known.
func (n *Node) tellArrivals(state consensus.State) {
	for _, text := range n.arrivals.news(state.Members, n.self) {
		n.hub.Publish(api.Event{Kind: api.KindMember, Generation: state.Plan.Generation, Message: text})
	}
}
