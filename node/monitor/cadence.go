package monitor

import (
	"fmt"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// cadenceOf returns how often checkpoints are made, and the one under way, as the node tells that coordinates the steps; nil before it has.
func cadenceOf(state consensus.State, beats *gossip.Tracker) (*api.Cadence, *api.Saving) {
	if state.Run == nil || len(state.Plan.Replicas) == 0 {
		return nil, nil
	}
	b, _ := beats.Last(state.Substitute.Carrier(state.Plan.Coordinator().Peer))
	if b.Generation != state.Plan.Generation {
		return nil, describeLeftOut(describeSaving(state, holders.Cadence{}), state, beats)
	}
	said := describeCadence(b, state.Run.Train.CheckpointEvery)
	if local := state.Plan.Local; local != nil && said != nil {
		said = atOuterSteps(*said, local.Every)
	}
	if b.Cadence == nil {
		return said, describeLeftOut(describeSaving(state, holders.Cadence{}), state, beats)
	}
	if c := b.Cadence; said != nil && c.Late > 0 {
		said.Late = c.Late
		said.Text += fmt.Sprintf("; before the last one was complete, %s went by", plan.Count(int(c.Late), "step"))
		if state.Plan.Places(c.LateBy) {
			said.Text += ": what is computed on " + state.NameOf(c.LateBy) + " was the last to be stored and copied"
		}
	}
	return said, describeLeftOut(describeSaving(state, *b.Cadence), state, beats)
}

// describeSaving returns the checkpoint under way, by the word of the node that coordinates the steps or by the stages that the log has; nil without one.
func describeSaving(state consensus.State, said holders.Cadence) *api.Saving {
	s := &api.Saving{Step: said.Saving, S: time.Duration(said.SavingNanos).Seconds(), Waits: []string{}}
	if n := len(state.Pending); n > 0 && state.Pending[n-1].Step > s.Step {
		s.Step, s.S = state.Pending[n-1].Step, 0
	}
	if s.Step <= state.Checkpoint.Step || s.Step > state.Run.Train.Steps {
		return nil
	}
	for _, p := range consensus.Unsaved(state, s.Step) {
		s.Waits = append(s.Waits, state.NameOf(p))
	}
	s.Text = fmt.Sprintf("step %d", s.Step)
	if s.S > 0 {
		s.Text += ", for " + plan.Duration(said.SavingNanos)
	}
	s.Text += ": it waits until what is computed on " + listed(s.Waits) + " is stored and copied"
	return s
}

// describeLeftOut returns the newest checkpoint that a member of the plan does not save for want of room, and else s, which is under way.
func describeLeftOut(s *api.Saving, state consensus.State, beats *gossip.Tracker) *api.Saving {
	again := " soon"
	if state.Run.Train.CheckpointEvery > 0 {
		again = ""
	}
	for _, p := range state.Plan.Peers() {
		b, _ := beats.Last(p)
		if step := b.LeftOut; b.Generation == state.Plan.Generation && step > state.Checkpoint.Step && step <= state.Run.Train.Steps && (s == nil || step >= s.Step) {
			name := state.NameOf(p)
			s = &api.Saving{Step: step, Waits: []string{name}, Text: fmt.Sprintf("step %d is left out: the disk of %s has no room for it. Free space there: the next one is tried%s", step, name, again)}
		}
	}
	return s
}

// atOuterSteps returns how often checkpoints are made that are due as often as said: at the next outer step, so many steps after the one before.
func atOuterSteps(said api.Cadence, every plan.Step) *api.Cadence {
	steps := (max(said.EverySteps, 1) + every - 1) / every * every
	if said.EverySteps > 0 {
		said.EveryS *= float64(steps) / float64(said.EverySteps)
	}
	said.EverySteps, said.Text = steps, "one every "+plan.Count(int(steps), "step")+", with an outer step"
	return &said
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
		said.Text += fmt.Sprintf(" (%s)", plan.Duration(int64(steps)*each))
	}
	if asked > 0 {
		said.Text += ", as asked"
		return said
	}
	said.Text += ", " + c.Why.Text()
	if c.TookNanos > 0 {
		said.TookS, said.LostS = seconds(c.TookNanos), seconds(c.LostNanos)
		said.Text += fmt.Sprintf("; one takes %s in the background, which counts as a loss of %s", plan.Duration(c.TookNanos), plan.Duration(c.LostNanos))
	}
	return said
}
