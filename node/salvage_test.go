package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/replay"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhatIsLeftCannotBeHad has a node of a run that goes on act on salvages that ask too much: it says so, the others learn of it,
// and the run is none the worse.
func TestWhatIsLeftCannotBeHad(t *testing.T) {
	size := fleetSize{Steps: 12, Stages: 2, Replicas: 1, CheckpointEvery: 4, MinNodes: 2}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		founder := f.add()
		f.add().join(founder.found())
		f.until("step 3", time.Hour, func() bool { return f.truth.reached() >= 3 })
		n := founder.node()
		state := n.raft.State()
		p := state.Plan
		i := slices.IndexFunc(p.Workers(), func(id plan.WorkerID) bool { return id.Peer != n.self })
		other := p.Workers()[i]
		at := p.StagesOf(other)[0]
		r := &remains{Node: n, plan: p, cancel: func() {}, done: make(chan struct{})}
		close(r.done)

		if err := r.bring(t.Context(), nil, 999); err == nil || !strings.Contains(err.Error(), "nobody has the commit of step 999") ||
			!strings.Contains(err.Error(), "node-1: ") || strings.Contains(err.Error(), "node-0: ") {
			t.Errorf("a commit that nobody has: %v", err)
		}

		r.carryOut(t.Context(), consensus.Salvage{Generation: p.Generation, Step: 999, Parts: []consensus.SalvagePart{
			{Replica: at.Replica, Stage: at.Stage, By: n.self, Layers: p.At(at).Layers},
		}})
		if !r.told || !n.replayer.Kept().Failed {
			t.Errorf("a replay without its commits: told %t, failed %t", r.told, n.replayer.Kept().Failed)
		}

		moved := p
		moved.Replicas = slices.Clone(p.Replicas)
		stages := slices.Clone(p.Replicas[at.Replica].Stages)
		for i := range stages {
			if stages[i].Peer == other.Peer {
				stages[i].Device = "a card that is not here"
			}
		}
		moved.Replicas[at.Replica].Stages = stages
		lost := plan.WorkerID{Peer: other.Peer, Device: "a card that is not here"}
		frames := replay.NewFrames(t.Context(), nil, []plan.PeerID{other.Peer}, 1, func(context.Context, plan.PeerID, plan.Step) ([]replay.Message, error) { return nil, nil })
		if w, err := r.lostWorker(lost, *state.Run, moved, frames, nil); err != nil {
			t.Errorf("a lost worker on another device: %v", err)
		} else {
			w.Close()
		}
		lost.Device = "neither in the plan"
		if _, err := r.lostWorker(lost, *state.Run, moved, frames, nil); err == nil || !strings.Contains(err.Error(), "replay neither in the plan of node-1") {
			t.Errorf("a worker that the plan does not have: %v", err)
		}

		for i, err := range f.untilEnded(time.Hour) {
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		}
		f.check()
	})
}
