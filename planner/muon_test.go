package planner

import (
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// TestMuonIsCounted: plans fit with what updates of whole matrices need, nobody keeps their state in host memory, and their time counts.
func TestMuonIsCounted(t *testing.T) {
	in := lanedOf(t, "", 2, 0)
	in.Run.Train.Stages, in.Run.Train.Replicas, in.Run.Train.Recompute = 0, 0, plan.Recompute(model.RecomputeNothing)
	muon := in
	muon.Run.Train.Optimizer, muon.Run.Train.Momentum = plan.Muon, 0.95
	muon.Costs = muon.Run.Costs(model.StorageF32)
	room := func(in *Input, free int64) {
		for i := range in.Members {
			in.Members[i].Profile.Devices[0].MemoryFreeBytes = free
			in.Members[i].Profile.Devices[0].HostFreeBytes, in.Members[i].Profile.Devices[0].CopyBytesPerS = 1<<30, 1e10
		}
	}
	fits := 0
	for free := int64(60 << 20); free < 320<<20; free += free / 8 {
		room(&muon, free)
		muon.Run.Train.Shard = []plan.ShardRule{plan.ShardOff, plan.ShardOn, plan.ShardAuto}[fits%3]
		p, _, err := Make(t.Context(), muon)
		if err != nil {
			continue
		}
		fits++
		for w, need := range allocated(t, muon, p) {
			if need > free {
				t.Errorf("worker %d takes %d bytes of %d", w, need, free)
			}
		}
		if p.Replicas[0].Stages[0].Offload {
			t.Errorf("%d bytes: optimizer state in host memory: %+v", free, p)
		}
	}
	if fits < 3 {
		t.Errorf("%d plans fit", fits)
	}
	room(&in, 1<<30)
	room(&muon, 1<<30)
	_, plain, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	_, reasons, err := Make(t.Context(), muon)
	if err != nil {
		t.Fatal(err)
	}
	a, b := stepNanos(plain), stepNanos(reasons)
	if b <= a {
		t.Errorf("a step takes %d ns with Muon, %d with AdamW", b, a)
	}

	// Replicas with the memory share updates all the same, since each has fewer products then: more than an even part of them.
	muon.Run.Train.Stages, muon.Run.Train.Replicas = 1, 2
	var steps [2]int64
	for i, rule := range []plan.ShardRule{plan.ShardOff, plan.ShardAuto} {
		muon.Run.Train.Shard = rule
		p, reasons, err := Make(t.Context(), muon)
		if err != nil {
			t.Fatal(err)
		}
		if steps[i] = stepNanos(reasons); len(p.Replicas) != 2 || len(p.Sharded) != i {
			t.Errorf("%v: %d replicas, layers %v in parts", rule, len(p.Replicas), p.Sharded)
		}
	}
	if steps[1] >= steps[0] {
		t.Errorf("steps of %d ns with updates that each replica makes, %d with shared ones", steps[0], steps[1])
	}
}

// TestMuonsMatricesHaveOneMoment: stacks take what the cost model counts of optimizer state, which is one vector of the matrices of blocks
// and two of all else, and so does the state before an update that may be undone.
func TestMuonsMatricesHaveOneMoment(t *testing.T) {
	for _, rule := range []plan.OptimizerRule{plan.AdamW, plan.Muon} {
		run := lanedOf(t, "", 1, 0).Run
		run.Train.Optimizer = rule
		layers := run.Model.Layers()
		memory := cost.NewMemory(cost.Training{Costs: run.Costs(model.StorageF32), TiedGrad: run.Model.TiedGradLen()}).InParts(cost.Parts{Undo: true})
		for _, stage := range []plan.LayerRange{{First: 0, End: layers}, {First: 0, End: 3}, {First: 2, End: layers}} {
			stack := run.Stack(plan.Placement{Layers: stage}, nil, 0, schedule.Use{Slots: 1})
			stack.Undo = true
			took, err := stack.Memory()
			if err != nil {
				t.Fatal(err)
			}
			aligned := 3 * 64 * int64(stage.Len())
			if want := memory.Moments(stage.First, stage.End); took.Moments < want || took.Moments > want+aligned {
				t.Errorf("%v, layers %v: %d bytes of optimizer state, want %d", rule, stage, took.Moments, want)
			}
			previous := int64(0) // both ends of a tied embedding are copied
			for l := stage.First; l < stage.End; l++ {
				previous += memory.Previous(l, l+1)
			}
			if took.Previous < previous || took.Previous > previous+aligned {
				t.Errorf("%v, layers %v: %d bytes of the state before an update, want %d", rule, stage, took.Previous, previous)
			}
			if rule == plan.Muon && took.Moments*10 > took.Params*16 {
				t.Errorf("layers %v: %d bytes of optimizer state of %d bytes of parameters", stage, took.Moments, took.Params)
			}
		}
	}
}

// TestSharesOfMuonAreCounted: with whole matrices in parts no stack takes more than the cost model counts, and one takes nearly as much.
func TestSharesOfMuonAreCounted(t *testing.T) {
	run := lanedOf(t, "", 1, 0).Run
	run.Train.Optimizer = plan.Muon
	layers := run.Model.Layers()
	for _, replicas := range []int{2, 3, 5, 8} {
		memory := cost.NewMemory(cost.Training{Costs: run.Costs(model.StorageF32), ShareBytes: shareBytes(run)}).InParts(cost.Parts{
			Replicas: replicas, Layers: plan.LayerRanges{{First: 0, End: layers}},
		})
		most, want := int64(0), memory.Moments(1, layers-1)
		for r := range replicas {
			shares := slices.Repeat([]model.Share{{Index: r, Count: replicas}}, layers-2)
			took, err := run.Stack(plan.Placement{Layers: plan.LayerRange{First: 1, End: layers - 1}}, shares, 0, schedule.Use{Slots: 1}).Memory()
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, took.Moments)
		}
		if most > want || want-most > 4*64*int64(layers) {
			t.Errorf("%d replicas: a stage takes %d bytes of optimizer state, want %d", replicas, most, want)
		}
	}
}
