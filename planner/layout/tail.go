package layout

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Exchange is what one reduce-scatter or one all-gather of layers between replicas takes:
// each layer's vector is cut into one part per replica, and a unit sends every part but its own
// to the part's owner, or its own to all. Messages of one unit follow each other, units work
// side by side.
func (s *Site) Exchange(rows Rows, layers plan.LayerRanges) schedule.Nanos {
	var slowest, latency schedule.Nanos
	sums := make([]schedule.Nanos, len(s.Units))
	for r, row := range rows {
		for _, k := range row {
			for r2, other := range rows {
				if r2 == r {
					continue
				}
				s2, _ := slices.BinarySearchFunc(other, k.First+1, func(o Cell, layer int) int { return o.End - layer }) // the stage that holds layer First
				for from := k.First; from < k.End; s2++ {
					v, to := other[s2].Unit, min(k.End, other[s2].End)
					if bytes := s.paramBytes(from, to, layers); bytes > 0 {
						hop := s.Link(k.Unit, v).Hop(bytes / int64(len(rows)))
						sums[k.Unit] += hop.Transfer
						latency = max(latency, hop.Latency)
					}
					from = to
				}
			}
			slowest = max(slowest, sums[k.Unit])
		}
	}
	return min(slowest+latency, cost.Longest/2)
}

// paramBytes are those of the layers [first,end) that are among layers.
func (s *Site) paramBytes(first, end int, layers plan.LayerRanges) (bytes int64) {
	for _, r := range layers {
		if from, to := max(first, r.First), min(end, r.End); from < to {
			bytes += s.Books.Params(from, to)
		}
	}
	return bytes
}

// Tied is what the two ends of a replica need to add up the tied embedding's gradient, of so
// many bytes.
func (s *Site) Tied(rows Rows, bytes int64) schedule.Nanos {
	var slowest schedule.Nanos
	for _, row := range rows {
		if first, last := row[0].Unit, row[len(row)-1].Unit; first != last {
			forth, back := s.Link(first, last).Hop(bytes), s.Link(last, first).Hop(bytes)
			slowest = max(slowest, forth.Transfer+forth.Latency, back.Transfer+back.Latency)
		}
	}
	return slowest
}

// Commit is the slowest round trip with the coordinator, the last stage of replica 0.
func (s *Site) Commit(rows Rows) schedule.Nanos {
	last := rows[0][len(rows[0])-1].Unit
	var slowest schedule.Nanos
	for _, row := range rows {
		for _, k := range row {
			slowest = max(slowest, s.Link(k.Unit, last).Hop(0).Latency+s.Link(last, k.Unit).Hop(0).Latency)
		}
	}
	return slowest
}

// Updates is what the optimizer takes on the unit with the most to update; measured is by replica
// and stage what a stage takes, where it is not as reckoned.
func (s *Site) Updates(rows Rows, measured func(at At) (schedule.Nanos, bool)) (slowest schedule.Nanos) {
	sums := make([]schedule.Nanos, len(s.Units))
	for r, row := range rows {
		for st, k := range row {
			update, ok := measured(At{schedule.Replica(r), schedule.Stage(st)})
			if !ok {
				update = s.Update(k.Unit, k.First, k.End)
			}
			sums[k.Unit] += update
			slowest = max(slowest, sums[k.Unit])
		}
	}
	return slowest
}
