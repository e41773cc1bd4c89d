package leader

import (
	"fmt"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner"
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

// TestReplicasBeginWithTheirOwnStates: the next plan begins with what replicas had for themselves, as far as members have all of it, and trains on what is left.
func TestReplicasBeginWithTheirOwnStates(t *testing.T) {
	run := plan.RunSpec{
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 2, Heads: 2, Channels: 32},
		Train: plan.TrainSpec{Micros: 4, MicroBatch: 1, Steps: 1000, Sync: plan.SyncRule{Local: true}},
	}
	state := consensus.State{Run: &run}
	own := func(r plan.Replica, holders ...plan.PeerID) (o consensus.OwnState) {
		o.Replica = r
		for l := range run.Model.Layers() {
			o.Layers = append(o.Layers, consensus.LayerRef{Layer: l, Holders: holders})
		}
		return o
	}
	for i, peer := range []plan.PeerID{"a", "b", "c"} {
		m := consensus.Member{Peer: peer, State: consensus.Active, Profile: withDevices(1)}
		for j, other := range []plan.PeerID{"a", "b", "c"} {
			if i != j {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: other, BytesPerS: 1e9, RTTNanos: 1e5})
			}
		}
		state.Members = append(state.Members, m)
	}
	state.Checkpoint = consensus.Checkpoint{Step: 40, Own: []consensus.OwnState{own(0, "a"), own(1, "b", "c"), own(2, "gone"), own(3, "c")}, Stream: plan.Stream{Given: []plan.MicroRange{{First: 9, End: 11}}, Fresh: 162}}
	state.Checkpoint.Own[3].Layers = state.Checkpoint.Own[3].Layers[1:]
	in := NextInput(state)
	if len(in.Own) != 2 || in.Own[0].Replica != 0 || in.Own[1].Replica != 1 || in.Stream.Fresh != 162 {
		t.Fatalf("own states %+v, stream %+v", in.Own, in.Stream)
	}
	in.Run.Train.Replicas, in.Run.Train.Sync.Every = 3, 10
	p, _, err := planner.Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for _, pipe := range p.Replicas {
		switch o := pipe.Own; {
		case o == nil || o.Step != 40:
			t.Fatalf("a replica on %s begins with %+v", pipe.Stages[0].Peer, o)
		case o.Copied:
			copied++
		case o.Replica == 0 && pipe.Stages[0].Peer != "a" || o.Replica == 1 && pipe.Stages[0].Peer == "a":
			t.Errorf("the state of replica %d goes on with %s", o.Replica, pipe.Stages[0].Peer)
		}
	}
	if p.Local == nil || len(p.Replicas) != 3 || copied != 1 || p.Stream.Fresh != 162 {
		t.Errorf("plan %s", p.Encode())
	}
}
