package leader

import (
	"fmt"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// withDevices returns a profile of so many like devices.
func withDevices(n int) (p plan.Profile) {
	for i := range n {
		p.Devices = append(p.Devices, plan.DeviceProfile{Name: fmt.Sprint("gpu:", i), MatMulFLOPS: 1e12, MemoryBytesPerS: 1e11, MemoryFreeBytes: 1 << 33})
	}
	return p
}

func TestAnAskedCutYieldsToTheDevicesThereAre(t *testing.T) {
	run := plan.RunSpec{
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 2, Heads: 2, Channels: 32},
		Train: plan.TrainSpec{Micros: 4, MicroBatch: 1},
	}
	for _, c := range []struct {
		name                     string
		replicas, stages, nodes  int
		devices                  int // of each node
		wantReplicas, wantStages int
		previous                 plan.Generation
		wantGeneration           plan.Generation
	}{
		{"enough", 2, 2, 4, 1, 2, 2, 0, 1},
		{"enough on one node", 1, 2, 1, 2, 1, 2, 0, 1},
		{"too few for the stages", 1, 3, 2, 1, 1, 0, 1, 2},
		{"too few for the replicas", 2, 1, 1, 1, 0, 0, 4, 5},
		{"nothing asked", 0, 0, 1, 1, 0, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := run
			spec.Train.Replicas, spec.Train.Stages = c.replicas, c.stages
			state := consensus.State{Run: &spec, Plan: plan.Plan{Generation: c.previous}}
			for i := range c.nodes {
				state.Members = append(state.Members, consensus.Member{Peer: plan.PeerID(rune('a' + i)), State: consensus.Active, Profile: withDevices(c.devices)})
			}
			state.Members = append(state.Members, consensus.Member{Peer: "z", State: consensus.Draining, Profile: withDevices(9)})
			in := NextInput(state)
			if in.Run.Train.Replicas != c.wantReplicas || in.Run.Train.Stages != c.wantStages {
				t.Errorf("%d replicas of %d stages, want %d of %d", in.Run.Train.Replicas, in.Run.Train.Stages, c.wantReplicas, c.wantStages)
			}
			if len(in.Members) != c.nodes+1 || !in.Members[c.nodes].Draining || in.Generation != c.wantGeneration || (in.Previous != nil) != (c.previous > 0) {
				t.Errorf("%d members, generation %d, previous %v", len(in.Members), in.Generation, in.Previous)
			}
			if spec.Train.Stages != c.stages {
				t.Error("the run's own specification was changed")
			}
		})
	}
}
