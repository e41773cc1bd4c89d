package ledger

import (
	"log/slog"
	"testing"

	"pnode/planner/plan"
)

// TestWhatOthersMayAskFor: a node answers with what its own workers took, also after a restart, and never with what it was told.
func TestWhatOthersMayAskFor(t *testing.T) {
	dir := t.TempDir()
	begin := func() *Recorder {
		return New(dir, Head{Run: "run", Peer: "a", Name: "a"}, slog.New(slog.DiscardHandler))
	}
	one, two, three := planOf(1, 0, "a", "b"), planOf(2, 4, "b", "c"), planOf(3, 8, "a", "c")
	r := begin()
	r.Plan(one, nil)
	steps(r, one, "a", 1, 5, 0, 1, 2, 3)
	r.Plan(two, nil)
	told(r, two, "b", 5, 8, 0)
	r.Plan(three, nil)
	steps(r, three, "a", 9, 9+2*MaxWord, 0, 1, 2, 3)
	for range 2 {
		for after, want := range map[Position][2]Position{
			{}:                     {{1, 1}, {3, 8 + MaxWord - 5}},
			{1, 4}:                 {{1, 5}, {3, 8 + MaxWord - 1}},
			{2, 6}:                 {{3, 9}, {3, 8 + MaxWord}},
			{3, 9 + 2*MaxWord - 1}: {{3, 9 + 2*MaxWord}, {3, 9 + 2*MaxWord}},
		} {
			w := r.Since(after, nil)
			first, last := w.Commits[0].Position(), w.Commits[len(w.Commits)-1].Position()
			if first != want[0] || last != want[1] {
				t.Errorf("after %v: %v to %v, want %v", after, first, last, want)
			}
			for _, p := range w.Plans {
				if p.Generation == 2 {
					t.Errorf("after %v: a plan in which it had no part", after)
				}
			}
		}
		if got := r.Since(r.End(), nil); len(got.Commits) != 0 || r.End() != (Position{3, 9 + 2*MaxWord}) {
			t.Errorf("after the end, %v, there are %d commits", r.End(), len(got.Commits))
		}
		if _, ok := r.PlanOf(2); !ok {
			t.Error("it does not know a plan of the log")
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		r = begin()
	}
}

// TestAMemoryIsBounded: the newest commits and plans stay.
func TestAMemoryIsBounded(t *testing.T) {
	m := newMemory()
	for g := range plan.Generation(2 * maxMemoryPlans) {
		m.plan(Planned{Plan: plan.Plan{Generation: g + 1}})
	}
	for s := range plan.Step(4 * maxMemory) {
		m.took(Work{Generation: 2 * maxMemoryPlans}, CommitOf(s+1, 1, 1))
	}
	if n := len(m.commits); n < maxMemory || n > 2*maxMemory || len(m.plans) != maxMemoryPlans || m.end.Step != 4*maxMemory {
		t.Errorf("%d commits and %d plans are kept, to %v", n, len(m.plans), m.end)
	}
}
