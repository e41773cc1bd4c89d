package planner

import (
	"bytes"
	"testing"

	"pnode/planner/plan"
)

func ratioOf(peer plan.PeerID, permille int64) Ratio {
	return Ratio{Worker: plan.WorkerID{Peer: peer, Device: "cpu"}, Permille: permille}
}

func layersOf(p plan.Plan, peer plan.PeerID) (layers int) {
	for _, pipe := range p.Replicas {
		for _, at := range pipe.Stages {
			if at.Peer == peer {
				layers += at.Layers.Len()
			}
		}
	}
	return layers
}

// TestASlowDeviceGetsFewerLayers: with what steps showed of it another plan is better, under which nothing more is to change; with
// nothing shown the bytes are the same.
func TestASlowDeviceGetsFewerLayers(t *testing.T) {
	const slow plan.PeerID = "node-1"
	in := lanedOf(t, "1f1b", 3, 1<<33)
	make := func(in Input) plan.Plan {
		p, _, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	replan := func(in Input, current plan.Plan) Decision {
		in.Generation = current.Generation + 1
		d, err := ShouldReplan(t.Context(), in, current)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	even := make(in)
	seen := in
	seen.Ratios = []Ratio{ratioOf(slow, 1000), ratioOf("gone", 8000)}
	if p := make(seen); !bytes.Equal(p.Encode(), even.Encode()) {
		t.Errorf("a ratio of 1 changes the plan: %s", p.Encode())
	}
	if d := replan(seen, even); d.Replan {
		t.Errorf("a ratio of 1: %s", d.Reason)
	}
	seen.Ratios[0].Permille = 2828
	d := replan(seen, even)
	if before, err := predicted(seen, even); err != nil || !d.Replan || d.Change.Now != before.Step {
		t.Errorf("%+v; the plan's step takes %d, %v", d, before.Step, err)
	}
	cut := make(seen)
	if had, has := layersOf(even, slow), layersOf(cut, slow); has*2 > had+1 {
		t.Errorf("%d layers, then %d", had, has)
	}
	if d := replan(seen, cut); d.Replan {
		t.Errorf("again: %s", d.Reason)
	}
	if d := replan(in, cut); !d.Replan {
		t.Errorf("back at its speed: %s", d.Reason)
	}
	fast := in
	fast.Ratios = []Ratio{ratioOf(slow, 354)}
	if p := make(fast); layersOf(p, slow) <= layersOf(even, slow) {
		t.Errorf("a fast device has %d layers", layersOf(p, slow))
	}
}

// TestASlowReplicaNeedsNoPlan: a commit can give it fewer micro-batches.
func TestASlowReplicaNeedsNoPlan(t *testing.T) {
	in := lanedOf(t, "1f1b", 2, 1<<33)
	in.Run.Train.Replicas, in.Run.Train.Stages, in.Run.Train.SumGroups = 2, 1, 16
	even, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	in.Ratios, in.Generation = []Ratio{ratioOf("node-1", 2828)}, 2
	before, err := predicted(in, even)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ShouldReplan(t.Context(), in, even)
	if err != nil || d.Replan || d.Change.Now*10 > before.Step*8 {
		t.Errorf("%+v, %v; with even shares %d", d, err, before.Step)
	}
}

// TestExpectedTimesKnowNoRatios: what a device was to do is what its profile says.
func TestExpectedTimesKnowNoRatios(t *testing.T) {
	in := lanedOf(t, "1f1b", 3, 1<<33)
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	computing, err := Computing(in, p)
	if err != nil || len(computing) != 3 {
		t.Fatal(computing, err)
	}
	var stages []MeasuredStage
	for s, at := range p.Replicas[0].Stages {
		n := computing[at.Worker()]
		stages = append(stages, MeasuredStage{Stage: plan.Stage(s), ForwardNanos: n, BackwardNanos: 2 * n})
	}
	for w, n := range Computed(p, stages) {
		if n != 3*computing[w] || n == 0 {
			t.Errorf("%v: %d, was to take %d", w, n, computing[w])
		}
	}
	for w, n := range Computed(p, stages[:2]) {
		if (n == 0) != (w == p.Replicas[0].Stages[2].Worker()) {
			t.Errorf("%v: %d", w, n)
		}
	}
}
