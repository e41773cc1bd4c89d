package planner_test

import (
	"context"
	"fmt"

	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
)

// Two machines of unlike speed get layers in proportion, the slow one the first and the last: their tied embedding stays there. The same
// input gives the same plan everywhere.
func ExampleMake() {
	gpt2, err := model.Preset("gpt2-124m")
	if err != nil {
		fmt.Println(err)
		return
	}
	machine := func(peer, other plan.PeerID, flops int64) planner.Member {
		return planner.Member{Peer: peer, Profile: plan.Profile{
			Devices: []plan.DeviceProfile{{
				Name: "cuda:0", MatMulFLOPS: flops, AttentionFLOPS: flops / 4,
				MemoryBytesPerS: 4e11, MemoryFreeBytes: 8 << 30,
			}},
			Links: []plan.LinkProfile{{Peer: other, BytesPerS: 1e8, RTTNanos: 2e6}},
		}}
	}
	p, _, err := planner.Make(context.Background(), planner.Input{
		Generation: 1,
		Run: plan.RunSpec{Run: "example", Model: gpt2, Train: plan.TrainSpec{
			Micros: 16, MicroBatch: 1, Replicas: 1, Stages: 2,
		}},
		Costs:   gpt2.Costs(1, model.StorageF32),
		Members: []planner.Member{machine("desktop", "laptop", 2e13), machine("laptop", "desktop", 5e12)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, stage := range p.Replicas[0].Stages {
		fmt.Printf("stage %d: layers %d to %d on %s\n", i, stage.Layers.First, stage.Layers.End-1, stage.Peer)
	}
	// Output:
	// stage 0: layers 0 to 0 on laptop
	// stage 1: layers 1 to 6 on desktop
	// stage 2: layers 7 to 12 on desktop
	// stage 3: layers 13 to 13 on laptop
}
