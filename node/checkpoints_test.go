package node

import (
	"reflect"
	"testing"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/planner"
)

func TestACheckpointIsAsSafeAsItsWorstLayer(t *testing.T) {
	got := summarizeManifest(checkpoint.Manifest{Step: 7, Generation: 2, Layers: []checkpoint.LayerState{
		{Layer: 0, SizeBytes: 10, Holders: []planner.PeerID{"b", "a"}},
		{Layer: 1, SizeBytes: 5, Holders: []planner.PeerID{"c"}},
		{Layer: 2, SizeBytes: 1, Holders: []planner.PeerID{"a", "c"}},
	}})
	want := api.StoredCheckpoint{Step: 7, Generation: 2, Layers: 3, SizeBytes: 16, Holders: []planner.PeerID{"a", "b", "c"}, Copies: 1}
	if !reflect.DeepEqual(got, want) {
		t.Errorf(" got %+v\nwant %+v", got, want)
	}
}
