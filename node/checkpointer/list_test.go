package checkpointer

import (
	"reflect"
	"testing"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/planner/plan"
)

func TestACheckpointIsAsSafeAsItsWorstLayer(t *testing.T) {
	got := summarize(checkpoint.Manifest{Step: 7, Generation: 2, Layers: []checkpoint.LayerState{
		{Layer: 0, SizeBytes: 10, Holders: []plan.PeerID{"b", "a"}},
		{Layer: 1, SizeBytes: 5, Holders: []plan.PeerID{"c"}},
		{Layer: 2, SizeBytes: 1, Holders: []plan.PeerID{"a", "c"}, Chunks: []plan.Hash{{1}, {2}}},
	}}, func(h plan.Hash) bool { return h != plan.Hash{2} }, func(p plan.PeerID) string { return "node " + string(p) })
	want := api.StoredCheckpoint{Step: 7, Generation: 2, Layers: 3, SizeBytes: 16, Holders: []plan.PeerID{"a", "b", "c"}, HolderNames: []string{"node a", "node b", "node c"}, Copies: 1, Here: 2}
	if !reflect.DeepEqual(got, want) {
		t.Errorf(" got %+v\nwant %+v", got, want)
	}
}
