package collective

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
)

// AllReduce replaces grad, one layer's flat gradient, by the sum over the group in replica
// order: ReduceScatter, then AllGather (Patarasuk and Yuan 2009, section 3), 2*(R-1)/R of the
// gradient sent by each member. After an error grad is undefined.
func AllReduce(ctx context.Context, ex Exchange, g Group, grad []float32) error {
	if err := ReduceScatter(ctx, ex, g, grad); err != nil {
		return err
	}
	return AllGather(ctx, ex, g, grad)
}

// ReduceScatter adds grad up over the group in replica order: each replica receives
// everybody's elements of its own part and has the sum of these afterwards; the others are as
// they were. All members call it with the same length; a group of one is left as it is.
func ReduceScatter(ctx context.Context, ex Exchange, g Group, grad []float32) error {
	if err := g.validate(); err != nil {
		return err
	}
	if len(g.Members) == 1 {
		return nil
	}
	self := int(g.Self)
	work, ctx := errgroup.WithContext(ctx)
	// Both go on at once: a send that waits for room must not keep this member from making room.
	work.Go(func() error {
		return g.toOthers(func(k int) error {
			return g.vector().send(ctx, ex, g.Members[k].Peer, g.tag(wire.ReducePart, self, k), g.pack(k, grad))
		})
	})
	work.Go(func() error {
		sum, err := g.sumOwn(ctx, ex, g.pack(self, grad))
		if err == nil {
			g.unpack(self, grad, sum)
		}
		return err
	})
	if err := work.Wait(); err != nil {
		return g.failed("reduce-scatter", err)
	}
	return nil
}

// AllGather hands the own part of v out and fills the others with what their owners have.
func AllGather(ctx context.Context, ex Exchange, g Group, v []float32) error {
	return g.gather(ctx, ex, v, func(int) bool { return true })
}

// GatherFirst is AllGather for replica 0 alone: the others' vectors stay as they are.
func GatherFirst(ctx context.Context, ex Exchange, g Group, v []float32) error {
	return g.gather(ctx, ex, v, func(k int) bool { return k == 0 })
}

func (g Group) failed(phase string, err error) error {
	return fmt.Errorf("collective: %s of generation %d step %d layer %d replica %d: %w", phase, g.Generation, g.Step, g.Layer, g.Self, err)
}

// sumOwn adds up all replicas' elements of the own part, p0+p1+...
func (g Group) sumOwn(ctx context.Context, ex Exchange, own []float32) ([]float32, error) {
	sum, part := make([]float32, len(own)), make([]float32, len(own))
	for k, m := range g.Members {
		from := own
		if k != int(g.Self) {
			if err := g.vector().receive(ctx, ex, m.Peer, g.tag(wire.ReducePart, k, int(g.Self)), part); err != nil {
				return nil, fmt.Errorf("part of replica %d: %w", k, err)
			}
			from = part
		}
		if k == 0 {
			copy(sum, from)
			continue
		}
		add(sum, from)
	}
	return sum, nil
}

// gather hands the own part of v to those that want it.
func (g Group) gather(ctx context.Context, ex Exchange, v []float32, wants func(k int) bool) error {
	if err := g.validate(); err != nil {
		return err
	}
	self := int(g.Self)
	work, ctx := errgroup.WithContext(ctx)
	own := g.pack(self, v)
	work.Go(func() error {
		return g.cut.each(own, func(number int, piece []float32) error {
			payload, err := g.sums().payload(numbered(g.tag(wire.GatherPart, self, self), number), piece)
			if err != nil {
				return err
			}
			return g.toOthers(func(k int) error {
				if !wants(k) {
					return nil
				}
				return ex.Send(ctx, g.Members[k].Peer, wire.Frame{Tag: numbered(g.tag(wire.GatherPart, self, k), number), Payload: payload})
			})
		})
	})
	if wants(self) {
		work.Go(func() error {
			return g.toOthers(func(k int) error {
				part := make([]float32, g.partLen(k, len(v)))
				if err := g.sums().receive(ctx, ex, g.Members[k].Peer, g.tag(wire.GatherPart, k, self), part); err != nil {
					return fmt.Errorf("part of replica %d: %w", k, err)
				}
				g.unpack(k, v, part)
				return nil
			})
		})
	}
	if err := work.Wait(); err != nil {
		return g.failed("gather", err)
	}
	return nil
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
