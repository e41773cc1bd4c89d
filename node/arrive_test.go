package node

import (
	"context"
	"testing"
	"time"
)

// TestOneNodeIsEnoughToSayThatTheRunHasEnded: whoever comes back needs no majority for that.
func TestOneNodeIsEnoughToSayThatTheRunHasEnded(t *testing.T) {
	n := &Node{beats: newTracker()}
	n.beats.note(Beat{Peer: "a", Phase: Training.String(), Step: 5}, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if step := n.awaitFinished(ctx); step != 0 {
		t.Errorf("a node that trains says that the run was finished at step %d", step)
	}
	told := make(chan int)
	go func() { told <- int(n.awaitFinished(t.Context())) }()
	beat, err := decodeBeat(Beat{Peer: "b", Phase: Stopped.String(), Finished: 40}.encode())
	if err != nil {
		t.Fatal(err)
	}
	n.beats.note(beat, time.Now())
	if step := <-told; step != 40 {
		t.Errorf("the run was finished at step %d, want 40", step)
	}
}
