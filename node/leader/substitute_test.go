package leader

import (
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// twins is a plan of two replicas with the same cut: a b, whose b coordinates, and c d.
func twins() plan.Plan {
	p := twoByTwo()
	for s, place := range p.Replicas[0].Stages {
		p.Replicas[1].Stages[s].Layers = place.Layers
	}
	return p
}

// lossOf is a view of that plan in which a member's process has ended.
func lossOf(peer plan.PeerID) view {
	v := view{Plan: twins(), Checkpoint: 30, remains: remains{Layers: 6}}
	for _, p := range []plan.PeerID{"a", "b", "c", "d"} {
		v.Members = append(v.Members, memberView{Peer: p, Active: true, Ended: p == peer})
	}
	return v
}

// TestWhoGoesOnInALostOnesPlace: who has its layers, while nobody has given the generation up and nothing ends it.
func TestWhoGoesOnInALostOnesPlace(t *testing.T) {
	for name, c := range map[string]struct {
		lost   plan.PeerID
		change func(*view)
		want   plan.PeerID
	}{
		"the other replica's":        {"a", func(*view) {}, "c"},
		"the other replica's again":  {"d", func(*view) {}, "b"},
		"the coordinator has nobody": {"b", func(*view) {}, ""},
		"another cut":                {"a", func(v *view) { v.Plan = twoByTwo() }, ""},
		"who is silent too":          {"a", func(v *view) { v.Members[2].Silent = DeadAfter + time.Second }, ""},
		"who leaves":                 {"a", func(v *view) { v.Members[2].Active, v.Members[2].Leaving = false, true }, ""},
		"who was started again":      {"a", func(v *view) { v.Members[2].Restarted = true }, ""},
		"another is gone":            {"a", func(v *view) { v.Members = v.Members[:3] }, ""},
		"a generation given up":      {"a", func(v *view) { v.Stall = stall{Stall: gossip.Stall{For: time.Second}} }, ""},
		"a spoilt one":               {"a", func(v *view) { v.Trial.Accusations = []accusation{{Fault: plan.Fault{Kind: plan.BadTensor}}} }, ""},
		"a pause":                    {"a", func(v *view) { v.Paused = true }, ""},
		"a salvage":                  {"a", func(v *view) { v.Salvage = &consensus.Salvage{} }, ""},
		"a substitute before it":     {"a", func(v *view) { v.Carried = carried{"d", "b"} }, ""},
	} {
		v := lossOf(c.lost)
		c.change(&v)
		if got := v.substitute(c.lost); got != c.want {
			t.Errorf("%s: %q goes on, want %q", name, got, c.want)
		}
		if got := decide(v); got.Gone == c.lost && got.Ended && got.By != c.want {
			t.Errorf("%s: the verdict is %+v", name, got)
		}
	}
	mute := lossOf("")
	mute.Members[0].Silent = UnreachableAfter + time.Second
	if got := decide(mute); got.Gone != "a" || got.By != "" {
		t.Errorf("who is silent may be back, and the generation has ended: %+v", got)
	}
}

// TestASubstituteIsFollowedByAPlan: after a pause, and at once where the generation is given up or its substitute is gone too.
func TestASubstituteIsFollowedByAPlan(t *testing.T) {
	carriedOn := func(change func(*view)) view {
		v := lossOf("")
		v.Members, v.Carried = v.Members[1:], carried{"a", "c"}
		v.Names = map[plan.PeerID]string{"a": "desk", "c": "lab"}
		change(&v)
		return v
	}
	const why = "desk is gone, and lab computes its part"
	for name, c := range map[string]struct {
		change func(*view)
		want   verdict
	}{
		"asks for a pause":       {func(*view) {}, verdict{Pause: true, Why: why}},
		"without copies":         {func(v *view) { v.Copying = true }, verdict{Pause: true, Why: why}},
		"waits for the save":     {func(v *view) { v.Paused, v.SavePatience = true, time.Minute }, verdict{}},
		"plans then":             {func(v *view) { v.Paused, v.Saved = true, true }, verdict{Plan: true, Why: why}},
		"the substitute is gone": {func(v *view) { v.Members = v.Members[:1]; v.BrokenFor = time.Minute }, verdict{Plan: true, Why: "desk is gone"}},
		"given up": {func(v *view) {
			v.Stall, v.BrokenFor = stall{Stall: gossip.Stall{For: time.Second}}, time.Minute
		}, verdict{Plan: true, Why: "desk is gone"}},
	} {
		if got := decide(carriedOn(c.change)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	said := []accusation{{By: "b", Fault: plan.Fault{Accused: "a"}}, {By: "b", Fault: plan.Fault{Accused: "d"}}}
	if got := (carried{"a", "c"}).accused(said); got[0].Accused != "c" || got[1].Accused != "d" || said[0].Accused != "a" {
		t.Errorf("the substitute answers for %+v of %+v", got, said)
	}
}
