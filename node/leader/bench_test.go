package leader

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// BenchmarkTick measures one look of an elected leader at runs of so many members, 40 of which compute.
func BenchmarkTick(b *testing.B) {
	for _, n := range []int{16, 64, 250, 500, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			state := crowdOf(n, min(n, 40))
			beats := gossip.NewTracker()
			beats.SetPaces(gossip.PacesOf(state))
			for _, m := range state.Members {
				beats.Note(gossip.Heartbeat{Peer: m.Peer, Generation: 1, Step: 1}, time.Now())
			}
			l := New(Config{Self: state.Members[0].Peer, Consensus: &oneLeader{state: state}, Peers: strangers{}, Heartbeats: beats, Log: slog.New(slog.DiscardHandler)})
			var seen sightings
			tm := newTerm(l, 1, func(func(context.Context)) bool { return true }, &ahead{})
			b.ResetTimer()
			for range b.N {
				now := time.Now()
				seen.look(state.Members, beats.Heard, beats.Slack, now)
				l.clock.Look(state.Departures, now)
				l.speeds.look(state, now)
				if err := tm.look(b.Context(), state, &seen); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// crowdOf returns a run of so many members, the first ones of which have a place in the plan.
func crowdOf(members, placed int) (s consensus.State) {
	s.Run = &plan.RunSpec{Model: model.Config{Vocab: 256, Context: 16, Blocks: placed, Heads: 2, Channels: 16}, Train: plan.TrainSpec{Micros: 4, MicroBatch: 1, Steps: 100, MinNodes: 1}}
	for i := range members {
		s.Members = append(s.Members, consensus.Member{
			Peer: plan.PeerID(fmt.Sprintf("p%04d", i)), State: consensus.Active, Label: fmt.Sprintf("node-%d", i),
			Profile: plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 1e12, AttentionFLOPS: 1e12, MemoryBytesPerS: 1e11, MemoryFreeBytes: 1 << 34}}},
		})
	}
	s.Owners, s.Leader = []plan.PeerID{"p0000"}, "p0000"
	s.Plan.Generation = 1
	s.Plan.Replicas = []plan.Pipeline{{}}
	for i := range placed {
		s.Plan.Replicas[0].Stages = append(s.Plan.Replicas[0].Stages, plan.Placement{Peer: plan.PeerID(fmt.Sprintf("p%04d", i)), Device: "cpu", Layers: plan.LayerRange{First: i, End: i + 1}})
	}
	return s
}
