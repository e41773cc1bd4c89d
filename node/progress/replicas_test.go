package progress

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
)

// TestReplicasWithLocalSteps: what each does in the round, how the newest outer step was, and who is far from the others.
func TestReplicasWithLocalSteps(t *testing.T) {
	num := func(x float64) *float64 { return &x }
	s := api.Status{
		Run: "abc", Peer: "p0", Leader: "p0", State: "training", Generation: 3, Term: 2, Step: 550, Steps: 2000, Loss: num(3.5),
		Roster: []api.Member{{Peer: "p0", Name: "desk", State: "active", Self: true, Leader: true}, {Peer: "p1", Name: "laptop", State: "active"}, {Peer: "p2", Name: "attic", State: "active"}},
		Plan:   []api.StageStatus{{Peer: "p0", Device: "cuda0", Layers: plan.LayerRange{End: 8}}},
		Round:  &api.Round{From: 550, End: 600, Text: "steps 551 to 600: replica 0 (desk) waits for replica 1 (laptop), at 12 of 50 inner steps"},
		Replicas: []api.ReplicaStatus{
			{Replica: 0, Peer: "p0", Step: 600, Loss: 3.25, Made: 50, Of: 50, TokensPerS: 12000, State: api.ReplicaEnded, Text: "has ended its part"},
			{Replica: 1, Peer: "p1", Step: 562, Loss: 3.375, Made: 12, Of: 50, TokensPerS: 3000, State: api.ReplicaComputes, Text: "makes inner steps"},
			{Replica: 2, Peer: "p2", Of: 50, State: api.ReplicaLeftOut, Text: "is not waited for: its process\x1b[2J has ended"},
		},
		Outer: &api.OuterStep{
			Generation: 3, From: 500, To: 550, BytesPerToken: 0.41, EveryStepBytesPerToken: 25, ExchangeS: 4.1, WaitedShare: 0.02, HiddenS: 1.5, Drift: num(0.08),
			Replicas: []api.OuterPart{
				{Replica: 0, Steps: 50, Norm: num(0.5), Cosine: num(0.75), RoundS: 200, WaitedS: 6},
				{Replica: 1, Steps: 50, Norm: num(4), Cosine: num(-0.125), RoundS: 200, WaitedS: 4.1, Far: "what it learned is 8.0 times as large as what most did"},
				{Replica: 2, Why: "it was silent"},
			},
			Text: "steps 501 to 550 of 2 of 3 replicas, drift 0.08; 31.0 MiB from each in 4.1 s; replicas stood still for 2.0% of the round; without replica 2 (attic): it was silent",
		},
	}
	var b bytes.Buffer
	if err := Status(&b, s, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 0); err != nil {
		t.Fatal(err)
	}
	golden(t, "replicas.txt", b.Bytes())
}

// TestOuterStepsAreNoNoise: one in half a minute is written, and each that is not like most.
func TestOuterStepsAreNoNoise(t *testing.T) {
	var text strings.Builder
	now := time.Unix(100, 0)
	w := New(Options{Text: &text, Now: func() time.Time { return now }})
	for i := range plan.Step(8) {
		part := api.OuterPart{Steps: 4}
		if i == 2 {
			part = api.OuterPart{Why: "it was silent"}
		}
		o := &api.OuterStep{To: 4*i + 4, Replicas: []api.OuterPart{part}, Text: "steps " + string('a'+rune(i))}
		w.Event(api.Event{Kind: api.KindOuter, Step: o.To, Message: o.Text, Outer: o})
		now = now.Add(10 * time.Second)
	}
	if got, want := text.String(), "outer step: steps a\nouter step: steps c\nouter step: steps f\n"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// TestStepsOfRounds come many at once: the newest is written, with the outer step that counts them.
func TestStepsOfRounds(t *testing.T) {
	var text strings.Builder
	now := time.Unix(100, 0)
	w := New(Options{Text: &text, Now: func() time.Time { return now }, Steps: 20})
	heldOut := 2.5
	for round := range plan.Step(4) {
		g := plan.Generation(1 + round/3)
		for i := range plan.Step(5) {
			e := api.Event{Kind: api.KindStep, Generation: g, Step: 5*round + i + 1, Loss: 3}
			if round == 2 && i == 0 {
				e.HeldOut = &heldOut
			}
			w.Event(e)
		}
		now = now.Add(time.Second)
		o := &api.OuterStep{To: 5*round + 5, Replicas: []api.OuterPart{{Steps: 5}}, Text: "of the others"}
		w.Event(api.Event{Kind: api.KindOuter, Generation: g, Step: o.To, Message: o.Text, Outer: o})
		now = now.Add(9 * time.Second)
	}
	want := "step 1/20  loss 3.0000\nouter step: of the others\nstep 10/20  loss 3.0000\nstep 11/20  loss 3.0000  held-out 2.5000  ETA 18 s\n" +
		"step 16/20  loss 3.0000\nstep 20/20  loss 3.0000\nouter step: of the others\n"
	if got := text.String(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}
