package checkpointer

import (
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
)

// TestAgesOutliveTheProcess: what is noted first counts, and what is not kept is forgotten.
func TestAgesOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
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
