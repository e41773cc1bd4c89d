package pipeline

import (
	"cmp"
	"context"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// reduceAfter returns what a stage's backward calls for each layer whose gradient has a micro-batch.
// With the last micro-batch of a group it adds the group to those before it. With the replica's last
// group the stage's reduction begins: a layer's gradient is under way to the other replicas while those
// before it are computed, and while the rest of the schedule drains.
//
// A layer's gradient is summed over its holders in the order of plan.Sums: all of it, or this replica's
// part. Every worker begins with the layers of a stage from the last one on, some at a time, and does not wait for one stage
// before it begins with another, so that all come to their end however stages are cut and spread.
func (s *stepRun) reduceAfter(h *stageRun, micro plan.Micro) func(layer int) {
	h.added = append(h.added, s.cfg.First+micro)
	sums, share := s.spec.Train.Sums(), s.share(h.Replica)
	group, ends := sums.Of(micro)
	if !ends {
		return func(int) {}
	}
	if group+1 < share.End || len(s.plan.Replicas) == 1 && !s.tiedElsewhere(h.StageRuntime) {
		return func(layer int) { s.addGroup(h, layer, group) }
	}
	apart := len(sums.Subtrees(share)) // sums that only other replicas' complete
	type gradient struct {
		layer    int
		computed kernels.Event
	}
	gradients := make(chan gradient, h.place.Layers.Len())
	s.group.Go(func() error {
		begin := time.Now()
		defer func() { s.time.span(h.action(schedule.Reduce, 0), begin, time.Now()) }()
		room := semaphore.NewWeighted(plan.ExchangedBytes)
		for range h.place.Layers.Len() {
			select {
			case g := <-gradients:
				if err := g.computed.Sync(); err != nil { // the sum of the tied embedding needs it, too
					return err
				}
				if len(s.plan.Replicas) == 1 || h.stack.Grads(g.layer).Len == 0 {
					continue
				}
				bytes := exchanged(h.stack.Grads(g.layer))
				if err := room.Acquire(s.ctx, bytes); err != nil {
					return err
				}
				s.group.Go(func() error {
					defer room.Release(bytes)
					return h.reduce(s, g.layer, apart)
				})
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		}
		if err := room.Acquire(s.ctx, plan.ExchangedBytes); err != nil { // until all layers are done
			return err
		}
		if !s.tiedElsewhere(h.StageRuntime) {
			return nil
		}
		layer := 0
		if h.last() {
			layer = s.headLayer()
		}
		tied := s.tied(h.StageRuntime, s.step)
		tied.Overflow = s.onOverflow()
		return h.onHost(h.tiedGrads(layer, s.spec.Model.TiedGradLen()), func(grad []float32) error {
			return collective.SumTied(s.ctx, s.cfg.Exchange, tied, grad)
		})
	})
	return func(layer int) {
		s.addGroup(h, layer, group)
		gradients <- gradient{layer, s.queue.Record()}
	}
}

// reduce adds a layer's gradient up over its holders: so many sums that only other replicas' complete.
func (h *stageRun) reduce(s *stepRun, layer, apart int) error {
	reduce := collective.AllReduce
	if h.inParts(layer) { // then only this replica's part is wanted
		reduce = collective.ReduceScatter
	}
	group := s.holders(h.StageRuntime, s.step, layer)
	group.Overflow = s.onOverflow()
	var grads []kernels.View
	for i := range apart - 1 {
		grads = append(grads, h.stack.Partial(layer, i))
	}
	return h.allOnHost(append(grads, h.stack.Grads(layer)), func(grads [][]float32) error {
		return reduce(s.ctx, s.cfg.Exchange, group, grads)
	})
}

// exchanged returns how much of plan.ExchangedBytes a vector takes.
func exchanged(v kernels.View) int64 { return min(4*int64(v.Len), plan.ExchangedBytes) }

// addGroup enqueues what completes a layer's gradient of a group of micro-batches: its scale is divided
// out, and it is added to the sums that wait for it (plan.Sums). The result waits among the partial sums
// for the next group, which begins with zeros. After the replica's last group it stays where it is.
func (s *stepRun) addGroup(h *stageRun, layer, group int) {
	h.stack.Unscale(s.queue, layer)
	sums, share := s.spec.Train.Sums(), s.share(h.Replica)
	grads, last := h.stack.Grads(layer), group+1 == share.End
	if grads.Len == 0 || share.Len() == 1 {
		return
	}
	waiting := sums.Subtrees(plan.GroupRange{First: share.First, End: group})
	sum, has := grads, plan.GroupRange{First: group, End: group + 1}
	n := len(waiting)
	for ; n > 0 && sums.Pair(waiting[n-1], has); n-- {
		partial := h.stack.Partial(layer, n-1)
		into := partial
		if last {
			into = grads
		}
		s.queue.Do(kernels.Add(into, partial, sum, grads.Len))
		sum, has.First = into, waiting[n-1].First
	}
	if last {
		return
	}
	if sum == grads {
		s.queue.Do(kernels.Copy(h.stack.Partial(layer, n), grads, grads.Len))
	}
	s.queue.Do(kernels.Fill(grads, grads.Len, 0))
}

// sumSquares returns the sums of squares that this worker reports, by piece of each layer's gradient: its
// own pieces where replicas have them in parts, else all by replica 0. The tied tail of the head
// counts once, with the embedding. The pieces are the same for any number of replicas, and so is the
// norm to the bit.
func (s *stepRun) sumSquares() ([]wire.PartSquare, error) {
	var squares []wire.PartSquare
	var sums [][]float32 // by piece, of its ranges
	for _, h := range s.stages {
		m, pieces := s.spec.Model, s.pieces()
		if n := m.TiedGradLen(); n > 0 && h.first() && h.last() {
			embed, head := h.tiedGrads(0, n), h.tiedGrads(s.headLayer(), n)
			s.queue.Do(kernels.Add(embed, embed, head, embed.Len)) // the head's is of no use any more
		}
		for _, l := range h.layers() {
			grads := h.stack.Grads(l)
			end := grads.Len
			if l == s.headLayer() {
				end -= m.TiedGradLen()
			}
			used, all := 0, make([]float32, s.squares.Len())
			for part := range pieces {
				if !s.reports(h.Replica, l, part) {
					continue
				}
				first := used
				for _, r := range s.spec.StateLayout().Share(l, model.Share{Index: part, Count: pieces}) {
					if v := grads.Slice(r.First, max(0, min(r.End, end)-r.First)); v.Len > 0 { // 0 of a frozen layer
						s.queue.Do(kernels.SumSquares(kernels.Whole(s.squares).Slice(used, 1), v, v.Len))
						used++
					}
				}
				squares = append(squares, wire.PartSquare{Part: int32(l*pieces + part)})
				sums = append(sums, all[first:used])
			}
			if used > 0 {
				s.queue.Read(kernels.Float32Bytes(all[:used]), kernels.Whole(s.squares).Slice(0, used))
			}
		}
	}
	if err := s.queue.Sync(); err != nil {
		return nil, err
	}
	for i := range squares {
		for _, sum := range sums[i] {
			squares[i].Sum += float64(sum)
		}
		if s.anyScales() && squares[i].Sum > s.mostSquares(squares[i].Part) {
			squares[i].Sum = math.Inf(1) // more is no gradient either: the update is skipped
		}
	}
	return squares, nil
}

// gather begins to exchange the parameters of layers that each replica has updated its part of. It
// goes on after the step: the stage's next forward waits for it. After the last update of a plan
// replica 0 alone needs them, to evaluate and to save.
func (s *stepRun) gather(ctx context.Context, h *stageRun, last bool) {
	layers := h.layersInParts()
	if len(layers) == 0 {
		return
	}
	exchange := collective.AllGather
	if last {
		exchange = collective.GatherFirst
	}
	h.gathering.start(func() error {
		work, ctx := errgroup.WithContext(ctx)
		room := semaphore.NewWeighted(plan.ExchangedBytes)
		for _, l := range layers {
			frozen, params := s.spec.Model.FrozenLen(l), h.stack.Params(l)
			if params.Len == frozen {
				continue
			}
			params = params.Slice(frozen, params.Len-frozen)
			if err := room.Acquire(ctx, exchanged(params)); err != nil {
				return cmp.Or(work.Wait(), err)
			}
			work.Go(func() error {
				defer room.Release(exchanged(params))
				return h.onHost(params, func(v []float32) error {
					return exchange(ctx, s.cfg.Exchange, s.holders(h.StageRuntime, s.step, l), v)
				})
			})
		}
		return work.Wait()
	})
}

// allGathered blocks until every stage has all of its parameters, outside of a program.
func (s *stepRun) allGathered() error {
	for _, h := range s.stages {
		begin := time.Now()
		err := h.gathered(s.queue, s.opt)
		h.times.Wait += time.Since(begin)
		if err != nil {
			return err
		}
	}
	return s.queue.Sync()
}
