package pipeline

import (
	"context"
	"math"
	"time"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// reduceAfter returns what a stage's backward calls for each layer whose gradient has a micro-batch.
// With the last micro-batch of the step it divides out the layer's scale, and the stage's reduction
// begins: a layer's gradient is under way to the other replicas while those before it are computed,
// and while the rest of the schedule drains.
//
// A layer's gradient is summed over its holders in replica order: all of it, or this replica's part.
// Every worker takes the layers of a stage from the last one on and does not wait for one stage
// before it begins with another, so that all come to their end however stages are cut and spread.
func (s *stepRun) reduceAfter(h *stageRun, micro plan.Micro) func(layer int) {
	if micro != h.pipe.FirstMicro+plan.Micro(h.pipe.Micros-1) {
		return func(int) {}
	}
	if len(s.plan.Replicas) == 1 && !s.tiedElsewhere(h.StageRuntime) {
		return func(layer int) { h.stack.Unscale(s.queue, layer) }
	}
	type gradient struct {
		layer    int
		computed kernels.Event
	}
	gradients := make(chan gradient, h.place.Layers.Len())
	s.group.Go(func() error {
		begin := time.Now()
		defer func() { s.time.span(h.action(schedule.Reduce, 0), begin, time.Now()) }()
		for range h.place.Layers.Len() {
			select {
			case g := <-gradients:
				h.reductions.Wait(g.computed) // the sum of the tied embedding needs it, too
				if len(s.plan.Replicas) == 1 || h.stack.Grads(g.layer).Len == 0 {
					continue
				}
				reduce := collective.AllReduce
				if h.inParts(g.layer) { // then only this replica's part is wanted
					reduce = collective.ReduceScatter
				}
				group := s.holders(h.StageRuntime, s.step, g.layer)
				group.Overflow = s.onOverflow()
				err := h.onHost(h.stack.Grads(g.layer), func(grad []float32) error {
					return reduce(s.ctx, s.cfg.Exchange, group, grad)
				})
				if err != nil {
					return err
				}
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
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
		h.stack.Unscale(s.queue, layer)
		gradients <- gradient{layer, s.queue.Record()}
	}
}

// squares returns the sums of squares that this worker reports, by part of each layer's gradient: its
// own parts where replicas have them in parts, else all by replica 0. The tied tail of the head
// counts once, with the embedding. The parts are cut for as many shares as there are replicas,
// whoever has them: the norm is the same to the bit either way.
func (s *stepRun) squares() ([]wire.PartSquare, error) {
	var squares []wire.PartSquare
	var sums [][][]float32 // by part and range
	for _, h := range s.stages {
		m, replicas := s.spec.Model, len(s.plan.Replicas)
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
			for part := range replicas {
				if !s.reports(h.Replica, l, part) {
					continue
				}
				var ranges [][]float32
				for _, r := range m.ShareRanges(l, model.Share{Index: part, Count: replicas}) {
					sum := make([]float32, 1) // 0 for a frozen layer
					if v := grads.Slice(r.First, max(0, min(r.End, end)-r.First)); v.Len > 0 {
						s.queue.Do(kernels.SumSquares(kernels.Whole(s.square), v, v.Len))
						s.queue.Read(kernels.Float32Bytes(sum), kernels.Whole(s.square))
					}
					ranges = append(ranges, sum)
				}
				squares = append(squares, wire.PartSquare{Part: int32(l*replicas + part)})
				sums = append(sums, ranges)
			}
		}
	}
	if err := s.queue.Sync(); err != nil {
		return nil, err
	}
	for i := range squares {
		for _, sum := range sums[i] {
			squares[i].Sum += float64(sum[0])
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
		for _, l := range layers {
			frozen, params := s.spec.Model.FrozenLen(l), h.stack.Params(l)
			if params.Len == frozen {
				continue
			}
			err := h.onHost(params.Slice(frozen, params.Len-frozen), func(v []float32) error {
				return exchange(ctx, s.cfg.Exchange, s.holders(h.StageRuntime, s.step, l), v)
			})
			if err != nil {
				return err
			}
		}
		return nil
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
