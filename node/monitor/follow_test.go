package monitor

import (
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestStepsThatNobodyHasAreAskedForLess: a heartbeat that tells of steps which nobody has does not make a node ask at
// each heartbeat for ever. Where an answer brings something it asks at once again.
func TestStepsThatNobodyHasAreAskedForLess(t *testing.T) {
	var asking pace
	now, asked := time.Unix(1000, 0), 0
	const heartbeats = 600
	for range heartbeats {
		now = now.Add(gossip.Every / 10)
		if asking.due(now) {
			asked++
			asking.asked(false, now)
		}
	}
	if asked < 5 || asked > 12 {
		t.Errorf("asked %d times in a minute", asked)
	}
	asking.asked(true, now)
	if !asking.due(now) {
		t.Error("does not ask after an answer that brought something")
	}
}

// TestStepsThatCannotBeAreNotLogged: a step after the run's last, or of a plan to come, would hide all others.
func TestStepsThatCannotBeAreNotLogged(t *testing.T) {
	s := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Plan: plan.Plan{Generation: 3}}
	for p, want := range map[position]bool{{3, 100}: true, {2, 100}: true, {3, 101}: false, {4, 1}: false} {
		if possible(s, p) != want {
			t.Errorf("step %d of generation %d: %t, want %t", p.Step, p.Generation, !want, want)
		}
	}
}
