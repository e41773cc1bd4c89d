package collective

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Tied is the two ends of one replica's tied embedding in one step: the first stage with
// the embedding, the last with the head. The stages differ; the peers may be the same.
type Tied struct {
	Replica    plan.Replica
	Generation plan.Generation
	Step       plan.Step
	Embed      Member
	Head       Member
	// SelfHead says which of the two this worker is.
	SelfHead bool
	// Overflow takes who sent elements out of bounds, where loss scaling may make them; nil: a fault.
	Overflow func(from plan.PeerID, t wire.Tag)
	// Groups counts the sum groups whose gradients are in the sums.
	Groups int
	cut    pieces
}

func (t Tied) tag(to Member) wire.Tag {
	return wire.Tag{Kind: wire.TiedGrad, Generation: t.Generation, Step: t.Step, Replica: t.Replica, Stage: to.Stage}
}

// SumTied replaces grad, this end's gradient of the tied tensor, by embedding + head in
// that order; both ends call it with the same length and end with the same bits. After an
// error grad is undefined.
func SumTied(ctx context.Context, ex Exchange, t Tied, grad []float32) error {
	if t.Embed.Stage == t.Head.Stage {
		return fmt.Errorf("%w: both ends of replica %d are stage %d", ErrBadGroup, t.Replica, t.Embed.Stage)
	}
	self, other := t.Embed, t.Head
	if t.SelfHead {
		self, other = t.Head, t.Embed
	}
	theirs, way := make([]float32, len(grad)), vector{cut: t.cut, self: self.Peer, overflow: t.Overflow, limit: MostSum(t.Groups)}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		return way.send(ctx, ex, other.Peer, t.tag(other), grad)
	})
	work.Go(func() error {
		return way.receive(ctx, ex, other.Peer, t.tag(self), theirs)
	})
	if err := work.Wait(); err != nil {
		return fmt.Errorf("collective: tied gradient of generation %d step %d replica %d stage %d: %w",
			t.Generation, t.Step, t.Replica, self.Stage, err)
	}
	if t.SelfHead {
		add(theirs, grad)
		copy(grad, theirs)
		return nil
	}
	add(grad, theirs)
	return nil
}
