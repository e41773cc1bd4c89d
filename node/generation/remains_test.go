package generation

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pnode/pipeline/replay"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhatIsLeftCannotBeHad has a member of a run that goes on act on salvages that ask too much: it says so, the others learn of it,
// and the run is none the worse.
func TestWhatIsLeftCannotBeHad(t *testing.T) {
	known := undisturbed(t)
	synctest.Test(t, func(t *testing.T) {
		rehearse(t, 2, func(r *rig) {
			r.plan([]int{0, 1})
			m := r.members[0]
			r.until("step 3", func() bool { return m.step() >= 3 })
			state := r.now()
			p := state.Plan
			other := plan.WorkerID{Peer: r.members[1].parts.Self, Device: "cpu"}
			at := p.StagesOf(other)[0]
			left := &Remains{Parts: m.parts, plan: p, cancel: func() {}, done: make(chan struct{})}
			close(left.done)

			if err := left.bring(t.Context(), nil, 999); err == nil || !strings.Contains(err.Error(), "nobody has the commit of step 999") ||
				!strings.Contains(err.Error(), "node-1: ") || strings.Contains(err.Error(), "node-0: ") {
				t.Errorf("a commit that nobody has: %v", err)
			}

			left.carryOut(t.Context(), consensus.Salvage{Generation: p.Generation, Step: 999, Parts: []consensus.SalvagePart{
				{Replica: at.Replica, Stage: at.Stage, By: m.parts.Self, Layers: p.At(at).Layers},
			}})
			if !left.told || !m.parts.Replayer.Kept().Failed {
				t.Errorf("a replay without its commits: told %t, failed %t", left.told, m.parts.Replayer.Kept().Failed)
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
			if w, err := left.lostWorker(state, lost, moved, frames, nil, func(plan.Step) {}); err != nil {
				t.Errorf("a lost worker on another device: %v", err)
			} else {
				w.Close()
			}
			lost.Device = "neither in the plan"
			if _, err := left.lostWorker(state, lost, moved, frames, nil, func(plan.Step) {}); err == nil || !strings.Contains(err.Error(), "replay neither in the plan of node-1") {
				t.Errorf("a worker that the plan does not have: %v", err)
			}

			r.wantDone()
			r.wantLosses(known)
		})
	})
}
