package leader

import (
	"slices"
	"time"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// maxGaps bounds the times between losses that are remembered.
	maxGaps = 7
	// usualGap stands for a time between two losses before some were seen, and counts unseenGaps times.
	usualGap, unseenGaps = time.Hour, 2
)

// departures follows when members leave the run, or are lost: a plan is of use until then. Arrivals end no plan, as the
// plan that follows one has to pay for itself.
type departures struct {
	known  map[plan.PeerID]life
	newest time.Time // departure, or the first look
	gaps   []time.Duration
}

// life is a member's process while it takes part.
type life struct {
	epoch uint64
	gone  bool
}

// look takes the roster in.
func (d *departures) look(members []consensus.Member, now time.Time) {
	next := make(map[plan.PeerID]life, len(members))
	lost := d.known == nil
	for _, m := range members {
		is := life{m.ProcessEpoch, m.State == consensus.Gone}
		was, known := d.known[m.Peer]
		lost = lost || known && !was.gone && (is.gone || is.epoch != was.epoch)
		next[m.Peer] = is
	}
	if lost && d.known != nil {
		d.gaps = append(d.gaps, now.Sub(d.newest))
		d.gaps = d.gaps[max(0, len(d.gaps)-maxGaps):]
	}
	if lost {
		d.newest = now
	}
	d.known = next
}

// lasts returns how long a plan is expected to last: as long as it was between the last departures, in the median, and no
// shorter than nobody has departed now.
func (d *departures) lasts(now time.Time) time.Duration {
	gaps := slices.Clone(d.gaps)
	for range unseenGaps {
		gaps = append(gaps, usualGap)
	}
	slices.Sort(gaps)
	return max(gaps[(len(gaps)-1)/2], now.Sub(d.newest))
}

// outlook returns what a change of plan has to be weighed with now.
func (l *Leader) outlook(state consensus.State, now time.Time) planner.Outlook {
	o := planner.Outlook{Lasts: schedule.Nanos(l.departures.lasts(now))}
	if done := max(l.Heartbeats.Newest(state.Plan, now), state.Plan.Start); done < state.Run.Train.Steps {
		o.Left = state.Run.Train.Steps - done
	}
	if l.Stops != nil {
		o.Stop = schedule.Nanos(l.Stops())
	}
	return o
}
