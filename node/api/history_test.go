package api

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// TestCurvesAreBounded: a long run has few points, which still hold all its steps.
func TestCurvesAreBounded(t *testing.T) {
	for _, steps := range []int{1, 2, MaxPoints, MaxPoints + 1, 5000, 100_003} {
		var c Curve
		sum, low, high := 0.0, math.Inf(1), math.Inf(-1)
		rng := rand.New(rand.NewPCG(1, uint64(steps)))
		for s := 1; s <= steps; s++ {
			v := rng.NormFloat64()
			sum, low, high = sum+v, min(low, v), max(high, v)
			c.add(plan.Step(s), v)
			if len(c.Points) > MaxPoints {
				t.Fatalf("%d points at step %d", len(c.Points), s)
			}
		}
		if least := min(steps, MaxPoints/2); len(c.Points) < least {
			t.Errorf("%d steps: %d points, want %d or more", steps, len(c.Points), least)
		}
		count, mean, least, most := 0, 0.0, math.Inf(1), math.Inf(-1)
		before := plan.Step(0)
		for _, p := range c.Points {
			if p.Step <= before || p.Low > p.Mean || p.Mean > p.High || plan.Step(p.Count) > c.Every {
				t.Fatalf("%d steps: point %+v after step %d", steps, p, before)
			}
			before = p.Step
			count, mean = count+p.Count, mean+p.Mean*float64(p.Count)
			least, most = min(least, p.Low), max(most, p.High)
		}
		if count != steps || before != plan.Step(steps) || math.Abs(mean-sum) > 1e-6 || least != low || most != high {
			t.Errorf("%d steps: %d counted up to %d, sum %g of %g, from %g to %g of %g to %g", steps, count, before, mean, sum, least, most, low, high)
		}
	}
}

// TestCurvesOfRareValues: held-out losses are measured every so many steps.
func TestCurvesOfRareValues(t *testing.T) {
	var c Curve
	for s := plan.Step(50); s <= 50*3000; s += 50 {
		c.add(s, float64(s))
	}
	if len(c.Points) > MaxPoints || len(c.Points) < MaxPoints/4 {
		t.Errorf("%d points", len(c.Points))
	}
}

// TestCurvesGoBack: after a rollback the steps that come again are there once.
func TestCurvesGoBack(t *testing.T) {
	var c Curve
	for s := 1; s <= 100; s++ {
		c.add(plan.Step(s), 1)
	}
	for s := 51; s <= 60; s++ {
		c.add(plan.Step(s), 2)
	}
	if n := len(c.Points); n != 60 || c.Points[49].Mean != 1 || c.Points[50].Mean != 2 {
		t.Errorf("%d points, %+v", n, c.Points[45:])
	}
	c.add(61, math.NaN())
	c.add(62, math.Inf(1))
	c.add(63, 3)
	if n := len(c.Points); n != 61 || c.Points[60].Step != 63 {
		t.Errorf("%d points after losses that are none", n)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var h Hub
	heldOut := 2.5
	for i := 1; i <= 4*MaxHappened; i++ {
		h.Publish(Event{Kind: KindStep, Step: plan.Step(i), Loss: 3, HeldOut: &heldOut})
		h.Publish(Event{Kind: KindError, Step: plan.Step(i), Message: strings.Repeat("ü", maxMessage)})
	}
	past := h.History()
	if past.Seq != 8*MaxHappened || len(past.Happened) != MaxHappened || len(past.Train.Points) != 4*MaxHappened || len(past.HeldOut.Points) != 4*MaxHappened {
		t.Errorf("seq %d, %d happened, %d and %d points", past.Seq, len(past.Happened), len(past.Train.Points), len(past.HeldOut.Points))
	}
	for i, e := range past.Happened {
		if e.Event.Step != plan.Step(3*MaxHappened+i+1) || len(e.Event.Message) > maxMessage || e.Time.IsZero() {
			t.Fatalf("%d: step %d, message of %d bytes, %v", i, e.Event.Step, len(e.Event.Message), e.Time)
		}
	}
	if b, err := json.Marshal(past); err != nil || len(b) > MaxHappened*(maxMessage+400)+2*MaxPoints*200 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	past.Train.Points[0].Mean = -1
	if h.History().Train.Points[0].Mean != 3 {
		t.Error("what History gives is shared")
	}
}

// TestHistoryOfRates: what is known of a step beside its losses is remembered, and forgotten where the step comes again without it.
func TestHistoryOfRates(t *testing.T) {
	var h Hub
	norm := 1.5
	for step := plan.Step(1); step <= 4; step++ {
		h.Publish(Event{Kind: KindStep, Step: step, Loss: 3, LearningRate: 1e-3, GradientNorm: &norm, TokensPerS: 1000})
	}
	h.Publish(Event{Kind: KindStep, Step: 3, Loss: 2})
	past := h.History()
	for name, c := range map[string]Curve{"learning rate": past.LearningRate, "gradient norm": past.GradientNorm, "tokens/s": past.TokensPerS} {
		if n := len(c.Points); n != 2 || c.Points[1].Step != 2 {
			t.Errorf("%s: %+v", name, c.Points)
		}
	}
	if past.LearningRate.Points[0].Mean != 1e-3 || past.GradientNorm.Points[0].Mean != norm || past.TokensPerS.Points[0].Mean != 1000 || len(past.Train.Points) != 3 {
		t.Errorf("the history is %+v", past)
	}
	past.GradientNorm.Points[0].Mean = -1
	if h.History().GradientNorm.Points[0].Mean != norm {
		t.Error("what History gives is shared")
	}
}

// TestHistoryOfOuterSteps: of those that are like most the newest of each generation is remembered, and all others.
func TestHistoryOfOuterSteps(t *testing.T) {
	var h Hub
	outer := func(g plan.Generation, to plan.Step, parts ...OuterPart) {
		drift := float64(to)
		h.Publish(Event{Kind: KindOuter, Generation: g, Step: to, Outer: &OuterStep{Generation: g, To: to, Drift: &drift, Replicas: append(parts, OuterPart{Steps: 4})}})
		h.Publish(Event{Kind: KindCheckpoint, Generation: g, Step: to})
	}
	outer(1, 4)
	outer(1, 8, OuterPart{Replica: 1, Why: "it was silent"})
	outer(2, 12)
	outer(2, 16, OuterPart{Steps: 4, Far: "what it learned is large"})
	outer(2, 20)
	outer(2, 24)
	var got []plan.Step
	checkpoints := 0
	for _, e := range h.History().Happened {
		if e.Event.Kind == KindOuter {
			got = append(got, e.Event.Step)
		} else {
			checkpoints++
		}
	}
	if !slices.Equal(got, []plan.Step{8, 16, 24}) || checkpoints != 6 {
		t.Errorf("outer steps to %v, %d checkpoints", got, checkpoints)
	}
	if drift := h.History().Drift; len(drift.Points) != 6 || drift.Points[5].Mean != 24 {
		t.Errorf("drift %+v", drift)
	}
}

// TestTextsOfTheModelLeaveRoomForEvents: however many texts a model writes, the newest stay, and none of the other events goes for them.
func TestTextsOfTheModelLeaveRoomForEvents(t *testing.T) {
	var h Hub
	h.Publish(Event{Kind: KindPlan, Generation: 1})
	for i := 1; i <= 2*MaxHappened; i++ {
		h.Publish(Event{Kind: KindSample, Step: plan.Step(i), Steps: 9999, Message: "Once upon a time"})
	}
	past := h.History().Happened
	if len(past) != 1+mostSamples || past[0].Event.Kind != KindPlan || past[1].Event.Step != 2*MaxHappened-mostSamples+1 || past[mostSamples].Event.Step != 2*MaxHappened {
		t.Errorf("%d events, %+v first", len(past), past[:min(2, len(past))])
	}
}
