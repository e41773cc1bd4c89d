package consensus

import (
	"errors"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestWhoRestoresALayerFollowsFromTheLog: nobody while somebody holds it, then who has most of it in the checkpoint before, of those that
// made the newest one; and only that member may say that it has the layer again.
func TestWhoRestoresALayerFollowsFromTheLog(t *testing.T) {
	layer := func(l int, holders ...plan.PeerID) LayerRef {
		return LayerRef{Layer: l, SizeBytes: 1, Chunks: []plan.Hash{{byte(l)}}, Holders: holders}
	}
	s := State{
		Run:        &plan.RunSpec{Model: model.Config{Blocks: 1}, Train: plan.TrainSpec{Steps: 100}},
		Members:    []Member{{Peer: "a", State: Active}, {Peer: "b", State: Active}, {Peer: "c", State: Active}, {Peer: "d", State: Active}},
		Checkpoint: Checkpoint{Step: 20, Generation: 1, Layers: []LayerRef{layer(0, "a", "d"), layer(1, "b"), layer(2, "c")}},
		Older:      []Checkpoint{{Step: 10, Generation: 1, Layers: []LayerRef{layer(0, "a", "b"), layer(1, "b", "c"), layer(2, "c", "b")}}},
		Plan: plan.Plan{Generation: 2, Start: 20, Replicas: []plan.Pipeline{{Stages: []plan.Placement{
			{Peer: "a", Holder: "b", Layers: plan.LayerRange{End: 1}}, {Peer: "d", Holder: "a", Layers: plan.LayerRange{First: 1, End: 3}},
		}}}},
	}
	lose := func(s State, peer plan.PeerID) State {
		m, _ := s.Member(peer)
		m.State = Gone
		return s.withMember(m)
	}
	want := func(name string, s State, by plan.PeerID, lost ...int) {
		t.Helper()
		if got, layers := Restoration(s); got != by || !slices.Equal(layers, lost) {
			t.Errorf("%s: %q restores %v, want %q %v", name, got, layers, by, lost)
		}
	}
	if Secured(s) {
		t.Error("layers that one member holds are secured")
	}
	want("all live", s, "")
	one := lose(s, "c")
	want("one is lost", one, "b", 2)
	want("who holds the older one is lost, too", lose(one, "b"), "")
	without := one
	without.Older = nil
	want("there is no older one", without, "")
	again := StageSaved{Step: 20, Generation: 1, Layers: []LayerRef{layer(2, "b")}}
	if err := Authorize(one, Author{Peer: "b"}, again); err != nil {
		t.Error(err)
	}
	other := again
	other.Layers = []LayerRef{layer(2, "a")}
	if err := Authorize(one, Author{Peer: "a"}, other); err == nil {
		t.Error("another member may say that it has the layer")
	}
	restored, err := again.apply(one)
	if err != nil {
		t.Fatal(err)
	}
	want("it is restored", restored, "")
	again.Layers[0].Chunks = []plan.Hash{{9}}
	if _, err := again.apply(one); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("other contents are taken: %v", err)
	}
}
