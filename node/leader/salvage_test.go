package leader

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// twoByTwo is a plan of two replicas with two stages of six layers, cut in different places: a b and c d.
func twoByTwo() plan.Plan {
	stages := func(at int, peers ...plan.PeerID) plan.Pipeline {
		return plan.Pipeline{Micros: 2, Stages: []plan.Placement{
			{Peer: peers[0], Device: "cpu", Layers: plan.LayerRange{First: 0, End: at}},
			{Peer: peers[1], Device: "cpu", Layers: plan.LayerRange{First: at, End: 6}},
		}}
	}
	return plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{stages(3, "a", "b"), stages(2, "c", "d")}}
}

// left returns the offer of a worker that has the state after a step.
func left(by plan.PeerID, r plan.Replica, s plan.Stage, step plan.Step) offer {
	return offer{By: by, StageID: plan.StageID{Replica: r, Stage: s}, Step: step}
}

// pending is the same with the gradients of the step after it.
func pending(by plan.PeerID, r plan.Replica, s plan.Stage, step plan.Step) offer {
	o := left(by, r, s, step)
	o.Pending = step + 1
	return o
}

// replayed returns the offer of another member, which can bring a stage from a step to any newer one.
func replayed(by plan.PeerID, r plan.Replica, s plan.Stage, from plan.Step) offer {
	return offer{By: by, StageID: plan.StageID{Replica: r, Stage: s}, Replay: true, From: from}
}

// told writes a salvage down: step, and by each part its layers, who saves them, and from which step it replays.
func told(s consensus.Salvage, ok bool) string {
	if !ok {
		return "nothing"
	}
	words := []string{fmt.Sprint(s.Step)}
	for _, p := range s.Parts {
		word := fmt.Sprintf("%d/%d [%d,%d) %s", p.Replica, p.Stage, p.Layers.First, p.Layers.End, p.By)
		if p.From > 0 {
			word += fmt.Sprintf(" from %d", p.From)
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

// TestSalvageOf: which step of a broken generation its living members can give together, and who saves what of it.
func TestSalvageOf(t *testing.T) {
	all := []offer{left("a", 0, 0, 37), left("b", 0, 1, 37), left("c", 1, 0, 37), left("d", 1, 1, 37)}
	for _, c := range []struct {
		name   string
		offers []offer
		want   string
	}{
		{"nobody has anything", nil, "nothing"},
		{"members that have the same layers share them", all, "37; 0/0 [0,1) a; 1/0 [1,2) c; 1/1 [2,3) d; 0/1 [3,5) b; 1/1 [5,6) d"},
		{"one is dead", all[1:], "37; 1/0 [0,2) c; 1/1 [2,3) d; 0/1 [3,5) b; 1/1 [5,6) d"},
		{"another is dead", []offer{all[0], all[2], all[3]}, "37; 0/0 [0,1) a; 1/0 [1,2) c; 1/1 [2,6) d"},
		{"one can share a part of what another has", []offer{left("a", 0, 0, 37), left("b", 0, 1, 37), left("d", 1, 1, 37)}, "37; 0/0 [0,2) a; 1/1 [2,3) d; 0/1 [3,5) b; 1/1 [5,6) d"},
		{"a whole replica is dead", all[:2], "37; 0/0 [0,3) a; 0/1 [3,6) b"},
		{"one stage is dead in each", all[1:3], "nothing"},
		{"the checkpoint has all", []offer{left("a", 0, 0, 30), left("b", 0, 1, 30)}, "nothing"},
		{"one has the commit that all others lack", []offer{pending("a", 0, 0, 36), left("b", 0, 1, 37), pending("c", 1, 0, 36)}, "37; 0/0 [0,1) a; 1/0 [1,2) c; 0/0 [2,3) a; 0/1 [3,6) b"},
		{"nobody has the commit", []offer{pending("a", 0, 0, 36), pending("b", 0, 1, 36)}, "36; 0/0 [0,3) a; 0/1 [3,6) b"},
		{"who has the commit goes first", []offer{pending("a", 0, 0, 36), pending("b", 0, 1, 36), left("c", 1, 0, 37), left("d", 1, 1, 37)}, "37; 1/0 [0,2) c; 1/1 [2,6) d"},
		{"one says that it is further than anybody can be", []offer{left("a", 0, 0, 99), left("b", 0, 1, 37), left("c", 1, 0, 37), left("d", 1, 1, 37)}, "37; 1/0 [0,2) c; 1/1 [2,3) d; 0/1 [3,5) b; 1/1 [5,6) d"},
		{"steps are not mixed", []offer{left("a", 0, 0, 36), left("b", 0, 1, 37)}, "nothing"},
		{"a stage that no plan has", append([]offer{left("a", 7, 0, 50), left("a", 0, -1, 50)}, all[:2]...), "37; 0/0 [0,3) a; 0/1 [3,6) b"},
		{"a copy of the lost stage can be brought to the step", []offer{all[0], replayed("a", 0, 1, 30)}, "37; 0/0 [0,3) a; 0/1 [3,6) a from 30"},
		{"memory goes before replay", append([]offer{replayed("a", 0, 1, 36)}, all[:2]...), "37; 0/0 [0,3) a; 0/1 [3,6) b"},
		{"the least is replayed", []offer{all[0], replayed("a", 0, 1, 30), replayed("e", 0, 1, 35)}, "37; 0/0 [0,3) a; 0/1 [3,6) e from 35"},
		{"one member replays all that is lost", []offer{all[1], replayed("e", 0, 0, 30), replayed("b", 1, 0, 36), replayed("e", 1, 0, 30)}, "37; 0/0 [0,3) e from 30; 0/1 [3,6) b"},
		{"where one cannot", []offer{left("f", 0, 2, 37), replayed("e", 0, 0, 30), replayed("b", 0, 1, 30)}, "nothing"},
		{"nobody can say which step to replay to", []offer{replayed("a", 0, 0, 30), replayed("a", 0, 1, 30)}, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := told(salvageOf(twoByTwo(), 6, 30, c.offers)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestSalvageRule walks the rule of a broken generation case by case.
func TestSalvageRule(t *testing.T) {
	broken := func(change func(*view)) view {
		v := view{
			Plan: twoByTwo(), Checkpoint: 30, pause: pause{SavePatience: time.Minute},
			remains: remains{Layers: 6, Offers: []offer{left("b", 0, 1, 37), left("c", 1, 0, 37), left("d", 1, 1, 37)}},
			Members: []memberView{{Peer: "b", Active: true}, {Peer: "c", Active: true}, {Peer: "d", Active: true}},
			Stall:   stall{Stall: gossip.Stall{For: time.Second, By: []plan.PeerID{"b", "c", "d"}, Why: "lost a"}, Patience: stallGrace},
		}
		change(&v)
		return v
	}
	best, _ := salvageOf(twoByTwo(), 6, 30, broken(func(*view) {}).Offers)
	save, wait := verdict{Salvage: &best}, verdict{}
	planned := verdict{Plan: true, Why: "a is gone"}
	asked := func(change func(*view)) view {
		return broken(func(v *view) {
			v.Salvage, v.SalvagedFor, v.Salvages = &best, time.Second, 1
			change(v)
		})
	}
	says := func(kind plan.FaultKind) func(*view) {
		return func(v *view) {
			v.Ruled, v.Trial.Accusations = true, []accusation{{By: "b", Fault: plan.Fault{Accused: "a", Kind: kind}}}
		}
	}
	for _, c := range []struct {
		name string
		view view
		want verdict
	}{
		{"what the living have is saved", broken(func(*view) {}), save},
		{"before anybody knows who is dead", broken(func(v *view) {
			v.Members = append(v.Members, memberView{Peer: "a", Active: true, Silent: DeadAfter + 1})
			says(plan.LostLink)(v)
		}), save},
		{"once all that live have said what they have", broken(func(v *view) { v.Stall.By, v.Offers = v.Stall.By[:2], v.Offers[:2] }), wait},
		{"or have had the time to", broken(func(v *view) { v.Stall.By, v.BrokenFor = v.Stall.By[:2], salvageGrace+1 }), save},
		{"who has done all of its steps has said so", broken(func(v *view) { v.Stall.By = v.Stall.By[:2] }), save},
		{"though a worker was mute", broken(says(plan.NoProgress)), save},
		{"but not what somebody calls wrong", broken(says(plan.BadTensor)), planned},
		{"nor when the run goes back", broken(func(v *view) { v.Ended = "the loss jumped" }), verdict{Plan: true, Why: "the loss jumped"}},
		{"a stop waits for it", broken(func(v *view) { v.Ending = true }), save},
		{"and has the dead marked before", broken(func(v *view) {
			v.Ending, v.Offers, v.Stall.By = true, v.Offers[:2], v.Stall.By[:2]
			v.Members[2].Ended = true
		}), verdict{Gone: "d", Ended: true, Why: "its process has ended"}},
		{"but plans nothing while it is saved", asked(func(v *view) { v.Ending = true }), wait},
		{"nor after it", asked(func(v *view) { v.Ending, v.Checkpoint = true, 37 }), wait},
		{"a finished run needs it no more", broken(func(v *view) { v.Ending, v.Finished = true, true }), wait},
		{"nor for want of chunks", broken(func(v *view) { v.Stall.Lacks = true }), planned},
		{"what does not cover all layers is of no use", broken(func(v *view) { v.Offers = v.Offers[:1] }), planned},
		{"the plan is looked for meanwhile", asked(func(*view) {}), verdict{Prepare: true, Why: "a is gone"}},
		{"whoever has saved need not offer any more", asked(func(v *view) { v.Offers, v.Stored = v.Offers[2:], map[int]bool{0: true, 3: true} }), verdict{Prepare: true, Why: "a is gone"}},
		{"the dead are marked meanwhile", asked(func(v *view) {
			v.Members = append(v.Members, memberView{Peer: "a", Active: true, Silent: UnreachableAfter + time.Second})
		}), verdict{Gone: "a", Why: "no sign of life for 16 s"}},
		{"it is saved", asked(func(v *view) { v.Checkpoint = 37 }), planned},
		{"it takes too long", asked(func(v *view) { v.SalvagedFor = v.SavePatience + 1 }), planned},
		{"who was to save is dead, nobody else can", asked(func(v *view) { v.Members, v.Offers = v.Members[:2], v.Offers[:2] }), planned},
		{"too often", broken(func(v *view) { v.Salvages = mostSalvages }), planned},
		{"a generation that goes on", broken(func(v *view) {
			v.Members, v.Stall = append(v.Members, memberView{Peer: "a", Active: true}), stall{}
		}), wait},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := decide(c.view); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	t.Run("who was to save is late, another one can", func(t *testing.T) {
		v := asked(func(v *view) { v.SalvagedFor, v.Offers = v.SavePatience+1, append(v.Offers[:2:2], left("a", 0, 0, 37)) })
		if got := decide(v); got.Salvage == nil || told(*got.Salvage, true) != "37; 0/0 [0,1) a; 1/0 [1,2) c; 0/0 [2,3) a; 0/1 [3,6) b" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("who was to save is dead, another one can", func(t *testing.T) {
		v := asked(func(v *view) {
			v.Members = []memberView{{Peer: "a", Active: true}, {Peer: "b", Active: true}, {Peer: "d", Active: true}}
			v.Offers = []offer{left("a", 0, 0, 37), left("b", 0, 1, 37), left("d", 1, 1, 37)}
			v.Stall.By = []plan.PeerID{"a", "b", "d"}
		})
		if got := decide(v); got.Salvage == nil || told(*got.Salvage, true) != "37; 0/0 [0,2) a; 1/1 [2,3) d; 0/1 [3,5) b; 1/1 [5,6) d" {
			t.Errorf("got %+v", got)
		}
	})
}

// TestReplays: who is asked to replay a lost stage, and when nobody can.
func TestReplays(t *testing.T) {
	var line plan.Plan // a to e, a layer each; e's copies are with d, all others' with a
	line.Generation, line.Start = 3, 30
	for i, peer := range []plan.PeerID{"a", "b", "c", "d", "e"} {
		place := plan.Placement{Peer: peer, Device: "cpu", Holder: "a", Layers: plan.LayerRange{First: i, End: i + 1}}
		if peer == "e" {
			place.Holder = "d"
		}
		if i == 0 {
			line.Replicas = []plan.Pipeline{{Micros: 2}}
		}
		line.Replicas[0].Stages = append(line.Replicas[0].Stages, place)
	}
	for _, c := range []struct {
		name   string
		dead   plan.PeerID
		tied   bool
		change func(beats map[plan.PeerID]*gossip.Heartbeat, p *plan.Plan)
		want   plan.PeerID // that replays; empty: nobody
	}{
		{"whoever has the copy", "e", false, nil, "d"},
		{"another holder", "c", false, nil, "a"},
		{"a second one where the first has failed", "c", false, func(b map[plan.PeerID]*gossip.Heartbeat, _ *plan.Plan) { b["a"].NoReplay = true }, "b"},
		{"a third one", "c", false, func(b map[plan.PeerID]*gossip.Heartbeat, _ *plan.Plan) {
			b["a"].NoReplay, b["b"].NoReplay = true, true
		}, "d"},
		{"nobody is left", "c", false, func(b map[plan.PeerID]*gossip.Heartbeat, _ *plan.Plan) {
			for _, beat := range b {
				beat.NoReplay = true
			}
		}, ""},
		{"a neighbour has forgotten what it sent", "c", false, func(b map[plan.PeerID]*gossip.Heartbeat, _ *plan.Plan) { b["d"].Kept = 32 }, ""},
		{"or keeps nothing", "c", false, func(b map[plan.PeerID]*gossip.Heartbeat, _ *plan.Plan) { b["b"].Kept = 0 }, ""},
		{"who sent the lost nothing may forget", "c", false, func(b map[plan.PeerID]*gossip.Heartbeat, _ *plan.Plan) {
			b["a"].Kept, b["e"].Kept = 0, 35
		}, "a"},
		{"unless both ends of the model share parameters", "e", true, func(b map[plan.PeerID]*gossip.Heartbeat, _ *plan.Plan) { b["a"].Kept = 35 }, ""},
		{"optimizer state in parts", "c", false, func(_ map[plan.PeerID]*gossip.Heartbeat, p *plan.Plan) {
			p.Sharded = plan.LayerRanges{{First: 0, End: 1}}
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := line
			state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Checkpoint: consensus.Checkpoint{Step: 30}}
			state.Run.Model.UntiedHead = !c.tied
			beats := map[plan.PeerID]*gossip.Heartbeat{}
			for i, peer := range line.Peers() {
				m := consensus.Member{Peer: peer, State: consensus.Active}
				if peer == c.dead {
					m.State = consensus.Gone
				} else {
					beats[peer] = &gossip.Heartbeat{Peer: peer, Generation: 3, Stalled: 3, Kept: 31, Retained: []gossip.RetainedStage{{Stage: plan.Stage(i), Step: 37}}}
				}
				state.Members = append(state.Members, m)
			}
			if c.change != nil {
				c.change(beats, &p)
			}
			state.Plan = p
			tracker := gossip.NewTracker()
			for _, b := range beats {
				tracker.Note(*b, time.Now())
			}
			var by plan.PeerID
			for _, o := range (&salvageWatch{beats: tracker}).offers(state) {
				if o.Replay {
					by = o.By
					if o.From != 30 || p.At(o.StageID).Peer != c.dead {
						t.Errorf("got %+v", o)
					}
				}
			}
			if by != c.want {
				t.Errorf("%q replays, want %q", by, c.want)
			}
		})
	}
}

// TestWhoHasStoredTheStateReplays: before its holder, to which a copy may be on its way yet.
func TestWhoHasStoredTheStateReplays(t *testing.T) {
	p := plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Micros: 2}}}
	state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Checkpoint: consensus.Checkpoint{Step: 30}}
	tracker := gossip.NewTracker()
	for i, peer := range []plan.PeerID{"a", "b", "c", "d"} {
		p.Replicas[0].Stages = append(p.Replicas[0].Stages, plan.Placement{
			Peer: peer, Device: "cpu", Holder: "a", Layers: plan.LayerRange{First: 2 * i, End: 2*i + 2},
		})
		m := consensus.Member{Peer: peer, State: consensus.Active}
		if peer == "b" {
			m.State = consensus.Gone
		} else {
			tracker.Note(gossip.Heartbeat{
				Peer: peer, Generation: 3, Stalled: 3, Kept: 31, Retained: []gossip.RetainedStage{{Stage: plan.Stage(i), Step: 37}},
			}, time.Now())
		}
		state.Members = append(state.Members, m)
		for l, holder := range []plan.PeerID{"d", "c"} { // of the first layer, which is larger, and of the second one
			state.Checkpoint.Layers = append(state.Checkpoint.Layers, consensus.LayerRef{
				Layer: 2*i + l, SizeBytes: int64(2 - l), Holders: []plan.PeerID{peer, holder},
			})
		}
	}
	state.Plan = p
	var by []plan.PeerID
	for _, o := range (&salvageWatch{beats: tracker}).offers(state) {
		if o.Replay {
			by = append(by, o.By)
		}
	}
	if !slices.Equal(by, []plan.PeerID{"d"}) {
		t.Errorf("%v replay, want d", by)
	}
}

// TestWhatMayBeSavedIsWaitedFor: a stop goes on at once where the living cannot save any newer step, and not before they have said so.
func TestWhatMayBeSavedIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		state   consensus.MemberState // of b
		holders []plan.PeerID         // of its layers
		quiet   bool                  // c has not given the generation up
		step    plan.Step             // that a and c have in memory
		after   time.Duration
		want    bool
	}{
		"b is replayed":                 {consensus.Gone, []plan.PeerID{"b", "a"}, false, 37, 0, true},
		"nobody else has its layers":    {consensus.Gone, []plan.PeerID{"b"}, false, 37, 0, false},
		"nobody has a newer step":       {consensus.Gone, []plan.PeerID{"b", "a"}, false, 30, 0, false},
		"b may live":                    {consensus.Active, []plan.PeerID{"b"}, false, 37, 0, true},
		"c has yet to say what it has":  {consensus.Gone, []plan.PeerID{"b"}, true, 37, 0, true},
		"c has been silent for as long": {consensus.Gone, []plan.PeerID{"b"}, true, 37, DeadAfter + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Micros: 2}}}
			state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Checkpoint: consensus.Checkpoint{Step: 30}}
			state.Run.Model.Blocks = 1
			tracker, begin := gossip.NewTracker(), time.Unix(1000, 0)
			for i, peer := range []plan.PeerID{"a", "b", "c"} {
				p.Replicas[0].Stages = append(p.Replicas[0].Stages, plan.Placement{Peer: peer, Device: "cpu", Layers: plan.LayerRange{First: i, End: i + 1}})
				m, b := consensus.Member{Peer: peer, State: consensus.Active}, gossip.Heartbeat{Peer: peer, Generation: 3}
				holders := []plan.PeerID{peer}
				if peer == "b" {
					m.State, holders = c.state, c.holders
				} else if peer == "a" || !c.quiet {
					b.Stalled, b.Kept, b.Retained = 3, 31, []gossip.RetainedStage{{Stage: plan.Stage(i), Step: c.step}}
				}
				tracker.Note(b, begin)
				state.Members = append(state.Members, m)
				state.Checkpoint.Layers = append(state.Checkpoint.Layers, consensus.LayerRef{Layer: i, SizeBytes: 1, Holders: holders})
			}
			state.Plan = p
			if got := MaySave(tracker, state, false, begin.Add(c.after)); got != c.want {
				t.Errorf("may be saved: %t", got)
			}
			state.Finished = true
			if MaySave(tracker, state, false, begin.Add(c.after)) {
				t.Error("a finished run waits for more")
			}
		})
	}
}
