package node

import (
	"testing"
	"time"

	"pnode/planner"
)

// TestDecide walks the planner's rule case by case: from plain views to one verdict.
func TestDecide(t *testing.T) {
	running := planner.Plan{Generation: 3, Replicas: []planner.Pipeline{{Stages: []planner.Placement{{Peer: "a"}, {Peer: "b"}}}}}
	alive := func(peers ...planner.PeerID) []memberView {
		var views []memberView
		for _, p := range peers {
			views = append(views, memberView{Peer: p, Active: true})
		}
		return views
	}
	leaving := func(views []memberView, i int) []memberView {
		views[i].Active, views[i].Leaving = false, true
		return views
	}
	reborn := func(views []memberView) []memberView {
		views[1].Reborn = true
		return views
	}
	silent := alive("a", "b")
	silent[1].Silent = deadAfter + time.Second

	for _, c := range []struct {
		name string
		view leadView
		want verdict
	}{
		{"waits for the asked number of nodes", leadView{Members: alive("a", "b"), MinNodes: 3}, verdict{}},
		{"plans when they are there", leadView{Members: alive("a", "b"), MinNodes: 2}, verdict{Plan: true, Why: "first plan"}},
		{"leaves a good plan alone", leadView{Plan: running, Members: alive("a", "b")}, verdict{}},
		{"marks the silent gone before anything else", leadView{Plan: running, Members: silent, Better: true}, verdict{Gone: "b", Why: "no sign of life for 6s"}},
		{"plans at once without the dead", leadView{Plan: running, Members: alive("a", "c")}, verdict{Plan: true, Why: "b is gone, or was started again"}},
		{"plans anew with a member that was started again", leadView{Plan: running, Members: reborn(alive("a", "b"))}, verdict{Plan: true, Why: "b is gone, or was started again"}},
		{"plans again after a stall", leadView{Plan: running, Members: alive("a", "b"), StalledFor: stallGrace + 1, StallWhy: "lost", Patience: stallGrace}, verdict{Plan: true, Why: "a member gave the generation up: lost"}},
		{"gives a lost peer time to show first", leadView{Plan: running, Members: alive("a", "b"), StalledFor: stallGrace, Patience: stallGrace}, verdict{}},
		{"saves before a member leaves", leadView{Plan: running, Members: leaving(alive("a", "b"), 1)}, verdict{Save: true, Why: "b is leaving"}},
		{"waits for that save", leadView{Plan: running, Members: leaving(alive("a", "b"), 1), Asked: true, SavedFor: 20, Checkpoint: 20}, verdict{}},
		{"then plans without the leaver", leadView{Plan: running, Members: leaving(alive("a", "b"), 1), Asked: true, SavedFor: 20, Checkpoint: 21}, verdict{Plan: true, Why: "b is leaving"}},
		{"does not plan for nobody", leadView{Plan: running, Members: leaving(leaving(alive("a", "b"), 0), 1)}, verdict{}},
		{"saves before a better plan", leadView{Plan: running, Members: alive("a", "b", "c"), Better: true, BetterWhy: "c helps"}, verdict{Save: true, Why: "c helps"}},
		{"does nothing at the end of a run", leadView{Plan: running, Members: silent, Ending: true}, verdict{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := decide(c.view); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzDecodeBeat(f *testing.F) {
	f.Add(Beat{Peer: "a", Phase: "training", Generation: 2, Step: 7, Loss: 3.5, Stages: []BeatStage{{Stage: 1}}}.encode())
	f.Add([]byte(`{"peer":`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBeat(data)
		if err != nil {
			return
		}
		again, err := decodeBeat(b.encode())
		if err != nil {
			t.Fatalf("own encoding is refused: %v", err)
		}
		if again.Peer != b.Peer || again.Step != b.Step || len(again.Stages) != len(b.Stages) {
			t.Fatalf("round trip changed %+v to %+v", b, again)
		}
	})
}
