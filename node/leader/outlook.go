package leader

import (
	"time"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// outlook returns what a change of plan has to be weighed with now. moves has how long state was predicted to be on the way, by the generation that ended.
func (l *Leader) outlook(state consensus.State, now time.Time, moves map[plan.Generation]schedule.Nanos) planner.Outlook {
	o := planner.Outlook{Lasts: schedule.Nanos(state.Departures.Lasts(l.clock.Look(state.Departures, now)))}
	if done := max(l.Heartbeats.Newest(state.Plan, now), state.Plan.Start); done < state.Run.Train.Steps {
		o.Left = state.Run.Train.Steps - done
	}
	if l.Stops != nil {
		for _, s := range l.Stops() {
			s.Move = moves[s.Ends]
			o.Stops = append(o.Stops, s)
		}
	}
	return o
}
