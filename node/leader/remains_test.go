package leader

import (
	"slices"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhoRestoresIsKnownWhetherThePlanIsBrokenOrNot: until it says that it cannot, of this checkpoint; the time counts on whoever it is.
func TestWhoRestoresIsKnownWhetherThePlanIsBrokenOrNot(t *testing.T) {
	layer := func(l int, holders ...plan.PeerID) consensus.LayerRef {
		return consensus.LayerRef{Layer: l, SizeBytes: 1, Holders: holders}
	}
	state := consensus.State{
		Run:        &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}},
		Members:    []consensus.Member{{Peer: "a", State: consensus.Active}, {Peer: "b", State: consensus.Gone, Reason: consensus.ReasonLeft}, {Peer: "c", State: consensus.Active}},
		Checkpoint: consensus.Checkpoint{Step: 30, Generation: 2, Layers: []consensus.LayerRef{layer(0, "a"), layer(1, "b"), layer(2, "c")}},
		Older:      []consensus.Checkpoint{{Step: 20, Generation: 2, Layers: []consensus.LayerRef{layer(0, "a"), layer(1, "b", "c"), layer(2, "c")}}},
		Plan:       plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "c"}}}}},
	}
	whole := state
	whole.Members = []consensus.Member{state.Members[0], {Peer: "b", State: consensus.Active}, state.Members[2]}
	now := time.Now()
	w := salvageWatch{beats: gossip.NewTracker()}
	for _, c := range []struct {
		name   string
		state  consensus.State
		broken bool
		cannot plan.Step
		by     plan.PeerID
		since  time.Duration
	}{
		{"nothing is lost", whole, false, 0, "", 0},
		{"who had a layer has left", state, false, 0, "c", 0},
		{"the plan breaks", state, true, 0, "c", time.Second},
		{"another checkpoint could not be restored", state, true, 20, "c", 2 * time.Second},
		{"this one cannot", state, true, 30, "a", 3 * time.Second},
		{"nothing is lost any more", whole, true, 0, "", 0},
		{"it is lost again", state, false, 0, "c", 0},
	} {
		w.beats.Note(gossip.Heartbeat{Peer: "c", Generation: 3, NoRestore: c.cannot}, now)
		if r := w.look(moment{state: c.state, now: now}, 30, c.broken); r.Restorer != c.by || r.RestoringFor != c.since {
			t.Errorf("%s: %q restores, lost for %v, want %q and %v", c.name, r.Restorer, r.RestoringFor, c.by, c.since)
		}
		now = now.Add(time.Second)
	}
}

// TestARestorationIsWaitedForWithABound: whatever step the coordinator says it is at, and however long the run and its steps are.
func TestARestorationIsWaitedForWithABound(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name       string
		said, last plan.Step
		each, want time.Duration
	}{
		{"as long as the steps since take", 30, 100, time.Second, 20 * time.Second},
		{"not steps that the run does not have", 1 << 33, 100, time.Second, 90 * time.Second},
		{"ten minutes of them", 1 << 33, 1_000_000, time.Second, 10 * time.Minute},
		{"also where they would be too many nanoseconds", 1 << 40, 1_000_000_000, 13 * 24 * time.Hour, 10 * time.Minute},
	} {
		w := salvageWatch{beats: gossip.NewTracker()}
		state := consensus.State{
			Run:        &plan.RunSpec{Train: plan.TrainSpec{Steps: c.last}},
			Plan:       plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}}}}},
			Checkpoint: consensus.Checkpoint{Step: 20}, Older: []consensus.Checkpoint{{Step: 10}},
		}
		w.beats.Note(gossip.Heartbeat{Peer: "a", Generation: 3, Step: c.said, StepNanos: int64(c.each)}, now)
		r := w.look(moment{state: state, now: now}, w.beats.Newest(state.Plan, now), false)
		r.Restorer, r.RestoringFor = "a", mostRedo
		waits := r.restoring()
		r.RestoringFor++
		if r.RedoTime != c.want || waits != (c.want == mostRedo) || r.restoring() {
			t.Errorf("%s: %v, want %v; waited for ten minutes: %v, longer: %v", c.name, r.RedoTime, c.want, waits, r.restoring())
		}
	}
}

// TestAReplayIsWaitedForWithABound: whichever step a member says that it has in memory.
func TestAReplayIsWaitedForWithABound(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		step plan.Step
		each time.Duration
		want time.Duration
	}{
		{30, time.Second, 10 * time.Second},
		{1_000_000, time.Second, mostRedo},
		{1 << 40, time.Hour, mostRedo},
	} {
		w := salvageWatch{beats: gossip.NewTracker()}
		state := consensus.State{
			Run:        &plan.RunSpec{Train: plan.TrainSpec{Steps: 1 << 40}},
			Plan:       plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}}}}},
			Checkpoint: consensus.Checkpoint{Step: 20},
			Salvage:    &consensus.Salvage{Generation: 3, Step: c.step, Parts: []consensus.SalvagePart{{By: "a"}, {Stage: 1, By: "a", From: 20}}},
		}
		w.beats.Note(gossip.Heartbeat{Peer: "a", Generation: 3, Step: 30, StepNanos: int64(c.each)}, now)
		if r := w.look(moment{state: state, now: now}, 30, true); r.ReplayPatience != c.want {
			t.Errorf("up to step %d, steps of %v: %v, want %v", c.step, c.each, r.ReplayPatience, c.want)
		}
	}
}

// TestNobodyGoesBackToWhatNobodyHas: a run goes back to an older checkpoint with a holder of each layer, or stays at the newest one, which is
// there again once a holder is back.
func TestNobodyGoesBackToWhatNobodyHas(t *testing.T) {
	held := func(step plan.Step, holders ...plan.PeerID) consensus.Checkpoint {
		return consensus.Checkpoint{Step: step, Layers: []consensus.LayerRef{{Layer: 0, Holders: holders}, {Layer: 1, Holders: []plan.PeerID{"b"}}}}
	}
	for _, c := range []struct {
		name  string
		older []consensus.Checkpoint
		want  plan.Step
	}{
		{"none is kept", nil, 0},
		{"the newest has all layers", []consensus.Checkpoint{held(20, "b"), held(10, "b")}, 20},
		{"an older one has", []consensus.Checkpoint{held(20, "a"), held(10, "a", "b")}, 10},
		{"none has", []consensus.Checkpoint{held(20, "a"), held(10, "a")}, 0},
	} {
		state := consensus.State{
			Members: []consensus.Member{{Peer: "a", State: consensus.Gone}, {Peer: "b", State: consensus.Active}},
			Older:   c.older, Checkpoint: held(30, "a"),
		}
		if got := fallback(state); got != c.want {
			t.Errorf("%s: back to step %d, want %d", c.name, got, c.want)
		}
	}
}

// TestWhoLacksALayerIsNoHolderOfIt: its word counts on itself, of this plan and this layer, and where another one is to come back.
func TestWhoLacksALayerIsNoHolderOfIt(t *testing.T) {
	zero, one := 0, 1
	beat := func(layer *int, of plan.Generation) gossip.Heartbeat {
		return gossip.Heartbeat{Peer: "a", Generation: 3, Stalled: of, Lacks: layer != nil, LacksLayer: layer}
	}
	for _, c := range []struct {
		name    string
		beat    gossip.Heartbeat
		holders []plan.PeerID
		waits   []plan.PeerID
	}{
		{"it gave up for something else", beat(nil, 3), []plan.PeerID{"a", "b"}, nil},
		{"the other holder is gone", beat(&zero, 3), []plan.PeerID{"a", "b"}, []plan.PeerID{"b"}},
		{"of another layer", beat(&one, 3), []plan.PeerID{"a", "b"}, nil},
		{"of an earlier plan", beat(&zero, 2), []plan.PeerID{"a", "b"}, nil},
		{"another holder is there", beat(&zero, 3), []plan.PeerID{"a", "b", "c"}, nil},
		{"nobody else had it", beat(&zero, 3), []plan.PeerID{"a"}, nil},
	} {
		state := consensus.State{
			Run:        &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}},
			Members:    []consensus.Member{{Peer: "a", State: consensus.Active}, {Peer: "b", State: consensus.Gone}, {Peer: "c", State: consensus.Active}},
			Checkpoint: consensus.Checkpoint{Step: 30, Generation: 2, Layers: []consensus.LayerRef{{Layer: 0, SizeBytes: 1, Holders: c.holders}}},
			Plan:       plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "c"}}}}},
		}
		w := salvageWatch{beats: gossip.NewTracker()}
		w.beats.Note(c.beat, time.Unix(1000, 0))
		got := w.look(moment{state: state, now: time.Unix(1001, 0)}, 30, true).Unheld
		if (got == nil) != (c.waits == nil) || got != nil && !slices.Equal(got.Holders, c.waits) {
			t.Errorf("%s: %+v, want %v", c.name, got, c.waits)
		}
	}
}

// TestWhoDoesNotSaveIsAskedNoMore: what a member offers and does not save in time the others save, as far as they have it or can compute it again,
// until the next generation. In time is also who has a slow disk report it.
func TestWhoDoesNotSaveIsAskedNoMore(t *testing.T) {
	const proposal = 75 * time.Second
	line := plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Micros: 2}}}
	for i, p := range []plan.PeerID{"a", "b", "c"} {
		line.Replicas[0].Stages = append(line.Replicas[0].Stages, plan.Placement{Peer: p, Device: "cpu", Holder: "a", Layers: plan.LayerRange{First: 2 * i, End: 2*i + 2}})
	}
	for name, c := range map[string]struct {
		plan        plan.Plan
		idle        plan.PeerID
		first, next string
	}{
		"another replica has it": {twoByTwo(), "c", "37; 0/0 [0,1) a; 1/0 [1,2) c; 1/1 [2,3) d; 0/1 [3,5) b; 1/1 [5,6) d", "37; 0/0 [0,2) a; 1/1 [2,3) d; 0/1 [3,5) b; 1/1 [5,6) d"},
		"it is replayed":         {line, "b", "37; 0/0 [0,2) a; 0/1 [2,4) b; 0/2 [4,6) c", "37; 0/0 [0,2) a; 0/1 [2,4) a from 30; 0/2 [4,6) c"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Unix(1000, 0)
			w := salvageWatch{beats: gossip.NewTracker()}
			state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Plan: c.plan, Checkpoint: consensus.Checkpoint{Step: 30}}
			state.Run.Model.Blocks, state.Run.Model.UntiedHead = 4, true
			for _, p := range c.plan.Peers() {
				state.Members = append(state.Members, consensus.Member{Peer: p, State: consensus.Active})
				b := gossip.Heartbeat{Peer: p, Generation: 3, Stalled: 3, Kept: 31}
				for _, id := range stagesOf(c.plan, p) {
					b.Retained = append(b.Retained, gossip.RetainedStage{Replica: id.Replica, Stage: id.Stage, Step: 37})
				}
				w.beats.Note(b, begin)
			}
			chosen := func(after time.Duration) (consensus.Salvage, string) {
				r := w.look(moment{state: state, now: begin.Add(after), patience: proposal}, 37, true)
				s, ok := salvageOf(c.plan, r.Layers, 30, r.Offers)
				return s, told(s, ok)
			}
			first, said := chosen(0)
			if said != c.first {
				t.Fatalf("at first %s, want %s", said, c.first)
			}
			state.Salvage, state.Pending = &first, []consensus.Checkpoint{{Step: 37}}
			for _, p := range first.Parts {
				for l := p.Layers.First; l < p.Layers.End && p.By != c.idle; l++ {
					state.Pending[0].Layers = append(state.Pending[0].Layers, consensus.LayerRef{Layer: l})
				}
			}
			chosen(0)
			patience := SalvagePatience(w.beats, state, proposal)
			if patience < proposal {
				t.Errorf("a report that takes %v is late after %v", proposal, patience)
			}
			if _, said := chosen(patience); said != c.first {
				t.Errorf("in time %s, want %s", said, c.first)
			}
			next, said := chosen(patience + 1)
			if said != c.next {
				t.Errorf("after it %s, want %s", said, c.next)
			}
			state.Salvage = &next
			if _, said := chosen(patience + 2); said != c.next {
				t.Errorf("while others save it %s, want %s", said, c.next)
			}
			other, saved := salvageWatch{beats: w.beats}, state
			before := other.look(moment{state: saved, now: begin, patience: proposal}, 37, true).Offers
			saved.Checkpoint.Step, saved.Pending = 37, nil
			if after := other.look(moment{state: saved, now: begin.Add(patience + 1), patience: proposal}, 37, true).Offers; len(after) < len(before) {
				t.Errorf("once all is saved the offers %+v are left of %+v", after, before)
			}
			state.Plan.Generation, state.Salvage = 4, nil
			for _, p := range c.plan.Peers() {
				b, _ := w.beats.Last(p)
				b.Generation, b.Stalled = 4, 4
				w.beats.Note(b, begin)
			}
			if _, said := chosen(patience + 3); said != c.first {
				t.Errorf("in the next generation %s, want %s", said, c.first)
			}
		})
	}
}
