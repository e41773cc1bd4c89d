package blame

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// training is a loss that falls as that of a small model does, with noise.
func training(steps int) []float64 {
	losses := make([]float64, steps)
	for i := range losses {
		losses[i] = 2 + 3.5*math.Exp(-float64(i)/60) + 0.15*math.Sin(float64(i*i))
	}
	return losses
}

func stepsOf(g plan.Generation, first plan.Step, losses []float64) (steps []gossip.StepLoss) {
	for i, l := range losses {
		steps = append(steps, gossip.StepLoss{Generation: g, Step: first + plan.Step(i), Loss: l})
	}
	return steps
}

func TestJumped(t *testing.T) {
	flipped := append(training(100), 5.1, 9.81)
	once := append(training(100), 9, training(101)[100])
	noisy := training(102)
	for i := range noisy {
		noisy[i] += float64(i%5) * 0.4
	}
	rising := training(102)
	for i := range rising[80:] {
		rising[80+i] += 0.04 * float64(i)
	}
	faster := training(102)
	for i := range faster[80:] {
		faster[80+i] += 0.08 * float64(i)
	}
	for name, c := range map[string]struct {
		losses []float64
		want   bool
	}{
		"flipped signs: 2.23 to 9.81 in three steps": {flipped, true},
		"one step alone":             {once, false},
		"training":                   {training(200), false},
		"noise":                      {noisy, false},
		"a slow rise":                {rising, false},
		"a faster one":               {faster, true},
		"a step back that stays":     {append(make([]float64, 18), 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6), true},
		"one that does not":          {append(make([]float64, 18), 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.4), false},
		"a smaller one":              {append(make([]float64, 18), 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4), false},
		"too few steps before":       {append(training(10), 20, 20), false},
		"no number":                  {append(training(100), math.NaN(), math.NaN()), false},
		"one more than the deviates": {append(make([]float64, 16), 1.01, 1.01), true},
		"no more than the deviates":  {append(make([]float64, 16), 1, 1), false},
	} {
		if _, _, got := jumped(c.losses); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The watch finds a jump wherever the losses are cut, and forgets steps that are done again.
func TestLosses(t *testing.T) {
	good := stepsOf(1, 1, training(60))
	bad := stepsOf(1, 61, []float64{6, 8, 9.8})
	again := stepsOf(2, 57, training(70)[56:])
	for cut := range len(good) + len(bad) {
		var w Losses
		all := append(append([]gossip.StepLoss(nil), good...), bad...)
		w.take(all[:cut], calmSteps)
		w.take(all[cut:], calmSteps)
		if w.found.Generation != 1 || w.found.Step != 62 && w.found.Step != 61 {
			t.Fatalf("cut at %d: %+v", cut, w.found)
		}
		w.found = jump{}
		w.take(again, calmSteps)
		if w.found != (jump{}) {
			t.Fatalf("cut at %d: %+v in steps that are done again without it", cut, w.found)
		}
		if g, step := w.newest(); g != 2 || step != 70 {
			t.Fatalf("newest is step %d of generation %d", step, g)
		}
	}
	var atOnce Losses // as with local steps: the first steps of the jump count, not the last ones that are far above those before
	atOnce.take(append(slices.Clone(good), stepsOf(1, 61, slices.Repeat([]float64{9}, 100))...), calmSteps)
	if got := atOnce.found; got.Step != 61 || got.Least > 60 {
		t.Errorf("a jump at step 61, of which a hundred steps are known at once: %+v", got)
	}
	var early Losses
	early.take(stepsOf(1, 1, append(training(17), 30, 30)), calmSteps)
	if early.found != (jump{}) {
		t.Errorf("%+v in the first steps", early.found)
	}
	var behind Losses // some steps never came
	behind.take(good[:40], calmSteps)
	behind.take(stepsOf(1, 55, []float64{9, 9, 9}), calmSteps)
	if behind.found != (jump{}) {
		t.Errorf("%+v after a gap", behind.found)
	}
}

func TestRuleOnJump(t *testing.T) {
	run := plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}
	state := consensus.State{
		Run: &run, Owners: []plan.PeerID{"a"}, Checkpoint: consensus.Checkpoint{Step: 60}, Older: []consensus.Checkpoint{{Step: 50}, {Step: 40}},
		Members: []consensus.Member{{Peer: "a", Since: 9}, {Peer: "b", Since: 2}, {Peer: "c", Since: 5}, {Peer: "d", Since: 7}},
		Plan:    plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}, {Peer: "c"}}}}},
	}
	at := func(step plan.Step) jump { return jump{Generation: 3, Step: step, Least: step - 4, From: 2.2, To: 9.8} }
	with := func(blames ...consensus.Blame) consensus.State {
		s := state
		s.Blames = blames
		return s
	}
	told := func(g plan.Generation, step plan.Step) consensus.Blame {
		return consensus.Blame{Kind: plan.LossJump, Generation: g, Step: step}
	}
	without := func(g plan.Generation, p plan.PeerID) consensus.Blame {
		b := told(g, 62)
		b.Peer, b.Until = p, 60
		return b
	}
	for name, c := range map[string]struct {
		state consensus.State
		jump  jump
		ok    bool
		again bool
		back  plan.Step
		peer  plan.PeerID
	}{
		"goes back before what may have made it":            {state, at(62), true, false, 50, "c"},
		"to the newest where that is old enough":            {state, at(65), true, false, 60, "c"},
		"not where nothing is kept of before":               {state, at(44), true, true, 0, ""},
		"not for another generation":                        {state, jump{Generation: 2, Step: 62}, false, false, 0, ""},
		"not without a jump":                                {state, jump{}, false, false, 0, ""},
		"not twice for one":                                 {with(told(3, 62)), at(64), false, false, 0, ""},
		"not for the same place":                            {with(told(2, 62)), at(63), true, true, 0, ""},
		"with the next one left out where it jumps again":   {with(without(2, "c")), at(63), true, false, 50, "b"},
		"not where all were tried":                          {with(without(1, "c"), without(2, "b")), at(63), true, true, 0, ""},
		"not for an earlier one":                            {with(told(2, 80)), at(70), true, true, 0, ""},
		"for a later one":                                   {with(told(2, 40)), at(70), true, false, 60, "c"},
		"other rulings do not matter":                       {with(consensus.Blame{Kind: plan.BadTensor, Generation: 3, Step: 62}), at(70), true, false, 60, "c"},
		"later in the same generation where it has settled": {with(told(3, 40)), at(70), true, false, 60, "c"},
	} {
		r, ok := ruleOnJump(c.state, c.jump)
		if ok != c.ok || r.Again != c.again || r.Back != c.back || r.Peer != c.peer || r.Out != (c.peer != "") {
			t.Errorf("%s: %+v, %t", name, r, ok)
		}
		if ok && !strings.HasPrefix(r.Detail, "the loss jumped from 2.20 to 9.80") {
			t.Errorf("%s: %q", name, r.Detail)
		}
	}
	worse := state
	worse.Members = append([]consensus.Member(nil), state.Members...)
	worse.Members[1].Faults = 1
	if r, _ := ruleOnJump(worse, at(62)); r.Peer != "b" {
		t.Errorf("%q is left out, want b, which has a fault", r.Peer)
	}
	alone := state
	alone.Owners = []plan.PeerID{"a", "b", "c"}
	if r, ok := ruleOnJump(alone, at(62)); !ok || r.Out || r.Back != 50 {
		t.Errorf("%+v: an owner's machines go back and leave nobody out", r)
	}
}
