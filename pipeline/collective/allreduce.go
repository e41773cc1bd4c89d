package collective

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// AllReduce replaces the last of a member's vectors by the sum of all members' gradients: ReduceScatter and AllGather (Patarasuk
// and Yuan 2009, section 3), 2*(R-1)/R of the gradient sent by each member whose groups are one subtree. A piece is handed out
// when its sum is there, while later ones are still coming. After an error the vectors are undefined.
func AllReduce(ctx context.Context, ex Exchange, g Group, grads [][]float32) error {
	return g.reduce(ctx, ex, grads, true)
}

// ReduceScatter adds gradients up over the group in the order of g.Sums. Each member brings the sums of
// the subtrees of its groups, one layer's flat gradient each. It receives everybody's elements of its
// own part. The last of its vectors has the sum of these afterwards; the rest of them are undefined. A
// group of one has its sum already. All members call it with vectors of the same length.
func ReduceScatter(ctx context.Context, ex Exchange, g Group, grads [][]float32) error {
	return g.reduce(ctx, ex, grads, false)
}

// reduce is ReduceScatter, and AllReduce where the sums are to be handed out.
func (g Group) reduce(ctx context.Context, ex Exchange, grads [][]float32, out bool) error {
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
	v := grads[len(grads)-1]
	sums := make(chan piece, g.cut.count(g.partLen(self, len(v)))) // of the own part, in v
	sent := make([]chan struct{}, len(g.Members))                  // a value for each piece of an owner's part of v that was sent
	for k := range sent {
		sent[k] = make(chan struct{}, g.cut.count(g.partLen(k, len(v))))
	}
	work, ctx := errgroup.WithContext(ctx)
	// All go on at once: what waits for room at others must not keep this member from making room, nor from adding up.
	work.Go(func() error { return g.failed("reduce-scatter", g.sendParts(ctx, ex, grads, sent)) })
	work.Go(func() error {
		defer close(sums)
		var spare [][]float32
		err := g.eachPiece(self, len(v), func(p piece) error {
			sum, err := g.sumPiece(ctx, ex, grads, p, &spare)
			if err != nil {
				return err
			}
			rest := sum
			g.within(p, v, func(xs []float32) { rest = rest[copy(xs, rest):] })
			spare = append(spare, sum)
			sums <- p
			return nil
		})
		return g.failed("reduce-scatter", err)
	})
	if out {
		work.Go(func() error {
			for p := range sums {
				if err := g.handOut(ctx, ex, p, v, func(int) bool { return true }); err != nil {
					return g.failed("gather", err)
				}
			}
			return nil
		})
		work.Go(func() error { return g.failed("gather", g.takeIn(ctx, ex, v, sent)) })
	}
	return work.Wait()
}

// AllGather hands the own part of v out and fills the others with what their owners have.
func AllGather(ctx context.Context, ex Exchange, g Group, v []float32) error {
	return g.gather(ctx, ex, v, func(int) bool { return true })
}

// GatherFirst is AllGather for replica 0 alone: the others' vectors stay as they are.
func GatherFirst(ctx context.Context, ex Exchange, g Group, v []float32) error {
	return g.gather(ctx, ex, v, func(k int) bool { return k == 0 })
}

// gather hands the own part of v to those that want it.
func (g Group) gather(ctx context.Context, ex Exchange, v []float32, wants func(k int) bool) error {
	if err := g.validate(); err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		return g.eachPiece(int(g.Self), len(v), func(p piece) error { return g.handOut(ctx, ex, p, v, wants) })
	})
	if wants(int(g.Self)) {
		work.Go(func() error { return g.takeIn(ctx, ex, v, nil) })
	}
	return g.failed("gather", work.Wait())
}

// failed says in which phase an error came, if there is one.
func (g Group) failed(phase string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("collective: %s of generation %d step %d layer %d replica %d: %w", phase, g.Generation, g.Step, g.Layer, g.Self, err)
}

// piece is elements [first,end) of an owner's part of vectors of so many elements, which go in one message.
type piece struct{ owner, number, first, end, elements int }

// eachPiece calls f for the pieces of an owner's part of vectors of n elements.
func (g Group) eachPiece(owner, n int, f func(piece) error) error {
	part := g.partLen(owner, n)
	for number := range g.cut.count(part) {
		first, end := g.cut.of(number, part)
		if err := f(piece{owner, number, first, end, n}); err != nil {
			return err
		}
	}
	return nil
}

// tagOf is the tag of a piece of the i-th vector that replica from sends to replica to.
func (g Group) tagOf(kind wire.Kind, from, to, i int, p piece) (wire.Tag, error) {
	number, err := g.cut.number(i, p.number, g.partLen(p.owner, p.elements))
	return numbered(g.tag(kind, from, to), number), err
}

// within calls f for the stretches of v that a piece is in.
func (g Group) within(p piece, v []float32, f func([]float32)) {
	for _, r := range g.part(p.owner, len(v)) {
		if p.first < r.Len() && p.end > 0 {
			f(v[r.First+max(0, p.first) : r.First+min(r.Len(), p.end)])
		}
		p.first, p.end = p.first-r.Len(), p.end-r.Len()
	}
}

// payload encodes own elements of a piece once they are known to be within bounds.
func (g Group) payload(p piece, v []float32, way vector, tag wire.Tag) ([]byte, error) {
	payload := make([]byte, 0, 4*(p.end-p.first))
	g.within(p, v, func(xs []float32) { payload = wire.AppendF32(payload, xs) })
	return payload, way.check(payload, way.self, tag)
}

// sendParts sends all others their parts of the gradients: the first piece of each, then the second, so that all have something to add up.
func (g Group) sendParts(ctx context.Context, ex Exchange, grads [][]float32, sent []chan struct{}) error {
	queues, longest := map[int][]piece{}, 0
	for k := range g.Members {
		_ = g.eachPiece(k, len(grads[0]), func(p piece) error {
			queues[k] = append(queues[k], p)
			return nil
		})
		longest = max(longest, len(queues[k]))
	}
	for number := range longest {
		err := g.toOthers(func(k int) error {
			if number >= len(queues[k]) {
				return nil
			}
			err := g.sendPiece(ctx, ex, queues[k][number], grads)
			sent[k] <- struct{}{}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sendPiece sends a piece of all sums that this member brings to its owner.
func (g Group) sendPiece(ctx context.Context, ex Exchange, p piece, grads [][]float32) error {
	for i, grad := range grads {
		tag, err := g.tagOf(wire.ReducePart, int(g.Self), p.owner, i, p)
		if err != nil {
			return err
		}
		payload, err := g.payload(p, grad, g.vector(), tag)
		if err != nil {
			return err
		}
		if err := ex.Send(ctx, g.Members[p.owner].Peer, wire.Frame{Tag: tag, Payload: payload}); err != nil {
			return err
		}
	}
	return nil
}

// subtree is the sum of a subtree's gradients, or of a piece of them.
type subtree struct {
	plan.GroupRange
	sum []float32
}

// sumPiece adds up all members' elements of a piece of the own part, in vectors that are spare or become so. Sums wait until the other
// half of their subtree is there: about log2 of the groups at a time.
func (g Group) sumPiece(ctx context.Context, ex Exchange, grads [][]float32, p piece, spare *[][]float32) ([]float32, error) {
	var waiting []subtree
	for k, m := range g.Members {
		for i, groups := range g.Sums.Subtrees(m.Groups) {
			next := subtree{GroupRange: groups}
			if n := len(*spare); n > 0 {
				next.sum, *spare = (*spare)[n-1], (*spare)[:n-1]
			} else {
				next.sum = make([]float32, g.cut.size(g.partLen(p.owner, p.elements)))
			}
			next.sum = next.sum[:p.end-p.first]
			if k == int(g.Self) {
				rest := next.sum
				g.within(p, grads[i], func(xs []float32) { rest = rest[copy(rest, xs):] })
			} else {
				tag, err := g.tagOf(wire.ReducePart, k, p.owner, i, p)
				if err == nil {
					err = g.vector().receivePiece(ctx, ex, m.Peer, tag, next.sum)
				}
				if err != nil {
					return nil, fmt.Errorf("part of replica %d: %w", k, err)
				}
			}
			waiting = append(waiting, next)
			for n := len(waiting); n > 1 && g.Sums.Pair(waiting[n-2].GroupRange, waiting[n-1].GroupRange); n = len(waiting) {
				half, rest := &waiting[n-2], waiting[n-1]
				add(half.sum, rest.sum)
				half.End, *spare, waiting = rest.End, append(*spare, rest.sum), waiting[:n-1]
			}
		}
	}
	if len(waiting) != 1 || waiting[0].Len() != g.Sums.Groups {
		return nil, fmt.Errorf("%w: the members of layer %d do not have each of %d sum groups once and in order", ErrBadGroup, g.Layer, g.Sums.Groups)
	}
	return waiting[0].sum, nil
}

// handOut sends a piece of the own part of v to those that want it.
func (g Group) handOut(ctx context.Context, ex Exchange, p piece, v []float32, wants func(k int) bool) error {
	tag, err := g.tagOf(wire.GatherPart, p.owner, p.owner, 0, p)
	if err != nil {
		return err
	}
	payload, err := g.payload(p, v, g.sums(), tag)
	if err != nil {
		return err
	}
	return g.toOthers(func(k int) error {
		tag, err := g.tagOf(wire.GatherPart, p.owner, k, 0, p)
		if err != nil || !wants(k) {
			return err
		}
		return ex.Send(ctx, g.Members[k].Peer, wire.Frame{Tag: tag, Payload: payload})
	})
}

// takeIn fills the others' parts of v with what they hand out. It waits for all of them at once: a part that has no room here keeps
// its owner from handing out to others. An owner's substitute may hand out a piece again before this member has sent its own: so much is
// waited for, in sent; nil: nothing is sent.
func (g Group) takeIn(ctx context.Context, ex Exchange, v []float32, sent []chan struct{}) error {
	work, ctx := errgroup.WithContext(ctx)
	_ = g.toOthers(func(k int) error {
		work.Go(func() error {
			err := g.eachPiece(k, len(v), func(p piece) error {
				tag, err := g.tagOf(wire.GatherPart, k, int(g.Self), 0, p)
				if err != nil {
					return err
				}
				xs := make([]float32, p.end-p.first)
				if err := g.sums().receivePiece(ctx, ex, g.Members[k].Peer, tag, xs); err != nil {
					return err
				}
				if sent != nil {
					select {
					case <-sent[k]:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				g.within(p, v, func(place []float32) { xs = xs[copy(place, xs):] })
				return nil
			})
			if err != nil {
				return fmt.Errorf("part of replica %d: %w", k, err)
			}
			return nil
		})
		return nil
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
