package checkpointer

import (
	"errors"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestOnlyWhatThePlanSaysIsHeld(t *testing.T) {
	state := consensus.State{
		Run:        &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}},
		Checkpoint: consensus.Checkpoint{Step: 40},
		Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{
			Stages: []plan.Placement{{Peer: "a", Holder: "b"}, {Peer: "b", Holder: "a"}},
		}}},
	}
	good := copyRequest{Generation: 3, Step: 50}
	if err := good.check(state, "a", "b"); err != nil {
		t.Fatalf("the plan's own copy is refused: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*copyRequest)
		from   plan.PeerID
	}{
		"another generation":    {func(r *copyRequest) { r.Generation = 2 }, "a"},
		"a step that is behind": {func(r *copyRequest) { r.Step = 40 }, "a"},
		"a step past the end":   {func(r *copyRequest) { r.Step = 101 }, "a"},
		"no such stage":         {func(r *copyRequest) { r.Stage = 7 }, "a"},
		"no such replica":       {func(r *copyRequest) { r.Replica = 1 }, "a"},
		"a stage of another":    {func(r *copyRequest) {}, "c"},
		"held by another":       {func(r *copyRequest) { r.Stage = 1 }, "b"},
	} {
		r := good
		c.change(&r)
		if err := r.check(state, c.from, "b"); !errors.Is(err, errBadCopy) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func FuzzDecodeCopyRequest(f *testing.F) {
	f.Add([]byte(`{"generation":3,"step":20,"replica":0,"stage":1,"chunks":["0000000000000000000000000000000000000000000000000000000000000000"]}`))
	f.Add([]byte(`{"generation":3,"step":20,"replica":-1,"stage":1,"chunks":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeCopyRequest(data)
		if err != nil {
			return
		}
		step, ok := pinStep(r.pin())
		if !ok || step != r.Step {
			t.Fatalf("the pin of %+v reads as step %d", r, step)
		}
	})
}
