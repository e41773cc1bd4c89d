package gossip

import (
	"fmt"
	"slices"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestALinkIsMeasuredByOneEnd(t *testing.T) {
	link := func(peer plan.PeerID) []plan.LinkProfile { return []plan.LinkProfile{{Peer: peer}} }
	state := consensus.State{Members: []consensus.Member{
		{Peer: "a", State: consensus.Active},
		{Peer: "b", State: consensus.Active, Profile: plan.Profile{Links: link("c")}},
		{Peer: "c", State: consensus.Joining},
		{Peer: "d", State: consensus.Gone},
		{Peer: "e", State: consensus.Active},
		{Peer: "f", State: consensus.Draining},
	}}
	if got, want := unmeasured(state, "c", link("e")), []plan.PeerID{"f", "a"}; !slices.Equal(got, want) {
		t.Errorf("c measures %v, want %v", got, want)
	}
	if got, want := unmeasured(state, "a", nil), []plan.PeerID{"b", "c", "e", "f"}; !slices.Equal(got, want) {
		t.Errorf("a measures %v, want %v", got, want)
	}
}

func TestANodeMeasuresAFewLinks(t *testing.T) {
	var state consensus.State
	for i := range 3 * maxLinks {
		state.Members = append(state.Members, consensus.Member{Peer: plan.PeerID(fmt.Sprintf("p%02d", i)), State: consensus.Active})
	}
	if got := unmeasured(state, "p20", nil); len(got) != maxLinks || got[0] != "p21" || got[3] != "p00" {
		t.Errorf("measures %v", got)
	}
	if got := unmeasured(state, "p20", make([]plan.LinkProfile, maxLinks+1)); len(got) != 0 {
		t.Errorf("has enough and measures %v", got)
	}
}
