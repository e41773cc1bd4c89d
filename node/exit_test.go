package node

import (
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestWayOut(t *testing.T) {
	// a and b in the plan, c a spare; b coordinates. The run has 100 steps.
	base := func(checkpoint plan.Step, holders ...plan.PeerID) consensus.State {
		s := consensus.State{
			Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}},
			Plan: plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{
				Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}},
			}}},
			Checkpoint: consensus.Checkpoint{Step: checkpoint, Layers: []consensus.LayerRef{{Holders: holders}}},
		}
		for _, p := range []plan.PeerID{"a", "b", "c"} {
			s.Members = append(s.Members, consensus.Member{Peer: p, State: consensus.Active})
		}
		return s
	}
	with := func(s consensus.State, change func(*consensus.State)) consensus.State {
		change(&s)
		return s
	}
	set := func(i int, m consensus.MemberState) func(*consensus.State) {
		return func(s *consensus.State) { s.Members[i].State = m }
	}
	alone := func(s *consensus.State) {
		s.Members = s.Members[:1]
	}
	stop := func(s *consensus.State) { s.StopWanted = true }

	for _, c := range []struct {
		name string
		view exitView
		want exitVerdict
	}{
		{"nothing is wanted", exitView{State: base(50), Self: "a", Running: true, Newest: 60}, exitVerdict{}},
		{"a finished run is over for all", exitView{State: with(base(100), func(s *consensus.State) { s.Finished = true }), Self: "c"}, exitVerdict{Over: true}},
		{"the coordinator finishes", exitView{State: base(100), Self: "b", Completed: true, Newest: 100}, exitVerdict{Finish: true}},
		{"the others wait for it", exitView{State: base(100), Self: "a", Completed: true, Newest: 100}, exitVerdict{}},
		{"not before the last checkpoint", exitView{State: base(50), Self: "b", Completed: true, Newest: 100}, exitVerdict{}},
		{"a stop in the last step finishes all the same", exitView{State: with(base(100), stop), Self: "b", Completed: true, Newest: 100}, exitVerdict{Finish: true}},
		{"a stop waits for the step", exitView{State: with(base(50), stop), Self: "a", Running: true, Newest: 60}, exitVerdict{}},
		{"and for the checkpoint", exitView{State: with(base(50), stop), Self: "a", Newest: 60}, exitVerdict{}},
		{"then it is over", exitView{State: with(base(60), stop), Self: "a", Newest: 60}, exitVerdict{Over: true}},
		{"a stalled stop keeps what there is", exitView{State: with(base(50), stop), Self: "a", Newest: 60, Stalled: true}, exitVerdict{Over: true}},
		{"but not what is being saved", exitView{State: with(base(50), stop), Self: "a", Newest: 60, Stalled: true, Salvaging: true}, exitVerdict{}},
		{"leaving drains", exitView{State: base(50), Self: "a", Leaving: true, Running: true}, exitVerdict{Drain: true}},
		{"and waits for the next plan", exitView{State: with(base(50, "b"), set(0, consensus.Draining)), Self: "a", Leaving: true, Running: true}, exitVerdict{}},
		{"a drained spare leaves", exitView{State: with(base(50, "b", "c"), set(2, consensus.Draining)), Self: "c", Leaving: true}, exitVerdict{Over: true, Left: true}},
		{"not with the only copy", exitView{State: with(base(50, "c"), set(2, consensus.Draining)), Self: "c", Leaving: true}, exitVerdict{}},
		{"a copy of the dead is none", exitView{State: with(with(base(50, "c", "b"), set(2, consensus.Draining)), set(1, consensus.Gone)), Self: "c", Leaving: true}, exitVerdict{}},
		{"alone, leaving stops the run", exitView{State: with(base(50), alone), Self: "a", Leaving: true, Running: true}, exitVerdict{Stop: true}},
		{"when all leave at once, that is a stop", exitView{State: with(with(with(base(50), set(0, consensus.Draining)), set(1, consensus.Draining)), set(2, consensus.Draining)), Self: "a", Leaving: true, Running: true}, exitVerdict{Stop: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := wayOut(c.view); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestASalvageIsUnderWay: until its step is saved, while all are there who have yet to save a part of it, say that they can, and have the time.
func TestASalvageIsUnderWay(t *testing.T) {
	begin := time.Unix(1000, 0)
	pipe := plan.Pipeline{Stages: []plan.Placement{{Peer: "a", Layers: plan.LayerRange{End: 1}}, {Peer: "b", Layers: plan.LayerRange{First: 1, End: 2}}}}
	first, second := plan.LayerRange{End: 1}, plan.LayerRange{First: 1, End: 2}
	salvage := &consensus.Salvage{Generation: 3, Step: 9, Parts: []consensus.SalvagePart{{By: "a", Layers: first}, {By: "b", Stage: 1, Layers: second}}}
	replay := &consensus.Salvage{Generation: 3, Step: 9, Parts: []consensus.SalvagePart{{By: "b", From: 4, Layers: first}, {By: "b", Stage: 1, Layers: second}}}
	has := func(stage plan.Stage) []gossip.RetainedStage { return []gossip.RetainedStage{{Stage: stage, Step: 9}} }
	for name, c := range map[string]struct {
		of     *consensus.Salvage
		saved  plan.Step
		state  consensus.MemberState // of b
		silent time.Duration         // b is
		heard  gossip.Heartbeat      // of b
		stored []int                 // layers
		after  time.Duration
		want   bool
	}{
		"none is wanted":         {nil, 4, consensus.Active, 0, gossip.Heartbeat{}, nil, 0, false},
		"under way":              {salvage, 4, consensus.Active, leader.DeadAfter, gossip.Heartbeat{}, nil, 0, true},
		"done":                   {salvage, 9, consensus.Active, 0, gossip.Heartbeat{}, nil, 0, false},
		"without b":              {salvage, 4, consensus.Gone, 0, gossip.Heartbeat{}, nil, 0, false},
		"b has saved its part":   {salvage, 4, consensus.Gone, 0, gossip.Heartbeat{}, []int{1}, 0, true},
		"b is silent":            {salvage, 4, consensus.Active, leader.DeadAfter + time.Second, gossip.Heartbeat{}, nil, 0, false},
		"a replay":               {replay, 4, consensus.Active, 0, gossip.Heartbeat{}, nil, 0, true},
		"a replay in vain":       {replay, 4, consensus.Active, 0, gossip.Heartbeat{NoReplay: true}, nil, 0, false},
		"none by b":              {salvage, 4, consensus.Active, 0, gossip.Heartbeat{NoReplay: true}, nil, 0, true},
		"b has its state":        {salvage, 4, consensus.Active, 0, gossip.Heartbeat{Stalled: 3, Retained: has(1)}, nil, 0, true},
		"b has lost it":          {salvage, 4, consensus.Active, 0, gossip.Heartbeat{Stalled: 3, Retained: has(0)}, nil, 0, false},
		"it had saved it before": {salvage, 4, consensus.Active, 0, gossip.Heartbeat{Stalled: 3}, []int{1}, 0, true},
		"after a minute":         {salvage, 4, consensus.Active, 0, gossip.Heartbeat{Stalled: 3, Retained: has(1)}, nil, time.Minute, true},
	} {
		heard, asked := gossip.NewTracker(), begin.Add(c.silent)
		now := asked.Add(c.after)
		c.heard.Peer = "b"
		heard.Note(gossip.Heartbeat{Peer: "a"}, now)
		heard.Note(c.heard, now.Add(-c.silent))
		state := consensus.State{Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{pipe}}, Salvage: c.of, Checkpoint: consensus.Checkpoint{Step: c.saved}, Members: []consensus.Member{{Peer: "a", State: consensus.Active}, {Peer: "b", State: c.state}}}
		pending := consensus.Checkpoint{Step: 9}
		for _, l := range c.stored {
			pending.Layers = append(pending.Layers, consensus.LayerRef{Layer: l})
		}
		state.Pending = []consensus.Checkpoint{pending}
		if got := salvaging(heard, state, begin, now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestAStopWaitsForNoSalvageInVain: once the time for a salvage is over the stop waits for what others may save of it, and where nobody
// can it goes on at once.
func TestAStopWaitsForNoSalvageInVain(t *testing.T) {
	stage := func(p plan.PeerID, from, to int) plan.Placement {
		return plan.Placement{Peer: p, Layers: plan.LayerRange{First: from, End: to}}
	}
	line := plan.Pipeline{Stages: []plan.Placement{stage("a", 0, 1), stage("b", 1, 3)}}
	two := []plan.Pipeline{line, {Stages: []plan.Placement{stage("c", 0, 3)}}}
	for name, c := range map[string]struct {
		replicas []plan.Pipeline
		patience time.Duration
		waits    time.Duration // after the time for the salvage
	}{
		"nobody else has the layers":          {[]plan.Pipeline{line}, salvageTimeout, 0},
		"another replica has them":            {two, salvageTimeout, time.Second + salvageTimeout},
		"nobody else has them on a slow disk": {[]plan.Pipeline{line}, 75 * time.Second, 0},
		"another replica does on a slow disk": {two, 30 * time.Second, time.Second + 30*time.Second},
	} {
		state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, StopWanted: true, Checkpoint: consensus.Checkpoint{Step: 4}}
		state.Run.Model.Blocks = 1
		state.Plan = plan.Plan{Generation: 3, Replicas: c.replicas}
		state.Salvage = &consensus.Salvage{Generation: 3, Step: 9, Parts: []consensus.SalvagePart{
			{By: "a", Layers: plan.LayerRange{First: 0, End: 1}}, {By: "b", Stage: 1, Layers: plan.LayerRange{First: 1, End: 3}},
		}}
		state.Pending = []consensus.Checkpoint{{Step: 9, Layers: []consensus.LayerRef{{Layer: 0}}}} // of a, and b never saves
		for _, p := range state.Plan.Peers() {
			state.Members = append(state.Members, consensus.Member{Peer: p, State: consensus.Active})
		}
		heard, asked := gossip.NewTracker(), time.Unix(1000, 0)
		e, waited := exit{since: asked}, time.Duration(0)
		for at := time.Duration(0); at < leaveTimeout; at += time.Second {
			for r, pipe := range state.Plan.Replicas {
				for s, place := range pipe.Stages {
					left := []gossip.RetainedStage{{Replica: plan.Replica(r), Stage: plan.Stage(s), Step: 9}}
					heard.Note(gossip.Heartbeat{Peer: place.Peer, Generation: 3, Stalled: 3, Retained: left}, asked.Add(at))
				}
			}
			if e.saves(heard, exitView{State: state, Stalled: true, Newest: 9, Patience: c.patience}, asked.Add(at)) {
				waited = at
			}
		}
		if want := leader.SalvagePatience(heard, state, c.patience) + c.waits; waited != want {
			t.Errorf("%s: it waits %v, want %v", name, waited, want)
		}
	}
}

// A node whose workers are done waits for the checkpoint only while the others of the plan can make it.
func TestPlanGivenUp(t *testing.T) {
	pipe := plan.Pipeline{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}}}
	state := consensus.State{Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{pipe}}}
	begin := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		self  plan.PeerID
		heard gossip.Heartbeat // of b, at begin
		after time.Duration
		want  bool
	}{
		{"b saves", "a", gossip.Heartbeat{}, time.Second, false},
		{"b gave up", "a", gossip.Heartbeat{Stalled: 3}, time.Second, true},
		{"b gave the plan before up", "a", gossip.Heartbeat{Stalled: 2}, time.Second, false},
		{"what this node says of itself does not count", "b", gossip.Heartbeat{Stalled: 3}, time.Second, false},
		{"b may be away for as long as a link", "a", gossip.Heartbeat{}, leader.DeadAfter + time.Second, false},
		{"but no longer", "a", gossip.Heartbeat{}, leader.UnreachableAfter + time.Second, true},
		{"a spare does not wait that long", "c", gossip.Heartbeat{}, leader.DeadAfter + time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			heard := gossip.NewTracker()
			c.heard.Peer = "b"
			heard.Note(c.heard, begin)
			if got := planGivenUp(heard, state, c.self, begin, begin.Add(c.after)); got != c.want {
				t.Errorf("given up: %v", got)
			}
		})
	}
}
