package planner

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// exchangeTime is what one reduce-scatter or one all-gather of layers between replicas takes:
// each layer's vector is cut into one part per replica, and a unit sends every part but its own
// to the part's owner, or its own to all. Messages of one unit follow each other, units work
// side by side.
func (c *cluster) exchangeTime(rows [][]cell, layers []LayerRange) schedule.Nanos {
	var slowest, latency schedule.Nanos
	sums := make([]schedule.Nanos, len(c.units))
	for r, row := range rows {
		for _, k := range row {
			for r2, other := range rows {
				if r2 == r {
					continue
				}
				s2, _ := slices.BinarySearchFunc(other, k.first+1, func(o cell, layer int) int { return o.end - layer }) // the stage that holds layer first
				for from := k.first; from < k.end; s2++ {
					v, to := other[s2].unit, min(k.end, other[s2].end)
					if bytes := c.paramBytes(from, to, layers); bytes > 0 {
						hop := c.link(k.unit, v).Hop(bytes / int64(len(rows)))
						sums[k.unit] += hop.Transfer
						latency = max(latency, hop.Latency)
					}
					from = to
				}
			}
			slowest = max(slowest, sums[k.unit])
		}
	}
	return min(slowest+latency, cost.Longest/2)
}

// paramBytes are those of the layers [first,end) that are among layers.
func (c *cluster) paramBytes(first, end int, layers []LayerRange) (bytes int64) {
	for _, r := range layers {
		if from, to := max(first, r.First), min(end, r.End); from < to {
			bytes += c.params[to] - c.params[from]
		}
	}
	return bytes
}

// everything is the range of all layers.
func (c *cluster) everything() []LayerRange { return []LayerRange{{0, c.layers()}} }

// tiedTime is what the two ends of a replica need to add up the tied embedding's
// gradient.
func (c *cluster) tiedTime(rows [][]cell) schedule.Nanos {
	bytes := 4 * int64(c.in.Run.Model.TiedGradLen())
	var slowest schedule.Nanos
	for _, row := range rows {
		if first, last := row[0].unit, row[len(row)-1].unit; first != last {
			forth, back := c.link(first, last).Hop(bytes), c.link(last, first).Hop(bytes)
			slowest = max(slowest, forth.Transfer+forth.Latency, back.Transfer+back.Latency)
		}
	}
	return slowest
}

// commitTime is the slowest round trip with the coordinator, the last stage of replica 0.
func (c *cluster) commitTime(rows [][]cell) schedule.Nanos {
	last := rows[0][len(rows[0])-1].unit
	var slowest schedule.Nanos
	for _, row := range rows {
		for _, k := range row {
			slowest = max(slowest, c.link(k.unit, last).Hop(0).Latency+c.link(last, k.unit).Hop(0).Latency)
		}
	}
	return slowest
}

// updateTime is what the optimizer takes on the unit with the most to update.
func (c *cluster) updateTime(k *candidate, rows [][]cell) (slowest schedule.Nanos) {
	sums := make([]schedule.Nanos, len(c.units))
	for r, row := range rows {
		for s, at := range row {
			update := c.update(at.unit, at.first, at.end)
			switch { // it may have been measured
			case k.layout == nil:
				update = k.pipes[r].Costs.Stages[s].Update
			case at.seen != nil && at.seen.Update > 0:
				update = at.seen.Update
			}
			sums[at.unit] += update
			slowest = max(slowest, sums[at.unit])
		}
	}
	return slowest
}
