package monitor

import (
	"testing"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestInterruption: the parts of the way from one plan to the next follow each other and add up, whichever of them there are.
func TestInterruption(t *testing.T) {
	begun := time.Unix(1000, 0)
	at := func(s float64) time.Time { return begun.Add(time.Duration(s * float64(time.Second))) }
	here := []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me"}}}}
	state := func(checkpoint plan.Step, generation plan.Generation) consensus.State {
		return consensus.State{
			Checkpoint: consensus.Checkpoint{Step: checkpoint}, Reasons: []string{"b is gone", "more"},
			Plan: plan.Plan{Generation: generation, Start: checkpoint, Replicas: here},
		}
	}
	for name, c := range map[string]struct {
		events func(i *Interruption)
		want   api.Interruption
	}{
		"from memory": {func(i *Interruption) {
			i.End(state(10, 1), false, at(.25))
			i.Salvage(false, at(.5))
			i.save(at(1))
			i.plan(state(20, 2), "me", at(1.25))
			i.Load(2, 3, at(2.25))
		}, api.Interruption{Rung: api.RungMemory, Last: 20, TotalS: 4, DetectS: .25, AgreeS: .25, SaveS: .5, PlanS: .25, LoadS: 1, StepS: 1.75, Kept: 2, Layers: 3}},
		"replayed, the checkpoint and the plan at once": {func(i *Interruption) {
			i.End(state(10, 1), false, at(1))
			i.Salvage(true, at(1.5))
			i.plan(state(20, 2), "me", at(2))
			i.save(at(2.5))
			i.Load(0, 3, at(3))
		}, api.Interruption{Rung: api.RungReplay, Last: 20, TotalS: 4, DetectS: 1, AgreeS: .5, SaveS: .5, LoadS: 1, StepS: 1, Layers: 3}},
		"an older checkpoint, and a plan that ends without a step": {func(i *Interruption) {
			i.End(state(10, 1), false, at(1))
			i.plan(state(10, 2), "me", at(1.5))
			i.End(state(10, 2), false, at(2))
			i.plan(state(10, 3), "me", at(2.5))
			i.Load(0, 3, at(3))
		}, api.Interruption{Rung: api.RungCheckpoint, Last: 20, Redone: 10, TotalS: 4, DetectS: 1, PlanS: 1.5, LoadS: .5, StepS: 1, Layers: 3}},
		"a pause": {func(i *Interruption) {
			i.End(state(10, 1), true, at(0))
			i.save(at(1))
			i.plan(state(20, 2), "me", at(2))
			i.Load(3, 3, at(2))
		}, api.Interruption{Rung: api.RungPause, Last: 20, TotalS: 4, SaveS: 1, PlanS: 1, StepS: 2, Kept: 3, Layers: 3}},
	} {
		var i Interruption
		i.step(20, begun)
		c.events(&i)
		first := c.want.Last - c.want.Redone + 1
		if _, ok := i.step(first-1, at(3.5)); ok {
			t.Errorf("%s: told before the first step", name)
		}
		got, ok := i.step(first, at(4))
		c.want.Why = "b is gone"
		if !ok || got != c.want {
			t.Errorf("%s: got %+v, %t, want %+v", name, got, ok, c.want)
		}
		if _, again := i.step(first+1, at(5)); again {
			t.Errorf("%s: told twice", name)
		}
		pause := time.Duration(0)
		if c.want.Rung == api.RungPause {
			pause = 4 * time.Second
		}
		if got := i.Pauses(); got != pause {
			t.Errorf("%s: pauses take %v, want %v", name, got, pause)
		}
	}
	var i Interruption
	i.step(20, begun)
	i.End(state(10, 1), false, at(1))
	i.plan(state(20, 2), "another", at(2))
	if _, ok := i.step(21, at(3)); ok {
		t.Error("told by a node without a part in the plan")
	}
}
