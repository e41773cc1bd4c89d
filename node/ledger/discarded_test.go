package ledger

import (
	"reflect"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// alonePlan returns a plan of one stage on one node.
func alonePlan(g plan.Generation, start plan.Step, peer plan.PeerID) plan.Plan {
	p := planOf(g, start, peer, peer)
	p.Replicas[0].Stages = []plan.Placement{{Peer: peer, Device: "cpu", Layers: plan.LayerRange{First: 0, End: 4}}}
	return p
}

// TestARecoveredRun: while the founder a was away, b recovered the run and went on. The founder made a generation of its own before it
// heard of that, and followed. Each folder and all together prove every step, and the founder's own generation is discarded.
func TestARecoveredRun(t *testing.T) {
	first, alone, own, both := planOf(1, 0, "a", "b"), alonePlan(2, 4, "b"), alonePlan(2, 4, "a"), planOf(3, 8, "a", "b")
	recovered := plan.Partings{{Recovery: "r", Generation: 1}}
	founder := func(r *Recorder) {
		r.Plan(first, nil)
		steps(r, first, "a", 1, 6, all...)
		r.Plan(own, nil)
		steps(r, own, "a", 5, 10, all...)
	}
	follows := func(r *Recorder) {
		founder(r)
		r.Follow(recovered)
		if times, back := r.GivenUp(); r.End() != (Position{1, 6}) || back != r.End() || times != 1 {
			t.Errorf("the end is %v, given up %d times: want what both lineages share", r.End(), times)
		}
		if w := r.Since(Position{1, 5}, r.Lineage()); len(w.Commits) != 1 || w.Commits[0].Generation != 1 {
			t.Errorf("others are told of %v", w.Commits)
		}
		r.Follow(recovered) // nothing more
		told(r, alone, "b", 5, 8, 0)
		r.Plan(both, nil)
		steps(r, both, "a", 9, 12, all...)
	}
	other := func(r *Recorder) {
		r.Plan(first, nil)
		steps(r, first, "b", 1, 6, all...)
		r.Follow(recovered)
		r.Plan(alone, nil)
		steps(r, alone, "b", 5, 8, all...)
		r.Plan(both, nil)
		steps(r, both, "b", 9, 12, all...)
	}
	a, b := records(t, "a", follows), records(t, "b", other)
	a.Reached.Saved = Position{2, 10}
	discarded := []Discarded{{"a", 2, 5, 10}}
	for name, c := range map[string]struct {
		nodes     []Node
		discarded []Discarded
	}{"the founder": {[]Node{a}, discarded}, "the other": {[]Node{b}, nil}, "both": {[]Node{a, b}, discarded}} {
		got := Audit(size, c.nodes)
		if got.Err() != nil || got.Steps != 12 || got.Lost+got.Doubled != 0 || !reflect.DeepEqual(got.Discarded, c.discarded) || len(got.Differences)+len(got.Notes) > 0 {
			t.Errorf("%s: %v, %d steps, discarded %v, notes %q", name, got.Err(), got.Steps, got.Discarded, got.Notes)
		}
	}
	// Before it is started again, the audit cannot know which of the two the run is, and says what helps.
	if err := Audit(size, []Node{records(t, "a", founder), b}).Err(); err == nil || !strings.Contains(err.Error(), "b has another plan of generation 2 than the others: the run was recovered between them; start the node that was away once") {
		t.Errorf("a founder that has not followed: %v", err)
	}
	// A start reads what it followed, and what it may tell, from the ledger.
	if m := recall(a.Dir); m.end != (Position{3, 12}) || !reflect.DeepEqual(m.lineage, recovered) || len(m.commits) != 10 || m.plans[2].Generation != 0 {
		t.Errorf("after a start: to %v, %d commits, lineage %v, plan %v", m.end, len(m.commits), m.lineage, m.plans[2])
	}
}

// TestAWeakRecoveryComesBack: b recovered the run, nobody had to believe it, and it came back to the lineage of before.
func TestAWeakRecoveryComesBack(t *testing.T) {
	first, alone, own := planOf(1, 0, "a", "b"), alonePlan(2, 4, "b"), alonePlan(2, 4, "a")
	b := records(t, "b", func(r *Recorder) {
		r.Plan(first, nil)
		steps(r, first, "b", 1, 6, all...)
		r.Follow(plan.Partings{{Recovery: "r", Generation: 1}})
		r.Plan(alone, nil)
		steps(r, alone, "b", 5, 9, all...)
		r.Follow(nil)
		told(r, own, "a", 5, 7, 0)
	})
	a := records(t, "a", func(r *Recorder) {
		r.Plan(first, nil)
		steps(r, first, "a", 1, 6, all...)
		r.Plan(own, nil)
		steps(r, own, "a", 5, 7, all...)
	})
	for name, nodes := range map[string][]Node{"both": {a, b}, "the one that came back": {b}} {
		if got := Audit(size, nodes); got.Err() != nil || got.Steps != 7 || !reflect.DeepEqual(got.Discarded, []Discarded{{"b", 2, 5, 9}}) {
			t.Errorf("%s: %v, %d steps, discarded %v", name, got.Err(), got.Steps, got.Discarded)
		}
	}
}

// TestALieAboutARecovery: a member says that the run was recovered without a generation in which it added a micro-batch twice.
func TestALieAboutARecovery(t *testing.T) {
	first, second := planOf(1, 0, "a", "b"), planOf(2, 4, "a", "b")
	liar := func(after func(*Recorder)) Node {
		return records(t, "a", func(r *Recorder) {
			r.Plan(first, nil)
			steps(r, first, "a", 1, 4, all...)
			r.Plan(second, nil)
			steps(r, second, "a", 5, 8, 0, 1, 2, 3, 3)
			r.Follow(plan.Partings{{Recovery: "r", Generation: 1}})
			after(r)
		})
	}
	b := records(t, "b", func(r *Recorder) {
		r.Plan(first, nil)
		steps(r, first, "b", 1, 4, all...)
		r.Plan(second, nil)
		steps(r, second, "b", 5, 8, all...)
	})
	witness := records(t, "c", func(r *Recorder) { r.Plan(first, nil); r.Plan(second, nil); told(r, second, "a", 5, 8, 0) })
	for name, c := range map[string]struct {
		nodes []Node
		want  string
	}{
		"beside another member of the plan":   {[]Node{liar(func(*Recorder) {}), b}, "step 5 of generation 2: 0 samples lost, 2 doubled"},
		"beside a node that was told":         {[]Node{liar(func(*Recorder) {}), witness}, "step 5 of generation 2: 0 samples lost, 2 doubled"},
		"with another plan of the generation": {[]Node{liar(func(r *Recorder) { r.Plan(alonePlan(2, 4, "a"), nil) }), b}, "a has another plan of generation 2 than the others"},
	} {
		if got := Audit(size, c.nodes); got.Err() == nil || !strings.Contains(got.Err().Error(), c.want) || len(got.Discarded) > 0 {
			t.Errorf("%s: %v, discarded %v; want %q", name, got.Err(), got.Discarded, c.want)
		}
	}
}
