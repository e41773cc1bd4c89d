package elastic

import (
	"slices"

	"pnode/pipeline/schedule"
)

// UsualMargin is how late, in percent of a link's round trip, a message may be on links whose
// jitter is measured: what a connection needs to fill a gap that a lost or held packet left.
// Without a margin each such gap is added to the step, since no stage ever catches up.
const UsualMargin = 25

// marginParts is how finely a margin is reduced where memory is short of it.
const marginParts = 8

// deepen adds to the warm-ups of a decision what lets every message be late by the problem's
// margin, as far as memory allows. The period stays.
func (p Problem) deepen(d *Decision) {
	for part := marginParts; part > 0; part-- {
		late := d.Costs
		late.Boundaries = slices.Clone(late.Boundaries)
		for i := range late.Boundaries {
			b := &late.Boundaries[i]
			b.Activation.Latency += p.share(b.Activation.Latency, part)
			b.Gradient.Latency += p.share(b.Gradient.Latency, part)
		}
		if warmups := late.WarmupsFor(d.Period); d.holds(warmups) {
			d.Warmups = warmups
			return
		}
	}
}

// holds tells whether all stages have room for warm-ups.
func (d *Decision) holds(warmups []int) bool {
	for i, w := range warmups {
		if w+1 > d.Rooms[i].InFlight {
			return false
		}
	}
	return true
}

// share is a part of the margin for a latency.
func (p Problem) share(latency schedule.Nanos, part int) schedule.Nanos {
	return latency * schedule.Nanos(p.MarginPercent*part) / (100 * marginParts)
}
