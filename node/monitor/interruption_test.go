package monitor

import (
	"slices"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// begun is when the plan before an interruption made its last step.
var begun = time.Unix(1000, 0)

// at returns a time so many seconds after begun.
func at(s float64) time.Time { return begun.Add(time.Duration(s * float64(time.Second))) }

// plannedFrom returns the state with a plan from a checkpoint on that this node has a part in.
func plannedFrom(checkpoint plan.Step, generation plan.Generation) consensus.State {
	return consensus.State{
		Checkpoint: consensus.Checkpoint{Step: checkpoint}, Reasons: []string{"b is gone", "more"},
		Plan: plan.Plan{Generation: generation, Start: checkpoint, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me"}}}}},
	}
}

// TestInterruption: the parts of the way from one plan to the next follow each other and add up, whichever of them there are.
func TestInterruption(t *testing.T) {
	for name, c := range map[string]struct {
		events func(i *Interruption)
		want   api.Interruption
	}{
		"from memory": {func(i *Interruption) {
			i.End(plannedFrom(10, 1), false, at(.25))
			i.Salvage(0, at(.5))
			i.save(at(1))
			i.plan(plannedFrom(20, 2), "me", at(1.25))
			i.Load(2, 3, at(2.25))
		}, api.Interruption{Rung: api.RungMemory, Last: 20, TotalS: 4, DetectS: .25, AgreeS: .25, SaveS: .5, PlanS: .25, LoadS: 1, StepS: 1.75, Kept: 2, Layers: 3}},
		"replayed, the checkpoint and the plan at once": {func(i *Interruption) {
			i.End(plannedFrom(10, 1), false, at(1))
			i.Salvage(3, at(1.5))
			i.plan(plannedFrom(20, 2), "me", at(2))
			i.save(at(2.5))
			i.Load(0, 3, at(3))
		}, api.Interruption{Rung: api.RungReplay, Last: 20, TotalS: 4, DetectS: 1, AgreeS: .5, SaveS: .5, LoadS: 1, StepS: 1, Layers: 3, Replayed: 3}},
		"replayed here": {func(i *Interruption) {
			i.End(plannedFrom(10, 1), false, at(1))
			i.Salvage(3, at(1.25))
			i.Replayed(at(2))
			i.save(at(2.25))
			i.plan(plannedFrom(20, 2), "me", at(2.5))
			i.Load(0, 3, at(3))
		}, api.Interruption{Rung: api.RungReplay, Last: 20, TotalS: 4, DetectS: 1, AgreeS: .25, ReplayS: .75, SaveS: .25, PlanS: .25, LoadS: .5, StepS: 1, Layers: 3, Replayed: 3}},
		"an older checkpoint, and a plan that ends without a step": {func(i *Interruption) {
			i.End(plannedFrom(10, 1), false, at(1))
			i.plan(plannedFrom(10, 2), "me", at(1.5))
			i.End(plannedFrom(10, 2), false, at(2))
			i.plan(plannedFrom(10, 3), "me", at(2.5))
			i.Load(0, 3, at(3))
		}, api.Interruption{Rung: api.RungCheckpoint, Last: 20, Redone: 10, TotalS: 4, DetectS: 1, PlanS: 1.5, LoadS: .5, StepS: 1, Layers: 3}},
		"a pause after which a member of the next plan is lost": {func(i *Interruption) {
			i.End(plannedFrom(10, 1), true, at(0))
			i.save(at(.5))
			i.plan(plannedFrom(20, 2), "me", at(1))
			i.End(plannedFrom(20, 2), false, at(2))
			i.plan(plannedFrom(20, 3), "me", at(3))
			i.Load(0, 3, at(3.25))
		}, api.Interruption{Rung: api.RungCheckpoint, Last: 20, TotalS: 4, SaveS: .5, PlanS: 2.5, LoadS: .25, StepS: .75, Layers: 3}},
		"a pause after which a member of the next plan gets a substitute": {func(i *Interruption) {
			i.End(plannedFrom(10, 1), true, at(0))
			i.save(at(.5))
			i.plan(plannedFrom(20, 2), "me", at(1))
			i.Substitute(plannedFrom(20, 2), consensus.Substitute{Generation: 2}, "me", at(2))
			i.Load(0, 3, at(3.25))
		}, api.Interruption{Rung: api.RungCheckpoint, Last: 20, TotalS: 4, SaveS: .5, PlanS: .5, LoadS: 2.25, StepS: .75, Layers: 3}},
		"a pause, and the next plan is in the log when its end is seen": {func(i *Interruption) {
			i.End(plannedFrom(10, 2), true, at(0))
			i.save(at(1))
			i.plan(plannedFrom(20, 2), "me", at(2))
			i.Load(3, 3, at(2))
		}, api.Interruption{Rung: api.RungPause, Last: 20, TotalS: 4, SaveS: 1, PlanS: 1, StepS: 2, Kept: 3, Layers: 3}},
	} {
		var i Interruption
		i.plan(plannedFrom(10, 1), "me", begun)
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
		var pause []planner.Stop
		if c.want.Rung == api.RungPause {
			pause = []planner.Stop{{Ends: 1, Rest: 2e9, Load: 2e9}}
		}
		if got := i.Pauses(); !slices.Equal(got, pause) {
			t.Errorf("%s: pauses take %v, want %v", name, got, pause)
		}
	}
}

// TestOnlyMembersTellOfAnInterruption: a node without a part in the plan before or after it does not know how long it took.
func TestOnlyMembersTellOfAnInterruption(t *testing.T) {
	var i Interruption
	i.step(20, begun)
	i.End(plannedFrom(10, 1), false, at(1))
	i.plan(plannedFrom(20, 2), "another", at(2))
	if _, ok := i.step(21, at(3)); ok {
		t.Error("told by a node without a part in the plan")
	}
	i = Interruption{}
	i.step(20, begun)
	i.plan(plannedFrom(20, 2), "another", at(1)) // steps go on elsewhere
	i.plan(plannedFrom(90, 3), "me", at(60))
	i.End(plannedFrom(90, 3), false, at(61))
	i.plan(plannedFrom(90, 4), "me", at(62))
	if got, ok := i.step(91, at(63)); ok {
		t.Errorf("%.0f s told, of which a node that had no part does not know", got.TotalS)
	}
}

// TestInterruptionWithASubstitute: the parts until the first step with a substitute add up, on the substitute and on another node. A step
// that was under way when the member was lost begins them anew, and where the substitution comes to nothing they are those of the next plan.
func TestInterruptionWithASubstitute(t *testing.T) {
	lost := plan.WorkerID{Peer: "lost", Device: "cpu"}
	state := consensus.State{
		Checkpoint: consensus.Checkpoint{Step: 17},
		Plan: plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{
			{Peer: "lost", Device: "cpu"}, {Peer: "me", Device: "cpu"}, {Peer: "lost", Device: "gpu"},
		}}}},
		Substitute: &consensus.Substitute{Generation: 1, Lost: "lost", By: "me", Replays: true, From: 17},
	}
	second := plan.WorkerID{Peer: "lost", Device: "gpu"}
	const why = "lost is lost, and me computes its part"
	for name, c := range map[string]struct {
		self   plan.PeerID
		events func(i *Interruption) (last plan.Step)
		want   api.Interruption
	}{
		"the substitute": {"me", func(i *Interruption) plan.Step {
			i.Miss("lost", at(.25))
			i.Substitute(state, *state.Substitute, "me", at(.5))
			i.StandIn(lost, 17, at(.75))
			i.save(at(.8))
			i.StandIn(second, 17, at(1))
			for step := plan.Step(18); step <= 20; step++ {
				i.StandIn(lost, step, at(1.25))
				i.StandIn(second, step, at(1.5))
			}
			i.StandIn(second, 21, at(3.9))
			return 21
		}, api.Interruption{From: api.SourceReplay, Last: 20, TotalS: 4, DetectS: .25, AgreeS: .25, LoadS: .5, ReplayS: .5, StepS: 2.5, Replayed: 3}},
		"another node": {"other", func(i *Interruption) plan.Step {
			i.Substitute(state, *state.Substitute, "other", at(.5))
			return 21
		}, api.Interruption{From: api.SourceReplay, Last: 20, TotalS: 4, DetectS: .5, StepS: 3.5}},
		"a step under way": {"me", func(i *Interruption) plan.Step {
			i.Miss("lost", at(.25))
			i.Substitute(state, *state.Substitute, "me", at(.5))
			i.StandIn(lost, 20, at(1))
			if _, ok := i.step(21, at(2)); ok {
				t.Error("told before all of the lost one's workers have their state")
			}
			i.StandIn(second, 20, at(2.5))
			i.StandIn(lost, 21, at(3))
			i.StandIn(second, 21, at(3.5))
			return 22
		}, api.Interruption{From: api.SourceReplay, Last: 21, TotalS: 2, LoadS: .5, ReplayS: 1, StepS: .5, Replayed: 1}},
	} {
		var i Interruption
		i.step(20, begun)
		first := c.events(&i)
		if _, ok := i.step(first-1, at(3.75)); ok {
			t.Errorf("%s: told by another worker's word of the step before", name)
		}
		got, ok := i.step(first, at(4))
		c.want.Rung, c.want.Why = api.RungSubstitute, why
		if !ok || got != c.want {
			t.Errorf("%s: got %+v, %t, want %+v", name, got, ok, c.want)
		}
		if _, again := i.step(first+1, at(5)); again {
			t.Errorf("%s: told twice", name)
		}
	}

	var i Interruption
	i.step(20, begun)
	i.Miss("lost", at(.25))
	i.Substitute(state, *state.Substitute, "me", at(.5))
	i.End(state, false, at(1))
	i.StandIn(lost, 17, at(1.25))
	i.Salvage(2, at(1.5))
	i.save(at(2))
	next := state
	next.Plan.Generation, next.Plan.Start, next.Reasons = 2, 20, []string{"lost is gone"}
	i.plan(next, "me", at(2.5))
	i.Load(1, 2, at(3))
	got, ok := i.step(21, at(4))
	want := api.Interruption{Rung: api.RungReplay, Why: "lost is gone", Last: 20, TotalS: 4, DetectS: 1, AgreeS: .5, SaveS: .5, PlanS: .5, LoadS: .5, StepS: 1, Replayed: 2, Kept: 1, Layers: 2}
	if !ok || got != want {
		t.Errorf("it came to nothing: got %+v, %t, want %+v", got, ok, want)
	}
}
