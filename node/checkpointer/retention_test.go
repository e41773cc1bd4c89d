package checkpointer

import (
	"slices"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestTheWayBackIsKept: the checkpoints that the log may go back to stay, whatever is asked for; those of after it
// go, unless they were made once more.
func TestTheWayBackIsKept(t *testing.T) {
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{Self: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := &Checkpointer{Config: Config{Self: "a", Store: store}}
	at := func(g plan.Generation, step plan.Step, older ...plan.Step) {
		t.Helper()
		s := consensus.State{Run: &plan.RunSpec{Run: "r", Train: plan.TrainSpec{KeepCheckpoints: 1}}, Checkpoint: consensus.Checkpoint{Step: step, Generation: g}}
		for _, o := range older {
			s.Older = append(s.Older, consensus.Checkpoint{Step: o})
		}
		if err := c.Commit(s); err != nil {
			t.Fatal(err)
		}
	}
	want := func(steps ...plan.Step) {
		t.Helper()
		kept, err := store.Manifests()
		var got []plan.Step
		for _, m := range kept {
			got = append(got, m.Step)
		}
		if err != nil || !slices.Equal(got, steps) {
			t.Errorf("kept are %v, want %v: %v", got, steps, err)
		}
	}
	at(0, 0) // a run that ends before its first checkpoint
	want()
	for step := plan.Step(1); step < 30; step++ {
		at(1, step)
	}
	want(29)
	at(1, 30, 29)
	at(1, 31, 29)
	want(31, 29)
	at(1, 29) // the run went back
	want(31, 29)
	if err := c.GiveUp(29, 1); err != nil {
		t.Fatal(err)
	}
	want(29)
	at(2, 30)
	at(2, 31)
	if err := c.GiveUp(29, 1); err != nil { // the log is read again
		t.Fatal(err)
	}
	want(31)
}

// TestAgesOutliveTheProcess: what is noted first counts, and what is not kept is forgotten.
func TestAgesOutliveTheProcess(t *testing.T) {
	dir := quickDir(t)
	open := func() *checkpoint.Store {
		t.Helper()
		store, err := checkpoint.Open(dir, checkpoint.Options{Self: "a"})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := open()
	first, second := ID{5, 1}, ID{10, 2}
	for i, id := range []ID{first, second, first} {
		if err := agesIn(store).note(id, time.Unix(int64(100+i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = open()
	defer store.Close()
	want := func(id ID, at time.Time) {
		t.Helper()
		if got, err := agesIn(store).of(id); err != nil || !got.Equal(at) {
			t.Errorf("%+v is known since %v, want %v; %v", id, got, at, err)
		}
	}
	want(first, time.Unix(100, 0))
	want(second, time.Unix(101, 0))
	kept := checkpoint.Manifest{Step: plan.Step(second.Step), Generation: second.Generation}
	if err := agesIn(store).retain([]checkpoint.Manifest{kept}); err != nil {
		t.Fatal(err)
	}
	want(first, time.Time{})
	want(second, time.Unix(101, 0))
}
