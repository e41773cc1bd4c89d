package checkpoint

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"pnode/planner/plan"
)

func TestVerify(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Self: "me"})
	good, bad, gone, pinned := put(t, s, []byte("good")), put(t, s, []byte("bad")), put(t, s, []byte("gone")), put(t, s, []byte("pinned"))
	mine := func(layer int, h plan.Hash, size int64, holders ...plan.PeerID) LayerState {
		return LayerState{Layer: layer, SizeBytes: size, Chunks: []plan.Hash{h}, Holders: holders}
	}
	for _, m := range []Manifest{
		{Run: "r", Step: 1, Generation: 1, Layers: []LayerState{mine(0, good, 4), mine(1, plan.Hash{7}, 9, "you")}},
		{Run: "r", Step: 2, Generation: 1, Layers: []LayerState{mine(0, good, 4), mine(1, bad, 3, "me", "you")}},
		{Run: "r", Step: 3, Generation: 2, Layers: []LayerState{mine(0, good, 4), mine(1, gone, 4)}},
	} {
		if err := s.Commit(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Pin("data", []plan.Hash{pinned, good}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Verify(t.Context(), nil)
	if err != nil || !r.OK() || r.Chunks != 4 || r.Bytes != 17 || len(r.Manifests) != 3 {
		t.Fatalf("whole: %+v, %v", r, err)
	}
	flip(t, s.chunks.path(bad), 1)
	if err := os.Remove(s.chunks.path(gone)); err != nil {
		t.Fatal(err)
	}
	var last Progress
	r, err = s.Verify(t.Context(), func(p Progress) {
		if p.Chunks != last.Chunks+1 || p.TotalChunks != 5 {
			t.Errorf("progress %+v after %+v", p, last)
		}
		last = p
	})
	if err != nil || r.OK() {
		t.Fatalf("damaged: %+v, %v", r, err)
	}
	if last.Chunks != 5 || r.Chunks != 2 || r.Bytes != 10 {
		t.Errorf("progress %+v, report %+v", last, r)
	}
	if len(r.Missing) != 1 || r.Missing[0] != gone || len(r.Corrupt) != 1 || r.Corrupt[0] != bad {
		t.Errorf("missing %v, corrupt %v", r.Missing, r.Corrupt)
	}
	want := []ManifestReport{
		{Step: 3, Generation: 2, Layers: 2, Here: 1},
		{Step: 2, Generation: 1, Layers: 2, Here: 1},
		{Step: 1, Generation: 1, Layers: 2, Here: 1, OK: true},
	}
	for i := range want {
		if r.Manifests[i] != want[i] {
			t.Errorf("manifest %+v, want %+v", r.Manifests[i], want[i])
		}
	}
}

func TestVerifyStops(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	if err := s.Pin("data", []plan.Hash{put(t, s, []byte("a")), put(t, s, []byte("b"))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.Verify(ctx, func(Progress) { cancel() })
	if !errors.Is(err, context.Canceled) || r.Chunks != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if len(s.guard.held) != 0 {
		t.Errorf("still held: %v", s.guard.held)
	}
}

func TestVerifyTellsADamagedIndexRecord(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, []byte("state"))
	if err := s.Commit(oneChunk(1, h, 5)); err != nil {
		t.Fatal(err)
	}
	if err := s.catalog.apply([]Op{{Key: pinKey("p"), Value: make([]byte, 31)}}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Verify(t.Context(), nil)
	if err != nil || !errors.Is(r.Damaged, ErrCorrupt) || r.OK() || r.Chunks != 1 || !r.Manifests[0].OK {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestVerifyTellsAnUnfinishedCopy: what was being fetched when its node ended is no damage, unless the node held it already.
func TestVerifyTellsAnUnfinishedCopy(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Self: "me", Coming: func(pin string) bool { return pin == "whole" }})
	mine, come, held := put(t, s, []byte("mine")), put(t, s, []byte("come")), put(t, s, []byte("held"))
	layer := func(layer int, h plan.Hash, holder plan.PeerID) LayerState {
		return LayerState{Layer: layer, SizeBytes: 4, Chunks: []plan.Hash{h}, Holders: []plan.PeerID{holder}}
	}
	newest := Manifest{Run: "r", Step: 5, Generation: 1, Layers: []LayerState{
		layer(0, mine, "me"), layer(1, come, "you"), layer(2, plan.Hash{7}, "you"), layer(3, held, "me"),
	}}
	if err := errors.Join(s.Commit(newest), s.Pin("whole", newest.Hashes())); err != nil {
		t.Fatal(err)
	}
	r, err := s.Verify(t.Context(), nil)
	if want := []Unfinished{{Step: 5, Here: 3, Chunks: 4}}; err != nil || !r.OK() || !slices.Equal(r.Unfinished, want) {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.Remove(r.Path(held)); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Verify(t.Context(), nil); err != nil || r.OK() || !slices.Equal(r.Missing, []plan.Hash{held}) {
		t.Errorf("a chunk that this node held: %+v, %v", r, err)
	}
}
