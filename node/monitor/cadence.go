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
	c, steps, each := b.Cadence, asked, b.StepNanos
	switch {
	case asked > 0:
	case c == nil || c.StepNanos == 0:
		return nil
	default: // of late: a single step may be long
		steps, each = c.Steps(c.StepNanos), c.StepNanos
	}
	seconds := func(nanos int64) float64 { return time.Duration(nanos).Seconds() }
	said := &api.Cadence{EverySteps: steps, EveryS: float64(steps) * seconds(each), Text: "one every " + plan.Count(int(steps), "step")}
	if each > 0 { // steps are whole, and so is the time between two checkpoints
		said.Text += fmt.Sprintf(" (%s)", plan.Time(schedule.Nanos(int64(steps)*each)))
	}
	if asked > 0 {
		said.Text += ", as asked"
		return said
	}
	said.Text += ", " + c.Why.Text()
	if c.TookNanos > 0 {
		said.TookS, said.LostS = seconds(c.TookNanos), seconds(c.LostNanos)
		said.Text += fmt.Sprintf("; one takes %s in the background, which counts as a loss of %s", plan.Time(schedule.Nanos(c.TookNanos)), plan.Time(schedule.Nanos(c.LostNanos)))
	}
	return said
}
