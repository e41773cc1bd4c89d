package collective

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
)

// AllReduce replaces grad, one layer's flat gradient, by the sum over the group in replica
// order. Replica k owns the k-th of R nearly equal ranges: it receives everybody's part of
// it, adds them up and hands the sum out (reduce-scatter, all-gather: Patarasuk and Yuan
// 2009, section 3), 2*(R-1)/R of the gradient sent by each member. All members call it
// with the same length; a group of one is left as it is. After an error grad is undefined.
func AllReduce(ctx context.Context, ex Exchange, g Group, grad []float32) error {
	if err := g.validate(); err != nil {
		return err
	}
	if len(g.Members) == 1 {
		return nil
	}
	if err := g.reduceScatter(ctx, ex, grad); err != nil {
		return g.failed("reduce-scatter", err)
	}
	if err := g.allGather(ctx, ex, grad); err != nil {
		return g.failed("all-gather", err)
	}
	return nil
}

func (g Group) failed(phase string, err error) error {
	return fmt.Errorf("collective: %s of generation %d step %d layer %d replica %d: %w", phase, g.Generation, g.Step, g.Layer, g.Self, err)
}

// reduceScatter leaves the sum of the own range in grad. Sending and receiving go on at
// once: a send that waits for room must not keep this member from making room.
func (g Group) reduceScatter(ctx context.Context, ex Exchange, grad []float32) error {
	self := int(g.Self)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		return g.toOthers(func(k int) error {
			first, end := g.part(k, len(grad))
			f := wire.Frame{Tag: g.tag(wire.ReducePart, self, k), Payload: wire.AppendF32(nil, grad[first:end])}
			return ex.Send(ctx, g.Members[k].Peer, f)
		})
	})
	work.Go(func() error {
		first, end := g.part(self, len(grad))
		return g.sumOwn(ctx, ex, grad[first:end])
	})
	return work.Wait()
}

// sumOwn adds up all replicas' parts of the own range, p0+p1+...
func (g Group) sumOwn(ctx context.Context, ex Exchange, own []float32) error {
	sum, part := make([]float32, len(own)), make([]float32, len(own))
	for k, m := range g.Members {
		from := own
		if k != int(g.Self) {
			payload, err := ex.Receive(ctx, m.Peer, g.tag(wire.ReducePart, k, int(g.Self)))
			if err != nil {
				return err
			}
			if err := wire.DecodeF32(part, payload); err != nil {
				return fmt.Errorf("part of replica %d: %w", k, err)
			}
			from = part
		}
		if k == 0 {
			copy(sum, from)
			continue
		}
		add(sum, from)
	}
	copy(own, sum)
	return nil
}

// allGather hands the own range out and fills the other ranges of grad.
func (g Group) allGather(ctx context.Context, ex Exchange, grad []float32) error {
	self := int(g.Self)
	first, end := g.part(self, len(grad))
	payload := wire.AppendF32(nil, grad[first:end])
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		return g.toOthers(func(k int) error {
			return ex.Send(ctx, g.Members[k].Peer, wire.Frame{Tag: g.tag(wire.GatherPart, self, k), Payload: payload})
		})
	})
	work.Go(func() error {
		return g.toOthers(func(k int) error {
			payload, err := ex.Receive(ctx, g.Members[k].Peer, g.tag(wire.GatherPart, k, self))
			if err != nil {
				return err
			}
			first, end := g.part(k, len(grad))
			if err := wire.DecodeF32(grad[first:end], payload); err != nil {
				return fmt.Errorf("sum of replica %d: %w", k, err)
			}
			return nil
		})
	})
	return work.Wait()
}

// toOthers calls f for every other replica, the next one first, so that the members do
// not all turn to the same one.
func (g Group) toOthers(f func(k int) error) error {
	for i := 1; i < len(g.Members); i++ {
		if err := f((int(g.Self) + i) % len(g.Members)); err != nil {
			return err
		}
	}
	return nil
}

// add adds x to sum, element by element.
func add(sum, x []float32) {
	for i := range sum {
		sum[i] += x[i]
	}
}
