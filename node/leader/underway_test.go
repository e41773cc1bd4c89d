package leader

import (
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAStepIsGivenUpWhereThatIsShorter: what is done of it, and the longer stop, against what it takes longer with a substitute.
func TestAStepIsGivenUpWhereThatIsShorter(t *testing.T) {
	for name, c := range map[string]struct {
		takes, busy, elapsed time.Duration
		workers              int
		unready              bool
		want                 bool
	}{
		"a long step has just begun":      {23 * time.Second, 20 * time.Second, time.Second, 29, false, true},
		"half of it is done":              {23 * time.Second, 20 * time.Second, 11 * time.Second, 29, false, true},
		"few machines are left":           {23 * time.Second, 20 * time.Second, time.Second, 2, false, false},
		"nearly all of it is done":        {23 * time.Second, 20 * time.Second, 19 * time.Second, 29, false, false},
		"it is late already":              {23 * time.Second, 20 * time.Second, 40 * time.Second, 29, false, false},
		"there is no plan for the rest":   {23 * time.Second, 20 * time.Second, time.Second, 29, true, false},
		"a short step":                    {time.Second, time.Second, 0, 29, false, false},
		"the substitute has little to do": {23 * time.Second, 5 * time.Second, time.Second, 29, false, false},
		"nothing is known of the step":    {0, 20 * time.Second, 0, 29, false, false},
		"nothing is known of who could":   {23 * time.Second, 0, 0, 29, false, false},
	} {
		v := lossOf("a")
		v.UnderWay = underWay{Workers: c.workers, For: c.elapsed, Takes: c.takes, Busy: map[plan.PeerID]time.Duration{"c": c.busy}, Ready: map[plan.PeerID]bool{"a": !c.unready}}
		got := decide(v)
		if got.Gone != "a" || !got.Ended || (got.By == "") != c.want {
			t.Errorf("%s: %+v, want it given up: %t", name, got, c.want)
		}
	}
	v := lossOf("a")
	v.Plan = twoByTwo() // another cut: a replay does not make the step longer by a part of it
	v.Replayers = map[plan.PeerID][]plan.PeerID{"a": {"b"}}
	v.UnderWay = underWay{Workers: 29, Takes: 23 * time.Second, Busy: map[plan.PeerID]time.Duration{"b": 20 * time.Second}, Ready: map[plan.PeerID]bool{"a": true}}
	if got := decide(v); got.By != "b" || !got.Replays {
		t.Errorf("%+v where nobody has the layers in memory", got)
	}
}

// TestTheStepUnderWay is known from the second step on that a leader sees come, with how long members compute.
func TestTheStepUnderWay(t *testing.T) {
	beats, now := gossip.NewTracker(), time.Unix(1000, 0)
	state := consensus.State{Plan: twins()}
	state.Plan.Generation = 3
	beats.Note(gossip.Heartbeat{Peer: "b", Generation: 3, StepNanos: 9e9, Stages: []gossip.StageTimes{{ForwardNanos: 1e9, BackwardNanos: 2e9}, {ForwardNanos: 1e9}}}, now)
	w := stepWatch{beats: beats}
	if u := w.look(state, 7, now); u.Takes != 0 {
		t.Errorf("%+v of a step whose begin was not seen", u)
	}
	w.look(state, 8, now.Add(time.Second))
	if u := w.look(state, 8, now.Add(3*time.Second)); u.For != 2*time.Second || u.Takes != 9*time.Second || u.Workers != 4 || u.Busy["b"] != 4*time.Second {
		t.Errorf("%+v", u)
	}
	state.Plan.Generation = 4
	if u := w.look(state, 8, now.Add(4*time.Second)); u.Takes != 0 {
		t.Errorf("%+v of a plan that has made no step", u)
	}
}
