package monitor

import (
	"fmt"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestDescribeCadence: status says what the node that coordinates the steps does, in whole steps.
func TestDescribeCadence(t *testing.T) {
	cadence := holders.Checkpoint{StateBytes: 5e6, TookNanos: 260e6}.Cadence(holders.Rate{})
	cadence.StepNanos = 530e6
	first := cadence
	first.TookNanos, first.StepNanos = 0, 0
	for _, c := range []struct {
		name  string
		beat  gossip.Heartbeat
		asked plan.Step
		steps plan.Step
		want  string
	}{
		{"nothing is known", gossip.Heartbeat{StepNanos: 530e6}, 0, 0, ""},
		{"no step was measured", gossip.Heartbeat{StepNanos: 530e6, Cadence: &first}, 0, 0, ""},
		{"asked for", gossip.Heartbeat{StepNanos: 530e6}, 20, 20, "one every 20 steps (11 s), as asked"},
		{"asked for before a step", gossip.Heartbeat{}, 1, 1, "one every 1 step, as asked"},
		{"before the first one", gossip.Heartbeat{Cadence: &holders.Cadence{EveryNanos: 5e9, LostNanos: 1e6, StepNanos: 530e6, Why: holders.ForReplay}}, 0, 10, "one every 10 steps (5.3 s), so that a death costs little to replay"},
		{"measured, and the last step was long", gossip.Heartbeat{StepNanos: 7530e6, Cadence: &cadence}, 0, 10, "one every 10 steps (5.3 s), so that a death costs little to replay; one takes 260 ms in the background, which counts as a loss of 15 ms"},
	} {
		got := describeCadence(c.beat, c.asked)
		switch {
		case c.want == "":
			if got != nil {
				t.Errorf("%s: %+v, want nothing", c.name, got)
			}
		case got == nil || got.Text != c.want || got.EverySteps != c.steps:
			t.Errorf("%s: %+v, want %d steps: %q", c.name, got, c.steps, c.want)
		}
	}
}

// TestCheckpointsOfLocalSteps are made at outer steps.
func TestCheckpointsOfLocalSteps(t *testing.T) {
	for _, c := range []struct{ due, every, want plan.Step }{{0, 20, 20}, {1, 20, 20}, {20, 20, 20}, {21, 20, 40}} {
		got := atOuterSteps(api.Cadence{EverySteps: c.due, EveryS: float64(c.due), TookS: 3}, c.every)
		if got.EverySteps != c.want || c.due > 0 && got.EveryS != float64(c.want) || got.Text != fmt.Sprintf("one every %d steps, with an outer step", c.want) {
			t.Errorf("due every %d steps: %+v", c.due, got)
		}
	}
}

// TestTheCheckpointUnderWayIsTold: status names the step, since when, and whose stages are not stored and copied; and what the last one waited for.
func TestTheCheckpointUnderWayIsTold(t *testing.T) {
	stage := func(peer plan.PeerID, first int) plan.Placement {
		return plan.Placement{Peer: peer, Layers: plan.LayerRange{First: first, End: first + 1}}
	}
	state := consensus.State{
		Run:        &plan.RunSpec{Train: plan.TrainSpec{Steps: 50}},
		Plan:       plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Stages: []plan.Placement{stage("a", 0), stage("b", 1), stage("c", 2)}}}},
		Members:    []consensus.Member{{Peer: "a", Label: "desk"}, {Peer: "b", Label: "barn"}, {Peer: "c", Label: "cabin"}},
		Checkpoint: consensus.Checkpoint{Step: 40},
	}
	beats := gossip.NewTracker()
	says := func(c holders.Cadence) {
		c.EveryNanos, c.StepNanos, c.Why = 6e9, 2e9, holders.ForLines
		beats.Note(gossip.Heartbeat{Peer: "c", Generation: 3, Cadence: &c}, time.Now())
	}
	want := func(cadence, saving string) {
		t.Helper()
		c, s := cadenceOf(state, beats)
		if c == nil || c.Text != cadence {
			t.Errorf("%+v, want %q", c, cadence)
		}
		if s == nil && saving != "" || s != nil && s.Text != saving {
			t.Errorf("%+v, want %q", s, saving)
		}
	}
	every := "one every 3 steps (6 s), as often as lines and disks allow"
	says(holders.Cadence{})
	want(every, "")
	says(holders.Cadence{Saving: 51}) // after the run's end
	want(every, "")
	says(holders.Cadence{Saving: 43, SavingNanos: 3e9})
	want(every, "step 43, for 3 s: it waits until what is computed on desk, barn and cabin is stored and copied")
	state.Pending = []consensus.Checkpoint{{Step: 43, Layers: []consensus.LayerRef{{Layer: 0}, {Layer: 2}}}}
	want(every, "step 43, for 3 s: it waits until what is computed on barn is stored and copied")
	state.Checkpoint, state.Pending = consensus.Checkpoint{Step: 43}, nil
	says(holders.Cadence{Saving: 43, SavingNanos: 4e9, Late: 8, LateBy: "b"})
	want(every+"; before the last one was complete, 8 steps went by: what is computed on barn was the last to be stored and copied", "")
	says(holders.Cadence{SavingNanos: 5e9, Late: 8, LateBy: "whoever"})
	want(every+"; before the last one was complete, 8 steps went by", "")
}

// TestACheckpointWithoutRoomIsTold: that it is left out, and on whose disk space is missing, on each node; a later one that is under way is told as ever.
func TestACheckpointWithoutRoomIsTold(t *testing.T) {
	state := consensus.State{
		Run:        &plan.RunSpec{Train: plan.TrainSpec{Steps: 50}},
		Plan:       plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Layers: plan.LayerRange{End: 1}}}}}},
		Members:    []consensus.Member{{Peer: "a", Label: "desk"}, {Peer: "b", Label: "barn"}},
		Checkpoint: consensus.Checkpoint{Step: 40},
	}
	const text = "step 43 is left out: the disk of desk has no room for it. Free space there: the next one is tried"
	for _, c := range []struct {
		name   string
		of     plan.PeerID
		step   plan.Step
		asked  plan.Step
		saving plan.Step
		want   string
	}{
		{"none", "a", 0, 0, 0, ""},
		{"one before the newest", "a", 36, 0, 0, ""},
		{"one after the end", "a", 51, 0, 0, ""},
		{"of a node that the plan has no part for", "b", 43, 0, 0, ""},
		{"nothing is under way", "a", 43, 0, 0, text + " soon"},
		{"as long as nobody knows", "a", 43, 0, 43, text + " soon"},
		{"asked for", "a", 43, 10, 0, text},
		{"a later one is tried", "a", 43, 0, 45, "step 45: it waits until what is computed on desk is stored and copied"},
	} {
		beats := gossip.NewTracker()
		beats.Note(gossip.Heartbeat{Peer: c.of, Generation: 3, LeftOut: c.step}, time.Now())
		if c.saving > 0 {
			beats.Note(gossip.Heartbeat{Peer: "a", Generation: 3, LeftOut: c.step, Cadence: &holders.Cadence{Saving: c.saving}}, time.Now())
		}
		state.Run.Train.CheckpointEvery = c.asked
		_, s := cadenceOf(state, beats)
		if s == nil && c.want != "" || s != nil && s.Text != c.want {
			t.Errorf("%s: %+v, want %q", c.name, s, c.want)
		}
	}
}
