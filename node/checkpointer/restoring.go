package checkpointer

import (
	"context"
	"io"
	"slices"
	"time"

	"pnode/swarm/consensus"
)

// restorePatience bounds the wait for a layer that another member computes again.
const restorePatience = 20 * time.Second

// lost returns whether a state has layers of the plan's start computed again, since nobody holds them any more.
func (s PlanSaver) lost(layers ...int) func(consensus.State) bool {
	return func(state consensus.State) bool {
		if state.Checkpoint.Step != s.plan.Start || len(consensus.Restore(state).By) == 0 {
			return false
		}
		lost := state.Checkpoint.Lost(state)
		return slices.ContainsFunc(layers, func(l int) bool { return slices.Contains(lost, l) })
	}
}

// untilLost returns a context that ends when some layers are lost: asking a member that is gone costs a timeout.
func (s PlanSaver) untilLost(ctx context.Context, layers ...int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		defer cancel()
		_ = consensus.Await(ctx, s.Consensus, s.lost(layers...))
	}()
	return ctx, func() {
		cancel()
		<-watching
	}
}

// streamRestored is stream for chunks of a layer that may be lost, and restored then.
func (s PlanSaver) streamRestored(ctx context.Context, l consensus.LayerRef, dst io.Writer) error {
	fetching, free := s.untilLost(ctx, l.Layer)
	err := s.Fetcher.Ensure(fetching, l.Chunks, l.Holders)
	free()
	if err != nil && (ctx.Err() != nil || !s.restored(ctx, l.Layer)) {
		return s.unread(l, err)
	}
	return s.stream(ctx, l, dst)
}

// restored waits until a layer that was lost is held again. It returns false where it was not lost, or is not held in time.
func (s PlanSaver) restored(ctx context.Context, layer int) bool {
	lost := s.lost(layer)
	if !lost(s.Consensus.State()) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, restorePatience)
	defer cancel()
	return consensus.Await(ctx, s.Consensus, func(now consensus.State) bool { return !lost(now) }) == nil
}
