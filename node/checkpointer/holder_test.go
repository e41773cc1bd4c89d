package checkpointer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestOnlyWhatThePlanSaysIsHeld(t *testing.T) {
	state := consensus.State{
		Run:        &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}},
		Checkpoint: consensus.Checkpoint{Step: 40, Layers: []consensus.LayerRef{{Layer: 0, Chunks: []plan.Hash{{7}}}, {Layer: 1, Chunks: []plan.Hash{{8}}}}},
		Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{
			Stages: []plan.Placement{{Peer: "a", Holder: "b", Layers: plan.LayerRange{End: 1}}, {Peer: "b", Holder: "a", Layers: plan.LayerRange{First: 1, End: 2}}},
		}}},
	}
	state.Members = members("a", "b", "c", "d")
	state.Members[3].State = consensus.Gone
	good := copyRequest{Generation: 3, Step: 50}
	if err := good.check(state, "a", "b"); err != nil {
		t.Fatalf("the plan's own copy is refused: %v", err)
	}
	settled := copyRequest{Generation: 3, Step: 40, Chunks: []plan.Hash{{7}}}
	if err := settled.check(state, "a", "b"); err != nil {
		t.Fatalf("a copy of what the checkpoint has is refused: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*copyRequest)
		from   plan.PeerID
		early  bool // the log may allow it later
	}{
		"another generation":                        {func(r *copyRequest) { r.Generation = 2 }, "a", false},
		"the next generation":                       {func(r *copyRequest) { r.Generation = 4 }, "a", true},
		"one far ahead":                             {func(r *copyRequest) { r.Generation = 5 }, "a", false},
		"the next one, by no member":                {func(r *copyRequest) { r.Generation = 4 }, "x", false},
		"the next one, by one that is gone":         {func(r *copyRequest) { r.Generation = 4 }, "d", false},
		"a step that is behind":                     {func(r *copyRequest) { r.Step = 39 }, "a", false},
		"chunks of another stage of the checkpoint": {func(r *copyRequest) { r.Step, r.Chunks = 40, []plan.Hash{{8}} }, "a", false},
		"a step past the end":                       {func(r *copyRequest) { r.Step = 101 }, "a", false},
		"no such stage":                             {func(r *copyRequest) { r.Stage = 7 }, "a", false},
		"no such replica":                           {func(r *copyRequest) { r.Replica = 1 }, "a", false},
		"a stage of another":                        {func(r *copyRequest) {}, "c", false},
		"held by another":                           {func(r *copyRequest) { r.Stage = 1 }, "b", true},
	} {
		r := good
		c.change(&r)
		if err := r.check(state, c.from, "b"); !errors.Is(err, errBadCopy) || errors.Is(err, errEarly) != c.early {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := (copyRequest{}).check(consensus.State{}, "a", "b"); !errors.Is(err, errBadCopy) || errors.Is(err, errEarly) {
		t.Errorf("before the log has a run: %v", err)
	}
}

// TestAnotherMemberHoldsForOneThatIsGone, once it has read so in the log.
func TestAnotherMemberHoldsForOneThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := consensus.State{
			Run:     &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}},
			Members: members("a", "b", "c"),
			Plan:    plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Holder: "b", Layers: plan.LayerRange{End: 1}}}}}},
		}
		log := &fakeLog{changed: make(chan struct{}), state: state}
		c := &Checkpointer{Config: Config{Self: "c", Consensus: log}}
		request := copyRequest{Generation: 3, Step: 50}
		if err := c.await(t.Context(), request, "a"); !errors.Is(err, errEarly) {
			t.Errorf("what b holds: %v", err)
		}
		go func() {
			time.Sleep(logPatience / 2)
			gone := state
			gone.Members = members("a", "b", "c")
			gone.Members[1].State = consensus.Gone
			log.set(gone)
		}()
		if err := c.await(t.Context(), request, "a"); err != nil {
			t.Errorf("what b held: %v", err)
		}
	})
}

// TestOneMemberWaitsWithFewRequests: with more it is answered at once, others wait, and it may again once the log has come.
func TestOneMemberWaitsWithFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := func(p plan.PeerID) plan.Pipeline {
			return plan.Pipeline{Stages: []plan.Placement{{Peer: p, Holder: "c", Layers: plan.LayerRange{End: 1}}}}
		}
		state := consensus.State{
			Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Members: members("a", "b", "c"),
			Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{stage("a"), stage("b")}},
		}
		log := &fakeLog{changed: make(chan struct{}), state: state}
		c := &Checkpointer{Config: Config{Self: "c", Consensus: log}}
		answers := make(chan error, maxWaiting+1)
		ask := func(from plan.PeerID, at plan.Replica) {
			go func() {
				answers <- c.await(t.Context(), copyRequest{Generation: log.State().Plan.Generation + 1, Step: 50, Replica: at}, from)
			}()
			synctest.Wait()
		}
		for range 2 {
			for range maxWaiting {
				ask("a", 0)
			}
			ask("b", 1)
			if len(answers) > 0 {
				t.Fatalf("%d requests did not wait: %v", len(answers), <-answers)
			}
			if err := c.await(t.Context(), copyRequest{Generation: log.State().Plan.Generation + 1, Step: 50}, "a"); !errors.Is(err, errEarly) || len(answers) > 0 {
				t.Errorf("one more: %v, when %d of the others had an answer", err, len(answers))
			}
			state.Plan.Generation++
			log.set(state)
			for range maxWaiting + 1 {
				if err := <-answers; err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
		}
	})
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

// A copy ends with the other node's death, which the log tells before the connection does, also where it is wanted most.
func TestACopyEndsWithTheOtherNode(t *testing.T) {
	log := &fakeLog{changed: make(chan struct{}), state: consensus.State{Members: []consensus.Member{{Peer: "holder", State: consensus.Active}}}}
	c := &Checkpointer{Config: Config{Consensus: log}}
	ctx, free := c.untilPause(t.Context(), copyRequest{}, "holder", time.Hour)
	defer free()
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	log.set(consensus.State{Members: []consensus.Member{{Peer: "holder", State: consensus.Gone}}})
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, errGone) {
		t.Error(err)
	}
}
