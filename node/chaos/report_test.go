package chaos

import (
	"testing"
	"time"
)

// TestNodesUp: who joined is beside the nodes that the run began with.
func TestNodesUp(t *testing.T) {
	for up, want := range map[float64]string{5: "5 of 5 nodes", 4.5: "4.5 of 5 nodes", 6: "5 nodes and 1 that joined"} {
		if got := nodesUp(up, 5); got != want {
			t.Errorf("%g up: %q, want %q", up, got, want)
		}
	}
}

// TestStillText: who watches a run that stands learns when it is given up.
func TestStillText(t *testing.T) {
	for still, want := range map[time.Duration]string{
		2*reportEvery - 1: "",
		2 * reportEvery:   "; none after step 12 for 10 s: the run has failed after 2 min",
	} {
		if got := stillText(12, still); got != want {
			t.Errorf("%v: %q, want %q", still, got, want)
		}
	}
}
