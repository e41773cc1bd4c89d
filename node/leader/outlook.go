package leader

import (
	"time"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/swarm/consensus"
)

// outlook returns what a change of plan has to be weighed with now.
func (l *Leader) outlook(state consensus.State, now time.Time) planner.Outlook {
	o := planner.Outlook{Lasts: schedule.Nanos(state.Departures.Lasts(l.clock.Look(state.Departures, now)))}
	if done := max(l.Heartbeats.Newest(state.Plan, now), state.Plan.Start); done < state.Run.Train.Steps {
		o.Left = state.Run.Train.Steps - done
	}
	if l.Stops != nil {
		o.Stop = schedule.Nanos(l.Stops())
	}
	return o
}
