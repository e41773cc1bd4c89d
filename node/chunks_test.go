package node

import (
	"slices"
	"testing"

	"pnode/planner"
)

func TestLivingHoldersAreAskedFirstAndTheDeadLast(t *testing.T) {
	f := chunkFetcher{self: "me", living: func() []planner.PeerID { return []planner.PeerID{"a", "b", "me"} }}
	got := f.order([]planner.PeerID{"dead", "b", "me"})
	want := []planner.PeerID{"b", "a", "dead"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
