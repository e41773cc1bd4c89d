package leader

import (
	"slices"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// substitute returns who goes on in the place of a member that is lost, so that nobody ends the generation; empty where that is
// no way. Members that have given the generation up are past it, and a plan that ends anyway needs nobody. Of those that have the
// layers the one with the fewest stages computes them twice.
func (v view) substitute(lost plan.PeerID) plan.PeerID {
	if v.Carried.Lost != "" || v.Paused || v.Saved || v.Ending || v.Ended != "" || v.Salvage != nil || v.Stall.For > 0 || len(v.Trial.Accusations) > 0 {
		return ""
	}
	able := slices.DeleteFunc(v.Plan.Substitutes(lost), func(p plan.PeerID) bool {
		return !slices.ContainsFunc(v.Members, func(m memberView) bool {
			return m.Peer == p && m.Active && !m.Restarted && !m.Ended && m.Silent <= DeadAfter
		})
	})
	if len(able) == 0 || v.absence() != "" {
		return ""
	}
	return slices.MinFunc(able, func(a, b plan.PeerID) int { return v.stagesOf(a) - v.stagesOf(b) })
}

// stagesOf counts a peer's stages.
func (v view) stagesOf(peer plan.PeerID) (n int) {
	for _, w := range v.Plan.Workers() {
		if w.Peer == peer {
			n += len(v.Plan.StagesOf(w))
		}
	}
	return n
}

// carried names a lost member of the plan and who goes on in its place; zero while nobody does.
type carried struct{ Lost, By plan.PeerID }

// carriedOf returns who goes on in whose place, as the log says.
func carriedOf(state consensus.State) carried {
	if s := state.Substitute; s != nil {
		return carried{s.Lost, s.By}
	}
	return carried{}
}

// accused has the substitute answer for what a lost member does in the generation.
func (c carried) accused(said []accusation) []accusation {
	said = slices.Clone(said)
	for i, a := range said {
		if c.Lost != "" && a.Accused == c.Lost {
			said[i].Accused = c.By
		}
	}
	return said
}
