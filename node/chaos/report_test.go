package chaos

import "testing"

// TestNodesUp: who joined is beside the nodes that the run began with.
func TestNodesUp(t *testing.T) {
	for up, want := range map[float64]string{5: "5 of 5 nodes", 4.5: "4.5 of 5 nodes", 6: "5 nodes and 1 that joined"} {
		if got := nodesUp(up, 5); got != want {
			t.Errorf("%g up: %q, want %q", up, got, want)
		}
	}
}
