package planner

import (
	"cmp"

	"pnode/planner/plan"
)

// assignHolders gives each placement another node that keeps a copy of its checkpoints:
// if possible none that computes the same or a neighbouring stage of the replica, since
// what takes one away may take its neighbours too; among those the one with the fewest
// copies so far. Without another node there is no holder.
func (c *cluster) assignHolders(p *plan.Plan) {
	copies := map[plan.PeerID]int{}
	for r := range p.Replicas {
		stages := p.Replicas[r].Stages
		for s := range stages {
			near := map[plan.PeerID]bool{}
			for n := max(s-1, 0); n <= min(s+1, len(stages)-1); n++ {
				near[stages[n].Peer] = true
			}
			holder, found := Member{}, false
			for _, m := range c.in.Members { // sorted by peer: the first of equals stays
				if m.Draining || m.Peer == stages[s].Peer {
					continue
				}
				if !found || cmp.Or(compareBool(near[m.Peer], near[holder.Peer]), cmp.Compare(copies[m.Peer], copies[holder.Peer])) < 0 {
					holder, found = m, true
				}
			}
			if found {
				stages[s].Holder = holder.Peer
				copies[holder.Peer]++
			}
		}
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
