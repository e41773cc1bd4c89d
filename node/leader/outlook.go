package leader

import (
	"slices"
	"time"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/departures"
	"pnode/swarm/consensus"
)

const (
	// maxGaps bounds the times between departures that count.
	maxGaps = 7
	// usualGap stands for a time between two departures before some were seen, and counts unseenGaps times.
	usualGap, unseenGaps = time.Hour, 2
)

// lasts returns how long a plan is expected to last, some time after the newest entry: as long as it was between the last members
// that left or were lost, in the median, and no shorter than nobody has gone now. Arrivals end no plan, as the plan that follows one
// has to pay for itself.
func lasts(h departures.History, since time.Duration) time.Duration {
	quiet, gaps := h.Gaps(since)
	gaps = gaps[:min(len(gaps), maxGaps)]
	for range unseenGaps {
		gaps = append(gaps, usualGap)
	}
	slices.Sort(gaps)
	return max(gaps[(len(gaps)-1)/2], quiet)
}

// outlook returns what a change of plan has to be weighed with now.
func (l *Leader) outlook(state consensus.State, now time.Time) planner.Outlook {
	o := planner.Outlook{Lasts: schedule.Nanos(lasts(state.Departures, l.clock.Look(state.Departures, now)))}
	if done := max(l.Heartbeats.Newest(state.Plan, now), state.Plan.Start); done < state.Run.Train.Steps {
		o.Left = state.Run.Train.Steps - done
	}
	if l.Stops != nil {
		o.Stop = schedule.Nanos(l.Stops())
	}
	return o
}
