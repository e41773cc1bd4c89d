package leader

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// decisions are views of the run, each with what the planner's rule makes of it, in the order in which it tries what it knows.
type decisions []struct {
	name string
	view view
	want verdict
}

// check walks the rule case by case: from a plain view to one verdict.
func (d decisions) check(t *testing.T) {
	for _, c := range d {
		t.Run(c.name, func(t *testing.T) {
			c.view.Checkpoint = cmp.Or(c.view.Checkpoint, c.view.Plan.Start)
			if got := decide(c.view); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// running is the plan of the views that have one.
var running = plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}}}}}

func alive(peers ...plan.PeerID) []memberView {
	var views []memberView
	for _, p := range peers {
		views = append(views, memberView{Peer: p, Active: true})
	}
	return views
}

// unsteady returns three members, one of which is silent for longer than usual, but not for long enough to be lost.
func unsteady(i int) []memberView {
	views := alive("a", "b", "c")
	views[i].Silent, views[i].Suspicious, views[i].Lost = 2100*time.Millisecond, 2*time.Second, 3*time.Second
	return views
}

func reborn(views []memberView) []memberView {
	views[1].Restarted = true
	return views
}

func TestDecideTheFirstPlan(t *testing.T) {
	decisions{
		{"waits for the asked number of nodes", view{Members: alive("a", "b"), MinNodes: 3, Owners: []plan.PeerID{"b"}, Names: map[plan.PeerID]string{"a": "desk", "b": "lab"}}, verdict{Blocked: "2 of 3 nodes joined: waiting until more start or join; `pnode invite` on lab prints how others join"}},
		{"waits for the devices that the cut needs", view{Members: []memberView{{Peer: "a", Active: true, Devices: 2}}, MinNodes: 1, MinDevices: 3}, verdict{Blocked: "2 of 3 devices joined: waiting until more start or join; `pnode invite` on the machine that began the run prints how others join"}},
		{"plans when one node has them", view{Members: []memberView{{Peer: "a", Active: true, Devices: 3}}, MinNodes: 1, MinDevices: 3}, verdict{Plan: true, Why: "first plan"}},
		{"waits for who enters", view{Members: alive("a", "b"), MinNodes: 2, Entering: 1}, verdict{Blocked: "waiting up to 10 s for members that are entering, so that the first plan has them"}},
		{"but not for ever", view{Members: alive("a", "b"), MinNodes: 2, Entering: enterPatience + 1}, verdict{Plan: true, Why: "first plan"}},
		{"plans when they are there", view{Members: alive("a", "b"), MinNodes: 2}, verdict{Plan: true, Why: "first plan"}},
		{"leaves a good plan alone", view{Plan: running, Members: alive("a", "b")}, verdict{}},
	}.check(t)
}

// TestDecideWhoIsGone: who is silent or has ended is marked as gone, and the plan does without.
func TestDecideWhoIsGone(t *testing.T) {
	silent := alive("a", "b")
	silent[1].Silent = UnreachableAfter + time.Second
	quiet := alive("a", "b", "c")
	quiet[1].Silent = DeadAfter + time.Second
	steady, spare := unsteady(1), unsteady(2)
	strange := alive("a", "b", "c")
	strange[2].Silent, strange[2].Suspicious, strange[2].Lost = DeadAfter+1, unheardFor, UnreachableAfter
	missed := unsteady(1)
	missed[1].Silent = 3100 * time.Millisecond
	worse := slices.Clone(quiet)
	worse[2].Silent = UnreachableAfter + time.Second
	over := slices.Clone(worse)
	over[1].Ended = true
	decisions{
		{"marks the silent gone before anything else", view{Plan: running, Members: silent, wish: wish{Better: "c helps"}}, verdict{Gone: "b", Why: "no sign of life for 16 s"}},
		{"doubts that one is gone which a link may be cut off from", view{Plan: running, Members: quiet, wish: wish{Better: "c helps"}}, verdict{Gone: "b", Doubt: true, Why: "no sign of life for 6 s"}},
		{"prepares for the loss of one that is never silent for so long", view{Plan: running, Members: steady}, verdict{Prepare: true, Suspect: "b", Why: "b is gone"}},
		{"holds nothing up for one that gets no part in the next plan either", view{Plan: running, Members: strange, wish: wish{Better: "d helps"}}, verdict{Pause: true, Why: "d helps"}},
		{"not of one without a part in the plan", view{Plan: running, Members: spare}, verdict{}},
		{"and not while another plan is under way", view{Plan: running, Members: steady, wish: wish{Better: "c helps"}}, verdict{Pause: true, Why: "c helps"}},
		{"marks it gone long before a stranger", view{Plan: running, Members: missed}, verdict{Gone: "b", Why: "no sign of life for 3.1 s"}},
		{"marks the longer silent first", view{Plan: running, Members: worse}, verdict{Gone: "c", Why: "no sign of life for 16 s"}},
		{"doubts no end of a process, and marks it first", view{Plan: running, Members: over}, verdict{Gone: "b", Ended: true, By: "a", Why: "its process has ended"}},
		{"hears what the living have left", view{Plan: running, Members: alive("a", "c")}, verdict{}},
		{"plans without the dead where that is nothing", view{Plan: running, Members: alive("a", "c"), Stall: stall{Stall: gossip.Stall{For: 1, By: []plan.PeerID{"a"}}}}, verdict{Plan: true, Why: "b is gone"}},
		{"or is not told", view{Plan: running, Members: alive("a", "c"), remains: remains{BrokenFor: salvageGrace + 1}}, verdict{Plan: true, Why: "b is gone"}},
		{"plans anew with a member that was started again", view{Plan: running, Members: reborn(alive("a", "b")), remains: remains{BrokenFor: salvageGrace + 1}}, verdict{Plan: true, Why: "b was started again"}},
		{"does nothing at the end of a run", view{Plan: running, Members: silent, Ending: true}, verdict{}},
		{"but marks the silent gone for one that comes back to a stopped run", view{Plan: running, Members: silent, Ending: true, Returning: true}, verdict{Gone: "b", Why: "no sign of life for 16 s"}},
		{"and plans nothing there", view{Plan: running, Members: alive("a"), Ending: true, Returning: true}, verdict{}},
	}.check(t)
}

// TestDecideAfterACrashOfAll: those who are started again wait for the others.
func TestDecideAfterACrashOfAll(t *testing.T) {
	crashed := func(silent time.Duration) view {
		of := reborn(alive("a", "b", "c"))
		of[0].Restarted = true
		of[1].Restarted = false
		of[1].Unheard, of[1].Silent, of[1].Suspicious, of[1].Lost = true, silent, unheardFor, UnreachableAfter
		return view{Plan: running, Members: of, Names: map[plan.PeerID]string{"b": "lab"}, remains: remains{BrokenFor: silent}}
	}
	spared := crashed(time.Second)
	spared.Members[1], spared.Members[2] = spared.Members[2], spared.Members[1]
	spared.Members[1].Peer, spared.Members[2].Peer = "b", "c"
	spared.Members[1].Restarted = true
	waitsFor := func(name string) verdict {
		return verdict{Blocked: "nothing was heard yet of " + name + ": waiting up to 3 s; the plan does without who is not heard of by then"}
	}
	again := func(broken time.Duration) view {
		of := alive("a", "c")
		of[0].Restarted, of[1].Active = true, false // still on its way in
		trio := plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}, {Peer: "c"}}}}}
		return view{Plan: trio, Members: of, Names: map[plan.PeerID]string{"b": "lab"}, remains: remains{BrokenFor: broken}}
	}
	leftAlone := func(broken time.Duration) view {
		v := again(broken)
		v.Members = v.Members[:1]
		return v
	}
	twoBack := func(broken time.Duration) view {
		v := again(broken)
		v.Members[1].Active, v.Members[1].Restarted = true, true
		return v
	}
	single := leftAlone(0)
	single.Plan = plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}}}}}
	stoppedAll := func(broken time.Duration) view {
		v := again(broken)
		v.Members = alive("a", "b", "c")
		v.Members[0].Restarted = true
		for i := 1; i < 3; i++ {
			m := &v.Members[i]
			m.Active, m.Leaving = i == 2, i == 1
			m.Unheard, m.Silent, m.Suspicious, m.Lost = true, broken, unheardFor, UnreachableAfter
		}
		return v
	}
	starting := func(back plan.Step, over bool) view {
		v := crashed(time.Second)
		v.Checkpoint, v.Names, v.BrokenFor = 30, map[plan.PeerID]string{"a": "desk", "b": "lab"}, salvageGrace+1
		v.Absent = absentHolders{Back: back, Over: over, Self: "a", Since: time.Date(2026, 1, 2, 5, 30, 0, 0, time.UTC), Until: time.Date(2026, 1, 2, 5, 35, 0, 0, time.UTC)}
		for layer, holders := range [][]plan.PeerID{{"b"}, {"b"}, {"c", "d"}, {"b"}} {
			v.Absent.Layers = append(v.Absent.Layers, consensus.LayerRef{Layer: layer + 1, Holders: holders})
		}
		return v
	}
	coming := starting(10, false)
	coming.Absent.Coming = true
	comingAlone := starting(0, true)
	comingAlone.Absent.Coming = true
	comingTooLate := starting(10, true)
	comingTooLate.Absent.Coming = true
	hadItself := starting(10, true)
	hadItself.Absent.Layers = []consensus.LayerRef{{Layer: 1, Holders: []plan.PeerID{"a"}}, {Layer: 2, Holders: []plan.PeerID{"a", "b"}}}
	const notBack = "waiting since 05:30:00 for members that are not back yet: lab has (layers 1-2, 4) and c or d has (layer 3) of the checkpoint of step 30, and nobody here has. Start them in their folders (`pnode join --dir FOLDER`) if they do not run"
	decisions{
		{"waits after a crash of all for who was not heard of yet", crashed(time.Second), waitsFor("lab")},
		{"also when nothing else is to come", crashed(unheardFor), waitsFor("lab")},
		{"whether it had a part or not", spared, waitsFor("c")},
		{"and then plans without it", crashed(unheardFor + 1), verdict{Plan: true, Why: "lab is silent"}},
		{"waits where all left for those who are started with the first", again(2 * againFor), verdict{Blocked: "the run begins again: waiting up to 20 s for lab and c; the plan does without who is not back by then"}},
		{"and no longer", again(2*againFor + 1), verdict{Plan: true, Why: "a was started again"}},
		{"also where they had not left yet when it was stopped", stoppedAll(unheardFor), verdict{Blocked: "the run begins again: waiting up to 3 s for lab and c; the plan does without who is not back by then"}},
		{"and for a moment", stoppedAll(unheardFor + 1), verdict{Plan: true, Why: "c is silent"}},
		{"and no longer where none of them is on its way", leftAlone(unheardFor + 1), verdict{Plan: true, Why: "a was started again"}},
		{"but for a while where another one is back", twoBack(againFor), verdict{Blocked: "the run begins again: waiting up to 10 s for lab; the plan does without who is not back by then"}},
		{"waits for nobody in a run of one node", single, verdict{Plan: true, Why: "a was started again"}},
		{"waits where all are started again for who alone has layers", starting(10, false), verdict{Blocked: "of the checkpoint of step 30 nobody here has what lab has (layers 1-2, 4) and c or d has (layer 3): waited for since 05:30:00 until 05:35:00. Start them in their folders (`pnode join --dir FOLDER`) to go on from it; else the run goes back to step 10, at once where desk is started with `--await-holders 0s`"}},
		{"names no way on without them before they had the time to come", coming, verdict{Blocked: notBack}},
		{"also where nothing older is there", comingAlone, verdict{Blocked: notBack}},
		{"but is not to wait for them", comingTooLate, verdict{Rollback: 10, Why: "of the checkpoint of step 30 nobody here has what lab has (layers 1-2, 4) and c or d has (layer 3)"}},
		{"nor for itself", hadItself, verdict{Rollback: 10, Why: "of the checkpoint of step 30 nobody here has what desk had in memory (layer 1) and lab has (layer 2)"}},
		{"and then goes back", starting(10, true), verdict{Rollback: 10, Why: "of the checkpoint of step 30 nobody here has what lab has (layers 1-2, 4) and c or d has (layer 3)"}},
		{"but not where nothing older is there", starting(0, true), verdict{Blocked: "of the checkpoint of step 30 nobody here has what lab has (layers 1-2, 4) and c or d has (layer 3): waited for since 05:30:00, as no older checkpoint is whole here. Start them in their folders (`pnode join --dir FOLDER`) to go on from it. " + anew}},
	}.check(t)
}

// TestDecideWithoutAState: where nobody who is up has all of the newest checkpoint, the run waits for who has it, then goes back.
func TestDecideWithoutAState(t *testing.T) {
	lacking := func(s stall) view {
		s.For, s.Lacks, s.Patience = time.Second, true, stallGrace
		return view{Plan: running, Checkpoint: running.Start, Members: alive("a", "b"), Stall: s}
	}
	older := lacking(stall{Fallback: 10, Alone: true})
	older.Checkpoint = 20
	redone := func(v view, takes time.Duration) view {
		v.RedoTime = takes
		return v
	}
	unheld := func(r remains, fallback plan.Step) view {
		r.Unheld = &consensus.LayerRef{Layer: 1, Holders: []plan.PeerID{"b"}}
		return view{Plan: running, Members: alive("a", "c"), Checkpoint: 30, remains: r, Stall: stall{Fallback: fallback}}
	}
	orphan := func(restoring time.Duration) view {
		return view{Plan: running, Members: alive("a", "b"), Orphaned: true, Stall: stall{Fallback: 20}, remains: remains{Restorer: "c", RestoredFrom: 20, RestoringFor: restoring}}
	}
	decisions{
		{"plans again after a stall", view{Plan: running, Members: alive("a", "b"), remains: remains{BrokenFor: stallGrace + 1}, Stall: stall{Stall: gossip.Stall{For: stallGrace + 1, Why: "lost"}, Patience: stallGrace}}, verdict{Plan: true, Why: "a member gave the generation up: lost"}},
		{"gives a lost peer time to show first", view{Plan: running, Members: alive("a", "b"), Stall: stall{Stall: gossip.Stall{For: stallGrace}, Patience: stallGrace}}, verdict{}},
		{"tries again for chunks that others may have", lacking(stall{Fallback: 20, Plans: lackingPlans - 1}), verdict{}},
		{"then goes back to an older checkpoint", lacking(stall{Fallback: 20, Plans: lackingPlans}), verdict{Rollback: 20, Why: "nobody who is up has all of the checkpoint of step 30"}},
		{"at once when nobody else can have them", lacking(stall{Fallback: 20, Alone: true}), verdict{Rollback: 20, Why: "nobody who is up has all of the checkpoint of step 30"}},
		{"keeps what it has when there is no older one", lacking(stall{Alone: true}), verdict{Blocked: "nobody who is up has all of the checkpoint of step 30, and no older one is whole here; start a node that holds a copy. " + anew}},
		{"plans from the older one", older, verdict{Plan: true, Why: "nobody who is up has all of the checkpoint of step 30"}},
		{"waits for a lost member that alone had a layer, at least a moment", unheld(remains{BrokenFor: leastReturn}, 20), verdict{Blocked: "nobody who is up has layer 1 of the checkpoint of step 30, which b had: if it is not back within 5 s, the run goes back to step 20"}},
		{"for as long as it takes to do the steps again", unheld(remains{BrokenFor: 20 * time.Second, RedoTime: 20 * time.Second}, 20), verdict{Blocked: "nobody who is up has layer 1 of the checkpoint of step 30, which b had: if it is not back within 20 s, the run goes back to step 20"}},
		{"and no longer", unheld(remains{BrokenFor: 21 * time.Second, RedoTime: 20 * time.Second}, 20), verdict{Rollback: 20, Why: "nobody who is up has layer 1 of the checkpoint of step 30, which b had"}},
		{"nor than a minute", unheld(remains{BrokenFor: mostReturn + 1, RedoTime: time.Hour}, 20), verdict{Rollback: 20, Why: "nobody who is up has layer 1 of the checkpoint of step 30, which b had"}},
		{"longer while another one computes the layer again", unheld(remains{BrokenFor: time.Hour, Restorer: "c", RestoredFrom: 10, RestoringFor: mostReturn}, 20), verdict{Blocked: "nobody who is up has layer 1 of the checkpoint of step 30, which b had: c computes it again from step 10 on"}},
		{"but no longer than a minute, either", unheld(remains{BrokenFor: mostReturn + 1, Restorer: "c", RestoringFor: mostReturn + 1}, 20), verdict{Rollback: 20, Why: "nobody who is up has layer 1 of the checkpoint of step 30, which b had"}},
		{"gives it the time to come where there is no older one", unheld(remains{BrokenFor: leastReturn}, 0), verdict{Blocked: "nobody who is up has layer 1 of the checkpoint of step 30, which b had, and no older one is whole here: waiting for a node that holds a copy"}},
		{"but without end where there is no older one", unheld(remains{BrokenFor: time.Hour}, 0), verdict{Blocked: "nobody who is up has layer 1 of the checkpoint of step 30, which b had, and no older one is whole here; start a node that holds a copy. " + anew}},
		{"goes back at once when who had the checkpoint has left", view{Plan: running, Members: alive("a", "b"), Orphaned: true, Stall: stall{Fallback: 20}}, verdict{Rollback: 20, Why: "who had the checkpoint of step 30 left before others had all of it"}},
		{"but not while another one computes it again", orphan(mostReturn), verdict{Blocked: "who had the checkpoint of step 30 left before others had all of it: c computes it again from step 20 on"}},
		{"for a minute or as long as the steps take", redone(orphan(mostReturn+1), mostReturn+1), verdict{Blocked: "who had the checkpoint of step 30 left before others had all of it: c computes it again from step 20 on"}},
		{"and no longer", orphan(mostReturn + 1), verdict{Rollback: 20, Why: "who had the checkpoint of step 30 left before others had all of it"}},
		{"nor once steps show that others have it", view{Plan: running, Members: alive("a", "b"), Orphaned: true, Newest: 31, Stall: stall{Fallback: 20}}, verdict{}},
		{"then plans from there, before anybody stalls", view{Plan: running, Members: alive("a", "b"), Checkpoint: 20}, verdict{Plan: true, Why: "nobody who is up has all of the checkpoint of step 30"}},
	}.check(t)
}

// TestDecideOnAPause: before a member leaves, or a better plan, the newest step is saved.
func TestDecideOnAPause(t *testing.T) {
	leaving := func(views []memberView, i int) []memberView {
		views[i].Active, views[i].Leaving = false, true
		return views
	}
	steady := unsteady(1)
	decisions{
		{"saves before a member leaves", view{Plan: running, Members: leaving(alive("a", "b"), 1)}, verdict{Pause: true, Why: "b is leaving"}},
		{"waits for that save", view{Plan: running, Members: leaving(alive("a", "b"), 1), pause: pause{Paused: true, SavePatience: time.Minute}, Newest: 33, Checkpoint: 30}, verdict{}},
		{"not content with the one before it", view{Plan: running, Members: leaving(alive("a", "b"), 1), pause: pause{Paused: true, SavePatience: time.Minute}, Newest: 32, Checkpoint: 32}, verdict{}},
		{"for no longer than saves take", view{Plan: running, Members: leaving(alive("a", "b"), 1), pause: pause{Paused: true, PausedFor: 1, SavePatience: 1}, Newest: 1 << 40, Checkpoint: 32}, verdict{}},
		{"then goes on from the one before it", view{Plan: running, Members: leaving(alive("a", "b"), 1), pause: pause{Paused: true, PausedFor: 2, SavePatience: 1}, Newest: 1 << 40, Checkpoint: 32}, verdict{Plan: true, Why: "b is leaving; the newest step was not saved in time"}},
		{"then plans without the leaver", view{Plan: running, Members: leaving(alive("a", "b"), 1), pause: pause{Paused: true, Saved: true}, Checkpoint: 33}, verdict{Plan: true, Why: "b is leaving"}},
		{"ends a pause that an earlier planner asked for", view{Plan: running, Members: alive("a", "b"), pause: pause{Paused: true, Saved: true}, Checkpoint: 33}, verdict{Plan: true, Why: "the plan was paused"}},
		{"does not plan for nobody", view{Plan: running, Members: leaving(leaving(alive("a", "b"), 0), 1)}, verdict{}},
		{"saves before a better plan", view{Plan: running, Members: alive("a", "b", "c"), wish: wish{Better: "c helps"}}, verdict{Pause: true, Why: "c helps"}},
		{"but not while copies are under way, and looks for the plan", view{Plan: running, Members: alive("a", "b", "c"), wish: wish{Better: "c helps", Copying: true, CopiesFor: copyPatience}}, verdict{Prepare: true, Why: "c helps"}},
		{"or for the one after a loss that is near", view{Plan: running, Members: steady, wish: wish{Better: "c helps", Copying: true}}, verdict{Prepare: true, Suspect: "b", Why: "b is gone"}},
		{"nor while a member enters", view{Plan: running, Members: alive("a", "b", "c"), Entering: enterPatience, wish: wish{Better: "c helps"}}, verdict{Prepare: true, Why: "c helps"}},
		{"which may hang", view{Plan: running, Members: alive("a", "b", "c"), Entering: enterPatience + 1, wish: wish{Better: "c helps"}}, verdict{Pause: true, Why: "c helps"}},
		{"but at once where one leaves", view{Plan: running, Members: leaving(alive("a", "b"), 1), Entering: 1}, verdict{Pause: true, Why: "b is leaving"}},
		{"and does not wait for ever", view{Plan: running, Members: alive("a", "b", "c"), wish: wish{Better: "c helps", Copying: true, CopiesFor: copyPatience + 1}}, verdict{Pause: true, Why: "c helps"}},
		{"nor where a member leaves", view{Plan: running, Members: leaving(alive("a", "b"), 1), wish: wish{Better: "b is leaving", Copying: true}}, verdict{Pause: true, Why: "b is leaving"}},
		{"nor where one is gone", view{Plan: running, Members: alive("a", "c"), remains: remains{BrokenFor: salvageGrace + 1}, wish: wish{Better: "c helps", Copying: true}}, verdict{Plan: true, Why: "b is gone"}},
	}.check(t)
}
