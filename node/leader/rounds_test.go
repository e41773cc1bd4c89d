package leader

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader/blame"
	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// meeters is a plan of two replicas with local steps, the second one of two members.
var meeters = plan.Plan{
	Generation: 3, Start: 30, Local: &plan.Local{Rounds: plan.Rounds{Every: 10, Fragments: 1}, Codec: "int8"},
	Replicas: []plan.Pipeline{
		{Micros: 2, Stages: []plan.Placement{{Peer: "a"}}},
		{FirstMicro: 2, Micros: 2, Stages: []plan.Placement{{Peer: "b"}, {Peer: "c"}}},
	},
}

// TestDecideOnRounds: what is proposed comes first, also where the run ends. While the living may make an outer step without who is gone, or save it, no
// plan is made; then one is.
func TestDecideOnRounds(t *testing.T) {
	out := consensus.LeaveOut{Generation: 3, From: 30, Replica: 1, Reason: "c is gone"}
	ended := alive("a", "b", "c")
	ended[2].Ended = true
	stalled := stall{Stall: gossip.Stall{For: time.Hour, Why: "lost", By: []plan.PeerID{"b"}}, Patience: time.Second}
	decisions{
		{"rounds go on", view{Plan: meeters, Members: alive("a", "b", "c"), meeting: meeting{Meets: true}}, verdict{}},
		{"who is lost is left out", view{Plan: meeters, Members: ended, meeting: meeting{Propose: out, Meets: true}}, verdict{Propose: out}},
		{"also where the run ends", view{Plan: meeters, Members: ended, Ending: true, meeting: meeting{Propose: out, Meets: true}}, verdict{Propose: out}},
		{"and then gone", view{Plan: meeters, Members: ended, meeting: meeting{Meets: true}}, verdict{Gone: "c", Ended: true, Why: "its process has ended"}},
		{"the living make their outer step", view{Plan: meeters, Members: alive("a", "b"), meeting: meeting{Meets: true}}, verdict{Prepare: true, Why: "c is gone"}},
		{"also where members gave the plan up", view{Plan: meeters, Members: alive("a", "b", "c"), Stall: stalled, meeting: meeting{Meets: true}}, verdict{}},
		{"a pause waits for its round", view{Plan: meeters, Members: alive("a", "b", "c"), wish: wish{Better: "faster"}, pause: pause{Paused: true, PausedFor: 2, SavePatience: 1}, meeting: meeting{Meets: true}}, verdict{}},
		{"it is saved", view{Plan: meeters, Members: alive("a", "b"), meeting: meeting{Saving: true}}, verdict{Prepare: true, Why: "c is gone"}},
		{"whoever is there", view{Plan: meeters, Members: alive("a", "b", "c"), meeting: meeting{Saving: true}}, verdict{}},
		{"then a plan follows", view{Plan: meeters, Members: alive("a", "b"), Checkpoint: 40, meeting: meeting{Over: "the plan has ended"}}, verdict{Plan: true, Why: "c is gone"}},
		{"with who was slow", view{Plan: meeters, Members: alive("a", "b", "c"), Checkpoint: 40, meeting: meeting{Over: "the plan has ended"}}, verdict{Plan: true, Why: "the plan has ended"}},
		{"whoever gave up", view{Plan: meeters, Members: alive("a", "b", "c"), Stall: stalled, Checkpoint: 40, meeting: meeting{Over: "the plan has ended"}}, verdict{Plan: true, Why: "the plan has ended"}},
		{"a pause has its own reason", view{Plan: meeters, Members: alive("a", "b", "c"), Checkpoint: 40, wish: wish{Better: "faster"}, pause: pause{Paused: true, Saved: true}, meeting: meeting{Over: "the plan has ended"}}, verdict{Plan: true, Why: "faster"}},
		{"a lost round goes back", view{Plan: meeters, Members: alive("a", "b", "c"), meeting: meeting{Lost: "too few agree"}}, verdict{Plan: true, Why: "too few agree"}},
		{"with who is left", view{Plan: meeters, Members: alive("a", "b"), meeting: meeting{Lost: "too few are left"}}, verdict{Plan: true, Why: "c is gone"}},
		{"nothing is salvaged of it", view{Plan: meeters, Members: alive("a", "b"), remains: remains{Layers: 2, Offers: []offer{{By: "b", Step: 33}}}, meeting: meeting{Meets: true}}, verdict{Prepare: true, Why: "c is gone"}},
		{"nor of a run that ends", view{Plan: meeters, Members: alive("a", "b"), Ending: true, meeting: meeting{Over: "the plan has ended"}}, verdict{}},
	}.check(t)
}

// TestWhichReplicasAreUnable: those with a member that does not carry the plan out.
func TestWhichReplicasAreUnable(t *testing.T) {
	gone, ended, again := alive("a", "b"), alive("a", "b", "c"), reborn(alive("a", "b", "c"))
	ended[0].Ended = true
	for _, c := range []struct {
		name string
		view view
		want map[plan.Replica]string
	}{
		{"all are there", view{Members: alive("a", "b", "c")}, map[plan.Replica]string{}},
		{"gone", view{Members: gone}, map[plan.Replica]string{1: "c is gone"}},
		{"ended", view{Members: ended}, map[plan.Replica]string{0: "a is gone: its process has ended"}},
		{"started again", view{Members: again}, map[plan.Replica]string{1: "b was started again"}},
		{"given up", view{Members: alive("a", "b", "c"), Stall: stall{Stall: gossip.Stall{For: 1, By: []plan.PeerID{"c", "a"}}}}, map[plan.Replica]string{0: "a has given the plan up", 1: "c has given the plan up"}},
	} {
		c.view.Plan = meeters
		if got := unableOf(c.view); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestWhoIsDeafCostsOthersNoRound: the leader sees that a member has not begun with the plan. It is found and left out as in other plans; where replicas make local steps
// the others' round is not given up for it, but ends without its replica.
func TestWhoIsDeafCostsOthersNoRound(t *testing.T) {
	for _, local := range []bool{false, true} {
		s := consensus.State{Run: &plan.RunSpec{}, Plan: meeters, PlanEpoch: 7}
		if !local {
			s.Plan.Local = nil
		}
		beats, now := gossip.NewTracker(), time.Unix(1000, 0)
		for _, p := range []plan.PeerID{"a", "b", "c"} {
			s.Members = append(s.Members, consensus.Member{Peer: p, State: consensus.Active, Since: 2})
		}
		watch := deafWatch{beats: beats}
		watch.look(s, now)
		now = now.Add(deafAfter)
		for p, g := range map[plan.PeerID]plan.Generation{"a": 3, "b": 2, "c": 3} {
			beats.Note(gossip.Heartbeat{Peer: p, Generation: g, Inner: []gossip.InnerStep{{Step: 33, Nanos: 1e9}}}, now)
		}
		said := watch.look(s, now)
		if len(said) != 1 || said[0].Accused != "b" {
			t.Fatalf("local %t: accused are %+v", local, said)
		}
		r, ok := view{Plan: s.Plan, Members: alive("a", "b", "c"), charges: charges{Trial: blame.Trial{Accusations: said, Name: func(p plan.PeerID) string { return string(p) }}}}.fault()
		if !ok || r.Rule.Peer != "b" || !r.Rule.Out {
			t.Fatalf("local %t: %+v", local, r)
		}
		b := r.Rule.Blame
		b.Generation, b.Until = 3, now.Add(time.Minute).Unix()
		s.Blames = append(s.Blames, b)
		if ended := endedByRuling(s); (ended == "") != local {
			t.Errorf("local %t: the generation ends: %q", local, ended)
		}
		if unable := withBlamed(s, nil); len(unable) != 1 || !strings.Contains(unable[1], "it has not begun with generation 3") {
			t.Errorf("replicas that are left out of the round: %v", unable)
		}
	}
}

// ownOf returns what a replica has for itself of so many layers, which a peer holds.
func ownOf(r plan.Replica, layers int, by plan.PeerID) consensus.OwnState {
	o := consensus.OwnState{Replica: r}
	for l := range layers {
		o.Layers = append(o.Layers, consensus.LayerRef{Layer: l, SizeBytes: 1, Holders: []plan.PeerID{by}})
	}
	return o
}

// TestPlansBeginWithTheNewestCheckpoint: a search ahead knew an older one, with the samples and the states of replicas of before.
func TestPlansBeginWithTheNewestCheckpoint(t *testing.T) {
	run := plan.RunSpec{Model: meetersModel, Train: plan.TrainSpec{Micros: 4, Steps: 100, Sync: plan.SyncRule{Local: true}}}
	layers := run.Model.Layers()
	state := consensus.State{
		Run: &run, Members: []consensus.Member{{Peer: "a", State: consensus.Active}, {Peer: "b", State: consensus.Active}},
		Checkpoint: consensus.Checkpoint{Step: 40, Stream: plan.Stream{Fresh: 168}, Own: []consensus.OwnState{ownOf(0, layers, "b"), ownOf(1, layers, "a")}},
	}
	ahead := meeters
	ahead.Replicas = slices.Clone(meeters.Replicas)
	for r := range ahead.Replicas {
		ahead.Replicas[r].Own = &plan.Own{Replica: plan.Replica(r), Step: 30}
		for s := range ahead.Replicas[r].Stages {
			ahead.Replicas[r].Stages = slices.Clone(ahead.Replicas[r].Stages)
			ahead.Replicas[r].Stages[s].Layers.End = layers
		}
	}
	before := ahead.Encode()
	p := together(state, ahead)
	if p.Start != 40 || p.Stream.Fresh != 168 || *p.Replicas[0].Own != (plan.Own{Replica: 1, Step: 40}) || *p.Replicas[1].Own != (plan.Own{Replica: 0, Step: 40}) {
		t.Errorf("from step %d with %+v, with the states %+v and %+v", p.Start, p.Stream, p.Replicas[0].Own, p.Replicas[1].Own)
	}
	if lines := ownWords(state, p); len(lines) != 0 {
		t.Errorf("nothing is lost: %q", lines)
	}
	leaves := state
	leaves.Members = []consensus.Member{{Peer: "a", State: consensus.Draining}, {Peer: "b", State: consensus.Active}}
	p = together(leaves, ahead)
	if *p.Replicas[1].Own != (plan.Own{Replica: 0, Step: 40}) || *p.Replicas[0].Own != (plan.Own{Replica: 0, Step: 40, Copied: true}) {
		t.Errorf("where one leaves with the states %+v and %+v", p.Replicas[0].Own, p.Replicas[1].Own)
	}
	if got := strings.Join(ownWords(leaves, p), "; "); got != "what replica 1 had for itself at step 40, the state of its optimizer and what its messages had left, goes on in no replica; replica 0 begins with a copy of the state of replica 0's optimizer at step 40" {
		t.Errorf("%q", got)
	}
	leaves.Members[1].State = consensus.Draining
	if p := together(leaves, ahead); p.Replicas[0].Own.Copied || p.Replicas[1].Own.Copied {
		t.Errorf("where all leave with the states %+v and %+v", p.Replicas[0].Own, p.Replicas[1].Own)
	}
	state.Checkpoint.Own = nil
	if p := together(state, ahead); p.Replicas[0].Own != nil || p.Replicas[1].Own != nil {
		t.Errorf("with the states %+v and %+v, where there are none", p.Replicas[0].Own, p.Replicas[1].Own)
	}
	if !bytes.Equal(before, ahead.Encode()) {
		t.Error("the plan was changed in its place")
	}
}

var meetersModel = model.Config{Vocab: 64, Context: 16, Blocks: 2, Heads: 1, Channels: 16}

// TestTheLeaderSeesRounds: what members say of their replicas, and how a plan has ended.
func TestTheLeaderSeesRounds(t *testing.T) {
	run := plan.RunSpec{Model: meetersModel, Train: plan.TrainSpec{Micros: 4, MicroBatch: 1, Steps: 100}}
	word := func(from, by plan.PeerID) gossip.Heartbeat {
		replica := map[plan.PeerID]plan.Replica{"a": 0, "c": 1}[by]
		return gossip.Heartbeat{Peer: from, Generation: 3, HandedIn: []gossip.HandedIn{{Generation: 3, From: 30, Replica: replica, Steps: 10}}}
	}
	state := consensus.State{Run: &run, Plan: meeters, Round: rounds.First(run, meeters), Checkpoint: consensus.Checkpoint{Step: 30}}
	for _, c := range []struct {
		name    string
		said    gossip.Heartbeat
		change  func(*consensus.State)
		unable  map[plan.Replica]string
		after   time.Duration
		want    meeting // first, and after that time
		changes meeting
	}{
		{"nobody has handed in", gossip.Heartbeat{}, func(*consensus.State) {}, nil, time.Hour, meeting{Meets: true}, meeting{Meets: true}},
		{"one has", word("c", "c"), func(*consensus.State) {}, nil, 5 * time.Second, meeting{Meets: true}, meeting{Meets: true, Propose: consensus.CloseRound{Generation: 3, From: 30}}},
		{"another says so", word("b", "c"), func(*consensus.State) {}, nil, 5 * time.Second, meeting{Meets: true}, meeting{Meets: true}},
		{"one is lost", gossip.Heartbeat{}, func(*consensus.State) {}, map[plan.Replica]string{1: "c is gone"}, 0, meeting{Meets: true, Propose: consensus.LeaveOut{Generation: 3, From: 30, Replica: 1, Reason: "c is gone"}}, meeting{Meets: true, Propose: consensus.LeaveOut{Generation: 3, From: 30, Replica: 1, Reason: "c is gone"}}},
		{"all are lost", gossip.Heartbeat{}, func(s *consensus.State) {
			next, _ := s.Round.LeaveOut(s.Plan, rounds.LeftOut{Replica: 1})
			s.Round = &next
		}, map[plan.Replica]string{0: "a is gone", 1: "c is gone"}, 0, meeting{Lost: "the round after step 30 cannot end: too few replicas are left, or agree"}, meeting{Lost: "the round after step 30 cannot end: too few replicas are left, or agree"}},
		{"the last one is being saved", gossip.Heartbeat{}, func(s *consensus.State) {
			s.Round, s.Merged = nil, &plan.Merged{Generation: 3, From: 30, To: 40, Parts: []plan.Part{{Steps: 10}, {}}, Last: true}
		}, map[plan.Replica]string{1: "c is gone"}, leastSavePatience + 1, meeting{Saving: true}, meeting{Lost: "the outer step of step 40 was not saved"}},
		{"nobody saves it", gossip.Heartbeat{}, func(s *consensus.State) {
			s.Round, s.Merged = nil, &plan.Merged{Generation: 3, From: 30, To: 40, Parts: []plan.Part{{Steps: 10}, {}}, Last: true}
		}, map[plan.Replica]string{0: "a is gone"}, 0, meeting{Lost: "the outer step of step 40 was not saved"}, meeting{Lost: "the outer step of step 40 was not saved"}},
		{"it is saved", gossip.Heartbeat{}, func(s *consensus.State) {
			s.Round, s.Merged = nil, &plan.Merged{Generation: 3, From: 30, To: 40, Parts: []plan.Part{{Steps: 10}, {}}, Last: true}
			s.Checkpoint = consensus.Checkpoint{Step: 40, Own: []consensus.OwnState{ownOf(0, 4, "a")}}
		}, nil, 0, meeting{Over: "replica 1 had no part in the outer step of step 40"}, meeting{Over: "replica 1 had no part in the outer step of step 40"}},
		{"not what a replica has for itself", gossip.Heartbeat{}, func(s *consensus.State) {
			s.Round, s.Merged = nil, &plan.Merged{Generation: 3, From: 30, To: 40, Parts: []plan.Part{{Steps: 10}, {Steps: 10}}, Last: true}
			s.Checkpoint = consensus.Checkpoint{Step: 40, Own: []consensus.OwnState{ownOf(0, 4, "a"), ownOf(1, 3, "b")}}
		}, nil, leastSavePatience + 1, meeting{Saving: true}, meeting{Over: "the plan has ended with the outer step of step 40"}},
		{"nor is that of who is lost waited for", gossip.Heartbeat{}, func(s *consensus.State) {
			s.Round, s.Merged = nil, &plan.Merged{Generation: 3, From: 30, To: 40, Parts: []plan.Part{{Steps: 10}, {Steps: 10}}, Last: true}
			s.Checkpoint = consensus.Checkpoint{Step: 40, Own: []consensus.OwnState{ownOf(0, 4, "a"), {Replica: 1}}}
		}, map[plan.Replica]string{1: "c is gone"}, 0, meeting{Over: "the plan has ended with the outer step of step 40"}, meeting{Over: "the plan has ended with the outer step of step 40"}},
		{"of the run", gossip.Heartbeat{}, func(s *consensus.State) {
			s.Round, s.Merged = nil, &plan.Merged{Generation: 3, From: 90, To: 100, Parts: []plan.Part{{Steps: 10}, {Steps: 10}}, Last: true}
		}, nil, time.Hour, meeting{}, meeting{}},
		{"the run has gone back", gossip.Heartbeat{}, func(s *consensus.State) { s.Round = nil }, nil, time.Hour, meeting{}, meeting{}},
		{"every step together", gossip.Heartbeat{}, func(s *consensus.State) { s.Plan.Local, s.Round = nil, nil }, nil, time.Hour, meeting{}, meeting{}},
	} {
		s, beats := state, gossip.NewTracker()
		c.change(&s)
		now := time.Unix(1000, 0)
		if c.said.Peer != "" {
			beats.Note(c.said, now)
		}
		w := roundWatch{beats: beats}
		if got := w.look(moment{state: s, now: now}, c.unable); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if got := w.look(moment{state: s, now: now.Add(c.after)}, c.unable); got != c.changes {
			t.Errorf("%s, %v later: %+v, want %+v", c.name, c.after, got, c.changes)
		}
	}
}

// TestLateOuterStepsAreWaitedFor: a plan that ends while messages travel is saved once replicas have made their steps up to the outer one.
func TestLateOuterStepsAreWaitedFor(t *testing.T) {
	p := meeters
	p.Local = &plan.Local{Rounds: plan.Rounds{Every: 10, Fragments: 1, Delay: 5}, Codec: "int8"}
	s := consensus.State{Run: &plan.RunSpec{Model: meetersModel, Train: plan.TrainSpec{Micros: 4, MicroBatch: 1, Steps: 100}}, Plan: p, Checkpoint: consensus.Checkpoint{Step: 30}}
	beats, now := gossip.NewTracker(), time.Unix(1000, 0)
	for _, peer := range []plan.PeerID{"a", "b", "c"} {
		beats.Note(gossip.Heartbeat{Peer: peer, Generation: 3, Step: 40, StepNanos: int64(time.Minute)}, now)
	}
	const steps = (saveSteps + 5) * time.Minute
	s.Merged = &plan.Merged{Generation: 3, From: 30, To: 40, Parts: []plan.Part{{Steps: 10}, {}}, Last: true}
	w := roundWatch{beats: beats}
	for _, c := range []struct {
		after time.Duration
		want  meeting
	}{{0, meeting{Saving: true}}, {steps, meeting{Saving: true}}, {steps + time.Second, meeting{Lost: "the outer step of step 40 was not saved"}}} {
		if got := w.look(moment{state: s, now: now.Add(c.after)}, nil); got != c.want {
			t.Errorf("after %v: %+v, want %+v", c.after, got, c.want)
		}
	}
	s.Merged = nil
	for from, want := range map[plan.Step]time.Duration{30: 0, 40: 5 * time.Minute, 43: 0} {
		if got := overlap(s, from, time.Minute); got != want {
			t.Errorf("a round after step %d cannot end for %v, want %v", from, got, want)
		}
	}
}

// TestMessagesTakeAsPlanned: the leader waits for the messages of a round by the same cost as the plan, whoever of its members is gone or leaves.
func TestMessagesTakeAsPlanned(t *testing.T) {
	p := newPaced(t, "a", "b")
	p.apart()
	p.state.Plan.Start = 0
	_, reasons, err := planner.Make(t.Context(), NextInput(p.state))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(reasons, func(r plan.Reason) bool { return r.Kind == plan.ReasonRounds })
	want := time.Duration(reasons[i].Nanos)
	for name, change := range map[string]func(*consensus.Member){
		"all are there": func(*consensus.Member) {},
		"one leaves":    func(m *consensus.Member) { m.State = consensus.Draining },
		"one is gone":   func(m *consensus.Member) { m.State = consensus.Gone },
	} {
		s := p.state
		s.Members = slices.Clone(s.Members)
		change(&s.Members[1])
		if got := exchangeTime(s); got != want || got == 0 {
			t.Errorf("%s: %v, planned %v", name, got, want)
		}
	}
	p.state.Members = p.state.Members[:1]
	if got := exchangeTime(p.state); got != unknownExchange {
		t.Errorf("one is forgotten: %v", got)
	}
}
