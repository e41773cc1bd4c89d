package planner

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// reduceTime is what the reduction between replicas takes: each layer's gradient is cut
// into one part per replica; a unit sends every part but its own to the part's owner
// and its own summed part back to all. Messages of one unit follow each other, units
// work side by side.
func (c *cluster) reduceTime(k *candidate) schedule.Nanos {
	if len(k.pipes) < 2 {
		return 0
	}
	var slowest, latency schedule.Nanos
	for r, p := range k.pipes {
		for s, u := range p.units {
			first, end := p.layers(s)
			var sum schedule.Nanos
			for r2, q := range k.pipes {
				if r2 == r {
					continue
				}
				s2, _ := slices.BinarySearch(q.ends, first+1) // the stage that holds layer first
				for from := first; from < end; s2++ {
					v, to := q.units[s2], min(end, q.ends[s2])
					hop := c.link(u, v).Hop((c.params[to] - c.params[from]) / int64(len(k.pipes)))
					sum += 2 * hop.Transfer
					latency = max(latency, 2*hop.Latency)
					from = to
				}
			}
			slowest = max(slowest, sum)
		}
	}
	return min(slowest+latency, cost.Longest)
}

// tiedTime is what the two ends of a replica need to add up the tied embedding's
// gradient.
func (c *cluster) tiedTime(k *candidate) schedule.Nanos {
	bytes := 4 * int64(c.in.Run.Model.TiedGradLen())
	var slowest schedule.Nanos
	for _, p := range k.pipes {
		if n := len(p.units); n > 1 {
			forth, back := c.link(p.units[0], p.units[n-1]).Hop(bytes), c.link(p.units[n-1], p.units[0]).Hop(bytes)
			slowest = max(slowest, forth.Transfer+forth.Latency, back.Transfer+back.Latency)
		}
	}
	return slowest
}

// commitTime is the slowest round trip with the coordinator, the last stage of replica 0.
func (c *cluster) commitTime(k *candidate) schedule.Nanos {
	last := k.pipes[0].units[len(k.pipes[0].units)-1]
	var slowest schedule.Nanos
	for _, p := range k.pipes {
		for _, u := range p.units {
			slowest = max(slowest, c.link(u, last).Hop(0).Latency+c.link(last, u).Hop(0).Latency)
		}
	}
	return slowest
}
