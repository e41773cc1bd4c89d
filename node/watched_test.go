package node

import (
	"fmt"
	"slices"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhoIsWatchedInALargeRun: in a run of today every node watches all others. Of 1,000 members one with a part in the plan watches others with
// one, a voter these and the voters, and the rest nobody.
func TestWhoIsWatchedInALargeRun(t *testing.T) {
	peer := func(i int) plan.PeerID { return plan.PeerID(fmt.Sprintf("p%04d", i)) }
	run := func(members, placed int) (s consensus.State) {
		for i := range members {
			s.Members = append(s.Members, consensus.Member{Peer: peer(i), State: consensus.Active})
		}
		s.Plan = plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{}}}
		for i := range placed {
			s.Plan.Replicas[0].Stages = append(s.Plan.Replicas[0].Stages, plan.Placement{Peer: peer(i)})
		}
		return s
	}
	voters := []plan.PeerID{peer(3), peer(900), peer(901)}
	for _, c := range []struct {
		name                       string
		members, placed, self, all int
		watches                    plan.PeerID
	}{
		{"a run of 64", 64, 8, 40, 64, peer(50)},
		{"a worker of 1,000", 1000, 40, 7, 39, peer(39)},
		{"a worker of a large plan", 1000, 200, 190, 64, peer(191)},
		{"a voter", 1000, 40, 900, 41, peer(901)},
		{"a voter beside a large plan", 1000, 200, 900, 201, peer(150)},
		{"another one", 1000, 40, 500, 0, ""},
	} {
		peers, most := workedWith(run(c.members, c.placed), peer(c.self), voters)
		watched := peers[:min(len(peers), most)]
		if len(watched) != c.all || c.watches != "" && !slices.Contains(watched, c.watches) {
			t.Errorf("%s: watches %d, want %d and %s: %v", c.name, len(watched), c.all, c.watches, watched)
		}
	}
}
