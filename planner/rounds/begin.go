package rounds

import (
	"cmp"
	"slices"

	"pnode/planner/plan"
)

// Own is a state that a replica had for itself at a plan's start.
type Own struct {
	Replica plan.Replica
	// Holders are by layer the peers that have it; none of layers of which nothing is trained.
	Holders [][]plan.PeerID
}

// Begin has the replicas of a plan begin with own states, the lowest replica's first. Each state goes on with the replica whose devices have most of it already. Replicas that
// are left begin with a copy of the first one, without what its messages lacked. Replicas that make every step together begin with the first one.
func Begin(p *plan.Plan, states []Own) {
	if len(states) == 0 {
		return
	}
	first := plan.Own{Replica: states[0].Replica, Step: p.Start, Copied: p.Local != nil}
	for r := range p.Replicas {
		p.Replicas[r].Own = &first
	}
	if p.Local == nil {
		return
	}
	type pair struct{ r, state, here int }
	var pairs []pair
	for r := range p.Replicas {
		for i, s := range states {
			pairs = append(pairs, pair{r, i, s.here(p.Replicas[r])})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.here, a.here) })
	taken, has := make([]bool, len(states)), make([]bool, len(p.Replicas))
	for _, at := range pairs {
		if taken[at.state] || has[at.r] {
			continue
		}
		taken[at.state], has[at.r] = true, true
		p.Replicas[at.r].Own = &plan.Own{Replica: states[at.state].Replica, Step: p.Start}
	}
}

// here returns how many layers of a state the peers of a replica have which are to train them.
func (o Own) here(pipe plan.Pipeline) (layers int) {
	for _, at := range pipe.Stages {
		for l := at.Layers.First; l < min(at.Layers.End, len(o.Holders)); l++ {
			if slices.Contains(o.Holders[l], at.Peer) {
				layers++
			}
		}
	}
	return layers
}
