package node

import (
	"slices"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// The connection to a node that was killed is open for half a minute yet.
func TestTheGoneAreNotLivingWhileTheyLookConnected(t *testing.T) {
	state := consensus.State{Members: []consensus.Member{
		{Peer: "a", State: consensus.Active}, {Peer: "killed", State: consensus.Gone},
	}}
	got := livingOf(state, []plan.PeerID{"killed", "a", "founder"})
	if want := []plan.PeerID{"a", "founder"}; !slices.Equal(got, want) {
		t.Errorf("living are %v, want %v", got, want)
	}
}
