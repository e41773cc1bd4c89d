package planner

import (
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestMuonIsCounted: plans fit with what updates of whole matrices need, nobody keeps their state elsewhere, and their time counts.
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
		if len(p.Sharded) > 0 || p.Replicas[0].Stages[0].Offload {
			t.Errorf("%d bytes: optimizer state in parts or in host memory: %+v", free, p)
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
	if a, b := stepNanos(plain), stepNanos(reasons); b <= a {
		t.Errorf("a step takes %d ns with Muon, %d with AdamW", b, a)
	}
}
