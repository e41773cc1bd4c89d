package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// TestACutLedger cuts a ledger at every byte. Its folder's checkpoint or the end of the run tells, the samples of the steps count as lost
// where no other ledger has them, and what the others prove is noted; the others alone tell where the folder says nothing.
func TestACutLedger(t *testing.T) {
	one, two := planOf(1, 0, "a", "b"), planOf(2, 4, "a", "b")
	all := []plan.Micro{0, 1, 2, 3}
	write := func(peer plan.PeerID) func(*Recorder) {
		return func(r *Recorder) {
			r.Plan(one, nil)
			steps(r, one, peer, 1, 4, all...)
			r.Plan(two, nil)
			steps(r, two, peer, 5, 8, all...)
		}
	}
	a, b := records(t, "a", write("a")), records(t, "b", write("b"))
	whole, err := os.ReadFile(filepath.Join(a.Dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	tells := map[string]Reached{"checkpoint is of": {Saved: Position{2, 8}}, "run was finished at": {Saved: Position{2, 6}, Finished: 8}}
	for size := range len(whole) {
		c := Decode(whole[:size])
		own := c.end().Step
		for says, reached := range tells {
			got := Audit(Size{4, 4, 2}, []Node{{a.Dir, reached, c}})
			want := fmt.Sprintf("ends at step %d, its %s step 8: the records of %s are lost: name the folders", own, says, plan.Count(8-int(own), "step"))
			if !slices.ContainsFunc(got.Problems, func(p string) bool { return strings.Contains(p, want) }) || got.Lost != 8*(8-int(own)) || got.Err() == nil {
				t.Fatalf("cut at byte %d of %d: %d samples lost, problems %q, want %q", size, len(whole), got.Lost, got.Problems, want)
			}
			got = Audit(Size{4, 4, 2}, []Node{{a.Dir, reached, c}, b})
			want = fmt.Sprintf("ends at step %d, its %s step 8: the other ledgers prove the steps from %d on", own, says, own+1)
			if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], want) || got.Err() != nil || got.Steps != 8 || got.Lost != 0 {
				t.Fatalf("cut at byte %d of %d, beside another ledger: %d steps, notes %q, problems %q", size, len(whole), got.Steps, got.Notes, got.Problems)
			}
		}
		got := Audit(Size{4, 4, 2}, []Node{{a.Dir, Reached{}, c}, b})
		if noted := len(got.Notes) == 1; noted != (own < 7 && c.Head.Peer != "") || got.Err() != nil {
			t.Fatalf("cut at byte %d of %d, after step %d, beside another ledger alone: notes %q, problems %q", size, len(whole), own, got.Notes, got.Problems)
		}
	}
}

// TestAWholeLedgerIsNotShort: what lies in a folder may be older than its ledger, of steps that were made again, or the state that a
// generation began with; and a member whose work another node took over has no record of it.
func TestAWholeLedgerIsNotShort(t *testing.T) {
	one, again := planOf(1, 0, "a", "b"), planOf(2, 4, "a", "b")
	all := []plan.Micro{0, 1, 2, 3}
	for name, c := range map[string]struct {
		reached Reached
		other   func(*Recorder)
	}{
		"an older checkpoint":                {Reached{Saved: Position{2, 5}}, nil},
		"the newest":                         {Reached{Saved: Position{2, 6}, Finished: 6}, nil},
		"one of steps that were made again":  {Reached{Saved: Position{1, 7}}, nil},
		"the state that a generation has":    {Reached{Saved: Position{3, 6}}, nil},
		"the state that the run begins with": {Reached{Saved: Position{1, 0}}, nil},
		"a replayed worker": {Reached{}, func(r *Recorder) {
			r.Plan(again, nil)
			steps(r, again, "b", 5, 9, all...)
			work := Work{Generation: 2, Worker: plan.WorkerID{Peer: "a", Device: "cpu"}, By: "b", Stages: []StageWork{{plan.StageID{}, plan.LayerRange{First: 0, End: 2}, all}}}
			for s := plan.Step(7); s <= 9; s++ {
				r.Step(work, CommitOf(s, 3+1/float64(s), 1))
			}
		}},
	} {
		n := records(t, "a", func(r *Recorder) {
			r.Plan(one, nil)
			steps(r, one, "a", 1, 7, all...)
			r.Plan(again, nil)
			steps(r, again, "a", 5, 6, all...)
		})
		n.Reached = c.reached
		nodes := []Node{n}
		if c.other != nil {
			nodes = append(nodes, records(t, "b", c.other))
		}
		if got := Audit(size, nodes); len(got.Notes) != 0 || got.Err() != nil {
			t.Errorf("%s: notes %q, problems %q", name, got.Notes, got.Problems)
		}
	}
}

// TestACutWithinStepsMadeAgain: the ledger ends with a generation whose steps were made again, and its checkpoint is of the later one.
func TestACutWithinStepsMadeAgain(t *testing.T) {
	one, again := planOf(1, 0, "a", "b"), planOf(2, 4, "a", "b")
	write := func(last plan.Step) func(*Recorder) {
		return func(r *Recorder) {
			r.Plan(one, nil)
			steps(r, one, "a", 1, 9, 0, 1, 2, 3)
			r.Plan(again, nil)
			steps(r, again, "a", 5, last, 0, 1, 2, 3)
		}
	}
	n := records(t, "a", write(4))
	n.Reached.Saved = Position{2, 7}
	got := Audit(size, []Node{n})
	if want := "ends at step 9, its checkpoint is of step 7: the records of 3 steps are lost"; len(got.Problems) != 1 || !strings.Contains(got.Problems[0], want) || got.Lost != 24 {
		t.Errorf("%d samples lost, problems %q, want %q", got.Lost, got.Problems, want)
	}
}
