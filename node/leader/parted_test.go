package leader

import (
	"context"
	"slices"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader/blame"
	"pnode/pipeline/link/silence"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// lostLink is the word of a member that has lost its link to another.
func lostLink(by, to plan.PeerID) accusation {
	return accusation{By: by, Fault: plan.Fault{Accused: to, Kind: plan.LostLink, Step: 12}}
}

// TestLively: whose heartbeats came all the time, and go on to come.
func TestLively(t *testing.T) {
	const told = 1200 * time.Millisecond // ago, of the dead link
	for _, c := range []struct {
		name    string
		silence time.Duration // up to the last heartbeat of b, which is late ago
		late    time.Duration
		want    bool
	}{
		{"all the time", time.Second, 500 * time.Millisecond, true},
		{"but for a heartbeat that was lost", 2 * time.Second, 500 * time.Millisecond, true},
		{"after an outage of its own", silence.LeastLink, 500 * time.Millisecond, false},
		{"not since", time.Second, 2 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatcher()
			w.listen(20)
			for w.look(0); w.now.Sub(w.heard) < c.silence; {
				w.look(decideEvery)
			}
			w.heard = w.now
			w.look(0)
			for at := w.now; w.now.Sub(at) < c.late; {
				w.look(decideEvery)
			}
			state := consensus.State{Members: []consensus.Member{w.b}}
			state.Plan.Replicas = []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}}}}
			got := moment{state: state, seen: &w.sightings, stall: gossip.Stall{For: told}}.lively("a")
			if got["b"] != c.want || !got["a"] {
				t.Errorf("got %v", got)
			}
		})
	}
}

// answering is a consensus in which only some members answer.
type answering struct {
	*oneLeader
	members []plan.PeerID
}

func (c answering) Answers(_ context.Context, p plan.PeerID) bool {
	return slices.Contains(c.members, p)
}

// TestWhoDoesNotAnswerIsLeftOut: of two ends of a dead link the one that the leader does not reach either.
func TestWhoDoesNotAnswerIsLeftOut(t *testing.T) {
	ruled := blame.Ruling{Blame: consensus.Blame{Peer: "b", Accuser: "c", Kind: plan.LostLink, Detail: blame.PartedFrom("c")}, Out: true, Parted: true}
	swapped := ruled
	swapped.Peer, swapped.Accuser, swapped.Detail = "c", "b", blame.PartedFrom("b")
	other := ruled
	other.Parted = false
	for _, c := range []struct {
		name    string
		answers []plan.PeerID
		rule    blame.Ruling
		want    blame.Ruling
	}{
		{"both answer", []plan.PeerID{"b", "c"}, ruled, ruled},
		{"neither does", nil, ruled, ruled},
		{"the accused does not", []plan.PeerID{"c"}, ruled, ruled},
		{"the accuser does not", []plan.PeerID{"b"}, ruled, swapped},
		{"another ruling", []plan.PeerID{"b"}, other, other},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := consensus.State{Members: []consensus.Member{{Peer: "b", Label: "b"}, {Peer: "c", Label: "c"}}}
			l := &Leader{Config: Config{Self: "a", Consensus: answering{&oneLeader{}, c.answers}}}
			if got := (&court{Config: l.Config}).confirm(t.Context(), state, c.rule); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestMissed: what becomes of a broken plan one of whose members is silent.
func TestMissed(t *testing.T) {
	// b, c and d have ended the generation; a gave signs of life until a time ago, and is accused.
	broken := func(silent time.Duration, change func(*view)) view {
		v := view{
			Plan: twoByTwo(), Checkpoint: 30, Newest: 37, pause: pause{SavePatience: time.Minute},
			remains: remains{Layers: 6, Offers: []offer{left("b", 0, 1, 37), left("c", 1, 0, 37), left("d", 1, 1, 37)}},
			Members: []memberView{
				{Peer: "a", Active: true, Silent: silent, Suspicious: DeadAfter, Lost: silence.Least},
				{Peer: "b", Active: true},
				{Peer: "c", Active: true},
				{Peer: "d", Active: true},
			},
			Stall: stall{Stall: gossip.Stall{For: time.Second, By: []plan.PeerID{"b", "c", "d"}, Why: "lost a"}, Patience: stallGrace},
		}
		v.Trial.Accusations = []accusation{lostLink("b", "a")}
		change(&v)
		return v
	}
	best, _ := salvageOf(twoByTwo(), 6, 30, broken(0, func(*view) {}).Offers)
	asked := func(v *view) { v.Salvage, v.SalvagedFor, v.Salvages = &best, time.Second, 1 }
	saved := func(v *view) { asked(v); v.Checkpoint = 37 }
	unable := func(v *view) { v.Offers = v.Offers[:1] }
	const late = DeadAfter + time.Millisecond
	for _, c := range []struct {
		name string
		view view
		want verdict
	}{
		{"its state is saved meanwhile", broken(late, func(*view) {}), verdict{Salvage: &best}},
		{"and the plan looked for", broken(late, asked), verdict{Prepare: true, Why: "a is silent"}},
		{"then the run goes on without it", broken(late, saved), verdict{Plan: true, Why: "a is silent"}},
		{"it is gone after longer", broken(silence.Least+time.Second, saved), verdict{Gone: "a", Why: "no sign of life for 9 s"}},
		{"nobody goes back for one that may be back", broken(late, unable), verdict{Prepare: true, Why: "a is silent"}},
		{"nothing is to be saved", broken(late, func(v *view) {
			v.Newest, v.Offers = 30, []offer{left("b", 0, 1, 30), left("c", 1, 0, 30), left("d", 1, 1, 30)}
		}), verdict{Plan: true, Why: "a is silent"}},
		{"its own link may be slow", broken(late, func(v *view) { saved(v); v.Members[0].Suspicious = silence.Least }), verdict{}},
		{"it speaks, but may have to show that it lives", broken(time.Second, func(v *view) { v.Stall.By = append(v.Stall.By, "a") }), verdict{}},
		{"it is back, and all have said so", broken(0, func(v *view) {
			saved(v)
			v.Stall.For, v.Stall.By = showTime+1, append(v.Stall.By, "a")
		}), verdict{Plan: true, Again: true, Why: "a member gave the generation up: lost a"}},
		{"it is back with its state, which another one computes again", broken(0, func(v *view) {
			asked(v)
			v.Salvage = &consensus.Salvage{Step: 37, Parts: []consensus.SalvagePart{{By: "b", Replica: 1}}}
			v.Stall.For, v.Offers = showTime+1, append(v.Offers, left("a", 0, 0, 37))
		}), verdict{Salvage: new(mustSalvage(left("a", 0, 0, 37), left("b", 0, 1, 37), left("c", 1, 0, 37), left("d", 1, 1, 37)))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decide(c.view)
			if got.Salvage != nil && c.want.Salvage != nil && told(*got.Salvage, true) == told(*c.want.Salvage, true) {
				got.Salvage = c.want.Salvage
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func mustSalvage(offers ...offer) consensus.Salvage {
	s, ok := salvageOf(twoByTwo(), 6, 30, offers)
	if !ok {
		panic("the offers cover no step")
	}
	return s
}

// TestNobodySavesWhatOthersCannotFetch: the state of a member that is left out for a dead link is computed again by another one, if
// one can.
func TestNobodySavesWhatOthersCannotFetch(t *testing.T) {
	for _, c := range []struct {
		name     string
		noReplay bool
		want     string
	}{
		{"another one can", false, "37; 0/0 [0,1) a; 0/1 [1,2) a from 30; 0/2 [2,3) c"},
		{"nobody can", true, "37; 0/0 [0,1) a; 0/1 [1,2) b; 0/2 [2,3) c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var line plan.Plan
			line.Generation, line.Start = 3, 30
			state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Checkpoint: consensus.Checkpoint{Step: 30}}
			state.Run.Model.Blocks, state.Run.Model.UntiedHead = 1, true
			state.Blames = []consensus.Blame{{Generation: 3, Peer: "b", Accuser: "c", Kind: plan.LostLink, Until: 1}}
			tracker := gossip.NewTracker()
			line.Replicas = []plan.Pipeline{{Micros: 2}}
			for i, peer := range []plan.PeerID{"a", "b", "c"} {
				line.Replicas[0].Stages = append(line.Replicas[0].Stages, plan.Placement{Peer: peer, Device: "cpu", Holder: "a", Layers: plan.LayerRange{First: i, End: i + 1}})
				state.Members = append(state.Members, consensus.Member{Peer: peer, State: consensus.Active})
				tracker.Note(gossip.Heartbeat{
					Peer: peer, Generation: 3, Stalled: 3, Kept: 31, NoReplay: c.noReplay, Retained: []gossip.RetainedStage{{Stage: plan.Stage(i), Step: 37}},
				}, time.Now())
			}
			state.Plan = line
			offers := (&salvageWatch{beats: tracker}).offers(state)
			s, ok := salvageOf(line, 3, 30, offers)
			if got := told(s, ok); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestWhoHasNotBegun: b and c have lost a, which lives. It changes over to another log, and speaks of a plan of its own with the number of the
// one here.
func TestWhoHasNotBegun(t *testing.T) {
	log := plan.Partings{{Recovery: "r", Generation: 1}}
	beats := gossip.NewTracker()
	beats.Follow(log)
	for _, b := range []gossip.Heartbeat{
		{Peer: "a", Generation: 2, Stalled: 2, Fault: &plan.Fault{Accused: "b", Kind: plan.LostLink}},
		{Peer: "b", Generation: 2, Lineage: "r", Stalled: 2, Fault: &plan.Fault{Accused: "a", Kind: plan.LostLink}},
		{Peer: "c", Generation: 2, Lineage: "r"},
		{Peer: "d", Generation: 9, Lineage: "r"}, // which there is not
	} {
		beats.Note(b, time.Unix(1000, 0))
	}
	s := consensus.State{Partings: log, Plan: plan.Plan{Generation: 2, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}, {Peer: "c"}, {Peer: "d"}}}}}}
	said := beats.Stalled(s.Plan.Peers(), 2, time.Unix(1001, 0)).Accusations
	if len(said) != 1 || said[0].By != "b" {
		t.Errorf("what a says of its own plan counts: %v", said)
	}
	if got := (&court{Config: Config{Heartbeats: beats}}).absent(s); len(got) != 1 || !got["a"] {
		t.Errorf("%v have not begun, want a", got)
	}
}
