package monitor

import (
	"fmt"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// cadenceOf returns how often checkpoints are made, as the node tells that coordinates the steps; nil before it has.
func cadenceOf(state consensus.State, beats *gossip.Tracker) *api.Cadence {
	if state.Run == nil || len(state.Plan.Replicas) == 0 {
		return nil
	}
	b, _ := beats.Last(state.Substitute.Carrier(state.Plan.Coordinator().Peer))
	if b.Generation != state.Plan.Generation {
		return nil
	}
	return describeCadence(b, state.Run.Train.CheckpointEvery)
}

// describeCadence returns how often checkpoints are made by the heartbeat of the node that coordinates the steps, where so many
// steps were asked for; 0 for none. It is nil where the heartbeat does not say.
func describeCadence(b gossip.Heartbeat, asked plan.Step) *api.Cadence {
	seconds := func(nanos int64) float64 { return time.Duration(nanos).Seconds() }
	every := func(steps plan.Step) string { // steps are whole, and so is the time between two checkpoints
		if b.StepNanos == 0 {
			return "every " + plan.Count(int(steps), "step")
		}
		return fmt.Sprintf("every %s (%s)", plan.Count(int(steps), "step"), plan.Time(schedule.Nanos(int64(steps)*b.StepNanos)))
	}
	switch c := b.Cadence; {
	case asked > 0:
		return &api.Cadence{EverySteps: asked, EveryS: float64(asked) * seconds(b.StepNanos), Text: "one " + every(asked) + ", as asked"}
	case c == nil || b.StepNanos == 0:
		return nil
	default:
		steps := c.Steps(b.StepNanos)
		text := fmt.Sprintf("one %s, %s", every(steps), c.Why.Text())
		if c.TookNanos > 0 {
			text += fmt.Sprintf("; the last one took %s in the background, which counts as a loss of %s", plan.Time(schedule.Nanos(c.TookNanos)), plan.Time(schedule.Nanos(c.LostNanos)))
		}
		return &api.Cadence{EverySteps: steps, EveryS: float64(steps) * seconds(b.StepNanos), TookS: seconds(c.TookNanos), LostS: seconds(c.LostNanos), Text: text}
	}
}
