package planner

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestLikeMachinesKeepTheirPlan: two machines that are alike, measured again and again to within 5%, are given the same layers each time.
// On a fast line two replicas and a pipeline of two stages take nearly the same.
func TestLikeMachinesKeepTheirPlan(t *testing.T) {
	m, err := model.Preset("small-10m")
	if err != nil {
		t.Fatal(err)
	}
	m.Context = 256
	for _, bytesPerS := range []int64{400e6, 120e6} {
		plans := map[string]int{}
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 7))
			about := func(n int64) int64 { return n * (9500 + rng.Int64N(1001)) / 10_000 }
			in := InputOf(plan.RunSpec{Run: "like", Model: m, Train: plan.TrainSpec{Micros: 64, MicroBatch: 1, SumGroups: 4}})
			for _, of := range [][2]plan.PeerID{{"a", "b"}, {"b", "a"}} {
				in.Members = append(in.Members, Member{Peer: of[0], Profile: plan.Profile{
					Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: about(100e9), AttentionFLOPS: about(60e9), MemoryBytesPerS: about(10e9), MemoryFreeBytes: 8 << 30}},
					Links:   []plan.LinkProfile{{Peer: of[1], BytesPerS: about(bytesPerS), RTTNanos: about(1e5)}},
				}})
			}
			p, _, err := Make(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			layers := ""
			for _, r := range p.Replicas {
				for _, s := range r.Stages {
					layers += fmt.Sprintf(" %v", s.Layers)
				}
				layers += ";"
			}
			plans[layers]++
		}
		if len(plans) > 1 {
			t.Errorf("%d MB/s: %v", bytesPerS/1e6, plans)
		}
	}
}
