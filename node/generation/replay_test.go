package generation

import (
	"slices"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestLostPeers: who is gone, was started again, or does not give what it has, is replayed.
func TestLostPeers(t *testing.T) {
	p := plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{}}}
	state := consensus.State{PlanEpoch: 5} // when the plan began
	for _, peer := range []plan.PeerID{"a", "b", "c", "d"} {
		p.Replicas[0].Stages = append(p.Replicas[0].Stages, plan.Placement{Peer: peer})
		state.Members = append(state.Members, consensus.Member{Peer: peer, State: consensus.Active, Since: 5})
	}
	state.Plan = p
	for _, c := range []struct {
		change func(*consensus.State) []consensus.SalvagePart
		want   []plan.PeerID
	}{
		{func(*consensus.State) []consensus.SalvagePart { return nil }, nil},
		{func(s *consensus.State) []consensus.SalvagePart { s.Members[1].State = consensus.Gone; return nil }, []plan.PeerID{"b"}},
		{func(s *consensus.State) []consensus.SalvagePart { s.Members[2].Since = 6; return nil }, []plan.PeerID{"c"}},
		{func(s *consensus.State) []consensus.SalvagePart { // and another plan was made since
			s.Members[2].Since, s.PlanEpoch = 6, 7
			return nil
		}, []plan.PeerID{"c"}},
		{func(s *consensus.State) []consensus.SalvagePart { // it leaves now
			s.Members[2].ProcessEpoch, s.Members[2].Since, s.Members[2].State = 2, 7, consensus.Draining
			return nil
		}, []plan.PeerID{"c"}},
		{func(s *consensus.State) []consensus.SalvagePart { // as it was, but leaves
			s.Members[2].Since, s.Members[2].State = 7, consensus.Draining
			return nil
		}, nil},
		{func(s *consensus.State) []consensus.SalvagePart { s.Members = s.Members[:3]; return nil }, []plan.PeerID{"d"}},
		{func(s *consensus.State) []consensus.SalvagePart {
			s.Members[1].State = consensus.Gone
			return []consensus.SalvagePart{{Stage: 3, By: "a"}}
		}, []plan.PeerID{"b", "d"}},
	} {
		s := state
		s.Members = slices.Clone(state.Members)
		if parts := c.change(&s); !slices.Equal(lostPeers(s, state, parts), c.want) {
			t.Errorf("lost are %v, want %v", lostPeers(s, state, parts), c.want)
		}
	}
}

// TestLayersOf: those of all stages of all lost members, which a replay begins with.
func TestLayersOf(t *testing.T) {
	var p plan.Plan
	pipe := plan.Pipeline{}
	for i, peer := range []plan.PeerID{"a", "b", "c", "b"} {
		pipe.Stages = append(pipe.Stages, plan.Placement{Peer: peer, Device: "cpu", Layers: plan.LayerRange{First: 2 * i, End: 2*i + 2}})
	}
	p.Replicas = []plan.Pipeline{pipe}
	for _, c := range []struct {
		lost []plan.PeerID
		want []int
	}{
		{nil, nil},
		{[]plan.PeerID{"b"}, []int{2, 3, 6, 7}},
		{[]plan.PeerID{"c", "a", "nobody"}, []int{0, 1, 4, 5}},
	} {
		if got := layersOf(p, c.lost); !slices.Equal(got, c.want) {
			t.Errorf("%v have layers %v, want %v", c.lost, got, c.want)
		}
	}
}
