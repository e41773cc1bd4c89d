package node

import (
	"context"
	"testing"
	"time"

	"pnode/node/gossip"
)

// TestOneNodeIsEnoughToSayThatTheRunHasEnded: whoever comes back needs no majority for that.
func TestOneNodeIsEnoughToSayThatTheRunHasEnded(t *testing.T) {
	heard := gossip.NewTracker()
	heard.Note(gossip.Heartbeat{Peer: "a", Phase: string(Training), Step: 5}, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if step := awaitFinished(ctx, heard); step != 0 {
		t.Errorf("a node that trains says that the run was finished at step %d", step)
	}
	told := make(chan int)
	go func() { told <- int(awaitFinished(t.Context(), heard)) }()
	heard.Note(gossip.Heartbeat{Peer: "b", Phase: string(Stopped), Finished: 40}, time.Now())
	if step := <-told; step != 40 {
		t.Errorf("the run was finished at step %d, want 40", step)
	}
}
