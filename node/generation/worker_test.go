package generation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/checkpointer"
	"pnode/node/gossip"
	"pnode/pipeline/replay"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// still is a log that nothing is written to, and peers that are not asked.
type still struct {
	Consensus
	Peers
	state consensus.State
}

func (s *still) State() consensus.State { return s.state }

func (*still) Serve(string, func(context.Context, plan.PeerID, []byte) ([]byte, error)) {}

// TestWhoIsBelievedThatACheckpointIsLeftOut: a member whose own layers the checkpoint lacks, once nobody writes it any more.
func TestWhoIsBelievedThatACheckpointIsLeftOut(t *testing.T) {
	const asked = 10
	for name, c := range map[string]struct {
		by         plan.PeerID
		generation plan.Generation
		step       plan.Step
		saved      []int // layers of that checkpoint that the log has
		writes     plan.PeerID
		believed   bool
	}{
		"whose layers lack":          {"a", 3, asked, []int{1}, "", true},
		"before anything is saved":   {"b", 3, asked, nil, "", true},
		"whose layers are saved":     {"b", 3, asked, []int{1}, "", false},
		"who saves nothing":          {"c", 3, asked, nil, "", false},
		"outside the plan":           {"d", 3, asked, nil, "", false},
		"of the one before":          {"a", 3, asked - 1, nil, "", false},
		"of the plan before":         {"a", 2, asked, nil, "", false},
		"who writes another stage":   {"a", 3, asked, nil, "a", false},
		"while another one writes":   {"a", 3, asked, nil, "b", false},
		"while a stranger does, too": {"a", 3, asked, nil, "d", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := plan.Plan{Generation: 3, Replicas: make([]plan.Pipeline, 2)}
				for i, peer := range []plan.PeerID{"a", "b", "c", "c"} {
					r := &p.Replicas[i/2]
					r.Stages = append(r.Stages, plan.Placement{Peer: peer, Layers: plan.LayerRange{First: i % 2, End: i%2 + 1}})
				}
				log := &still{state: consensus.State{Plan: p}}
				saves := checkpointer.New(checkpointer.Config{Peers: log})
				g := &Generation{
					Parts: Parts{Consensus: log, Heartbeats: gossip.NewTracker(), Checkpointer: saves},
					plan:  p, sent: replay.NewLogs("b").Begin(3, 0, 0),
					cadence: saves.Cadence(p, func(plan.PeerID) *holders.Cadence { return nil }),
				}
				time.Sleep(time.Minute)
				if !g.due(asked) {
					t.Fatal("no checkpoint is made")
				}
				made := consensus.Checkpoint{Step: asked, Generation: 3}
				for _, l := range c.saved {
					made.Layers = append(made.Layers, consensus.LayerRef{Layer: l})
				}
				log.state.Pending = []consensus.Checkpoint{made}
				said := func(writing bool) bool { // whether it is given up
					g.Heartbeats.Note(gossip.Heartbeat{Peer: c.writes, Generation: 3, Copying: writing}, time.Now())
					g.Heartbeats.Note(gossip.Heartbeat{Peer: c.by, Generation: c.generation, LeftOut: c.step, Copying: writing && c.writes == c.by}, time.Now())
					time.Sleep(time.Second)
					return !g.due(asked+1) && saves.Told(3).Saving == 0
				}
				if got := said(true); got != c.believed {
					t.Errorf("believed: %t, want %t", got, c.believed)
				}
				if c.writes != "" && !said(false) {
					t.Error("it is not believed once nobody writes")
				}
			})
		})
	}
}

// TestTheEndOfAWarmupIsSaved, where the run has replicas make local steps after it. A plan with local steps is saved as its outer steps say.
func TestTheEndOfAWarmupIsSaved(t *testing.T) {
	run := plan.RunSpec{Train: plan.TrainSpec{Steps: 50, Sync: plan.SyncRule{Local: true, WarmupPercent: 10}}}
	log := &still{state: consensus.State{Run: &run}}
	saves := checkpointer.New(checkpointer.Config{Peers: log})
	for step, saved := range map[plan.Step]bool{4: false, 5: true, 6: false} {
		p := plan.Plan{Generation: 3}
		g := &Generation{
			Parts: Parts{Consensus: log, Heartbeats: gossip.NewTracker(), Checkpointer: saves}, plan: p, sent: replay.NewLogs("b").Begin(3, 0, 0),
			cadence: saves.Cadence(p, func(plan.PeerID) *holders.Cadence { return nil }),
		}
		if g.due(step) != saved {
			t.Errorf("step %d is saved: %t", step, !saved)
		}
	}
}
