package collective

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// AllReduce replaces the last of a member's vectors by the sum of all members' gradients: ReduceScatter,
// then AllGather (Patarasuk and Yuan 2009, section 3), 2*(R-1)/R of the gradient sent by each member
// whose groups are one subtree. After an error the vectors are undefined.
func AllReduce(ctx context.Context, ex Exchange, g Group, grads [][]float32) error {
	if err := ReduceScatter(ctx, ex, g, grads); err != nil {
		return err
	}
	return AllGather(ctx, ex, g, grads[len(grads)-1])
}

// ReduceScatter adds gradients up over the group in the order of g.Sums. Each member brings the sums of
// the subtrees of its groups, one layer's flat gradient each. It receives everybody's elements of its
// own part. The last of its vectors has the sum of these afterwards; the rest of them are undefined. A
// group of one has its sum already. All members call it with vectors of the same length.
func ReduceScatter(ctx context.Context, ex Exchange, g Group, grads [][]float32) error {
	if err := g.validate(); err != nil {
		return err
	}
	self := int(g.Self)
	if want := len(g.Sums.Subtrees(g.Members[self].Groups)); len(grads) != want || want == 0 {
		return fmt.Errorf("%w: layer %d has %d sums of replica %d, want %d", ErrBadGroup, g.Layer, len(grads), self, want)
	}
	if len(g.Members) == 1 {
		return nil
	}
	work, ctx := errgroup.WithContext(ctx)
	// Both go on at once: a send that waits for room must not keep this member from making room.
	work.Go(func() error {
		return g.toOthers(func(k int) error {
			for i, grad := range grads {
				way := g.vector()
				way.number = i
				if err := way.send(ctx, ex, g.Members[k].Peer, g.tag(wire.ReducePart, self, k), g.pack(k, grad)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	work.Go(func() error {
		sum, err := g.sumOwn(ctx, ex, grads)
		if err == nil {
			g.unpack(self, grads[len(grads)-1], sum)
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

// subtree is the sum of a subtree's gradients, or of a part of them.
type subtree struct {
	plan.GroupRange
	sum []float32
}

// sumOwn adds up all members' elements of the own part. Sums wait until the other half of their subtree
// is there: about log2 of the groups at a time.
func (g Group) sumOwn(ctx context.Context, ex Exchange, grads [][]float32) ([]float32, error) {
	var waiting []subtree
	var spare [][]float32
	for k, m := range g.Members {
		for i, groups := range g.Sums.Subtrees(m.Groups) {
			next := subtree{GroupRange: groups}
			if k == int(g.Self) {
				next.sum = g.pack(k, grads[i])
			} else {
				if n := len(spare); n > 0 {
					next.sum, spare = spare[n-1], spare[:n-1]
				} else {
					next.sum = make([]float32, g.partLen(int(g.Self), len(grads[0])))
				}
				way := g.vector()
				way.number = i
				if err := way.receive(ctx, ex, m.Peer, g.tag(wire.ReducePart, k, int(g.Self)), next.sum); err != nil {
					return nil, fmt.Errorf("part of replica %d: %w", k, err)
				}
			}
			waiting = append(waiting, next)
			for n := len(waiting); n > 1 && g.Sums.Pair(waiting[n-2].GroupRange, waiting[n-1].GroupRange); n = len(waiting) {
				half, rest := &waiting[n-2], waiting[n-1]
				add(half.sum, rest.sum)
				half.End, spare, waiting = rest.End, append(spare, rest.sum), waiting[:n-1]
			}
		}
	}
	if len(waiting) != 1 || waiting[0].Len() != g.Sums.Groups {
		return nil, fmt.Errorf("%w: the members of layer %d do not have each of %d sum groups once and in order", ErrBadGroup, g.Layer, g.Sums.Groups)
	}
	return waiting[0].sum, nil
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
		return g.cut.each(0, own, func(number int, piece []float32) error {
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
