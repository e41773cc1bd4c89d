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
func (s *solver) deepen(d *Decision, picks []option) {
	for part := marginParts; part > 0; part-- {
		late := d.Costs
		late.Boundaries = slices.Clone(late.Boundaries)
		for i := range late.Boundaries {
			b := &late.Boundaries[i]
			b.Activation.Latency += s.p.share(b.Activation.Latency, part)
			b.Gradient.Latency += s.p.share(b.Gradient.Latency, part)
		}
		if warmups := late.WarmupsFor(d.Period); s.allHold(picks, warmups) {
			d.Warmups = warmups
			return
		}
	}
}

// allHold tells whether all stages have room for warm-ups.
func (s *solver) allHold(picks []option, warmups []int) bool {
	for i, o := range picks {
		if !s.p.holds(o.Room, warmups[i]) {
			return false
		}
	}
	return true
}

// share is a part of the margin for a latency.
func (p Problem) share(latency schedule.Nanos, part int) schedule.Nanos {
	return latency * schedule.Nanos(p.MarginPercent*part) / (100 * marginParts)
}
