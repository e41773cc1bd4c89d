package pipeline

import (
	"context"
	"time"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// complete is told of a stage's layers whose gradients have a micro-batch. With the last one of the
// step they are no multiples any more, and the stage's reduction begins: each layer's gradient is
// under way to the other replicas while those before it are being computed, and while the rest of the
// schedule drains.
func (w *Worker) complete(ctx context.Context, h *holding, step plan.Step, micro plan.Micro) func(layer int) {
	if micro != h.pipe.FirstMicro+plan.Micro(h.pipe.Micros-1) {
		return func(int) {}
	}
	if len(w.cfg.Plan.Replicas) == 1 && !w.tiedElsewhere(h) {
		return func(layer int) { h.stack.Unscale(w.queue, layer) }
	}
	layers := make(chan reducible, h.place.Layers.Len())
	w.reduce(ctx, h, step, layers)
	return func(layer int) {
		h.stack.Unscale(w.queue, layer)
		layers <- reducible{layer, w.queue.Record()}
	}
}

// reducible is a layer that has its gradient from an event on.
type reducible struct {
	layer    int
	computed kernels.Event
}

// reduce begins to sum the gradients of a stage's layers, as they come, over the replicas, and
// over the two ends of the tied embedding. Every worker takes the layers of a stage from the
// last one on and does not wait for one stage before it begins with another, so that all come
// to their end however stages are cut and spread.
func (w *Worker) reduce(ctx context.Context, h *holding, step plan.Step, layers <-chan reducible) {
	w.beside.Go(func() error {
		defer w.note(step, h.action(schedule.Reduce, 0), time.Now())
		for range h.place.Layers.Len() {
			select {
			case l := <-layers:
				h.reductions.Wait(l.computed)
				if err := w.reduceReplicas(ctx, h, step, l.layer); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if !w.tiedElsewhere(h) {
			return nil
		}
		return w.reduceTied(ctx, h, step)
	})
}

// squares gives the sums of squares of the parts of each layer's gradient that are to be told
// from here: the own ones where replicas have it in parts, else all by replica 0. The tied
// tail of the head counts once, with the embedding.
func (w *Worker) squares() ([]wire.PartSquare, error) {
	var squares []wire.PartSquare
	var sums [][][]float32 // of each part's ranges
	for _, h := range w.holdings {
		if n := w.cfg.Run.Model.TiedGradLen(); n > 0 && h.first() && h.last() {
			embed, head := w.tiedGrads(h, 0), w.tiedGrads(h, w.headLayer())
			w.queue.Do(kernels.Add(embed, embed, head, embed.Len)) // the head's is of no use any more
		}
		for _, l := range h.layers() {
			for _, part := range w.told(h, l) {
				squares = append(squares, wire.PartSquare{Part: int32(l*len(w.cfg.Plan.Replicas) + part)})
				sums = append(sums, w.partSquare(h, l, part))
			}
		}
	}
	if err := w.queue.Sync(); err != nil {
		return nil, err
	}
	for i := range squares {
		for _, sum := range sums[i] {
			squares[i].Sum += float64(sum[0])
		}
	}
	return squares, nil
}

// told are the parts of a layer's gradient whose sums of squares are told from here.
func (w *Worker) told(h *holding, layer int) (parts []int) {
	for part := range w.cfg.Plan.Replicas {
		if in := h.inParts(layer); in && part == h.share(layer).Index || !in && h.Replica == 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// partSquare enqueues the sums of the ranges of a part of a layer's gradient. The parts are those
// of as many shares as there are replicas, whoever has them: the norm is the same to the bit
// either way.
func (w *Worker) partSquare(h *holding, layer, part int) (sums [][]float32) {
	m := w.cfg.Run.Model
	grads := h.stack.Grads(layer)
	end := grads.Len
	if layer == w.headLayer() {
		end -= m.TiedGradLen()
	}
	for _, r := range m.ShareRanges(layer, model.Share{Index: part, Count: len(w.cfg.Plan.Replicas)}) {
		sums = append(sums, w.sumSquares(grads.Slice(r.First, max(0, min(r.End, end)-r.First))))
	}
	return sums
}

func (w *Worker) headLayer() int { return w.cfg.Run.Model.Layers() - 1 }

// sumSquares enqueues a sum, and its copy to the host; it is 0 for a frozen layer.
func (w *Worker) sumSquares(v kernels.View) (sum []float32) {
	sum = make([]float32, 1)
	if v.Len > 0 {
		w.queue.Do(kernels.SumSquares(kernels.Whole(w.square), v, v.Len))
		w.queue.Read(kernels.Float32Bytes(sum), kernels.Whole(w.square))
	}
	return sum
}

// reduceReplicas sums one layer's gradient over its holders in replica order: all of it, or
// this replica's part.
func (w *Worker) reduceReplicas(ctx context.Context, h *holding, step plan.Step, layer int) error {
	if len(w.cfg.Plan.Replicas) == 1 || h.stack.Grads(layer).Len == 0 {
		return nil
	}
	reduce := collective.AllReduce
	if h.inParts(layer) {
		reduce = collective.ReduceScatter
	}
	return h.onHost(h.stack.Grads(layer), func(grad []float32) error {
		return reduce(ctx, w.cfg.Exchange, w.group(h, step, layer), grad)
	})
}

// group is the holders of a layer.
func (w *Worker) group(h *holding, step plan.Step, layer int) collective.Group {
	group := collective.Group{Self: h.Replica, Layer: layer, Generation: w.cfg.Plan.Generation, Step: step}
	for r, pipe := range w.cfg.Plan.Replicas {
		for s, place := range pipe.Stages {
			if place.Layers.Contains(layer) {
				group.Members = append(group.Members, collective.Member{Peer: place.Peer, Stage: plan.Stage(s)})
			}
		}
		if h.inParts(layer) {
			share := w.cfg.Plan.Share(plan.Replica(r), layer)
			group.Parts = append(group.Parts, w.cfg.Run.Model.ShareRanges(layer, share))
		}
	}
	return group
}

// tiedElsewhere tells whether the stage has one end of a tied embedding and another stage
// the other.
func (w *Worker) tiedElsewhere(h *holding) bool {
	return w.cfg.Run.Model.TiedGradLen() > 0 && h.first() != h.last()
}

// reduceTied gives one end of the tied embedding the gradient embedding + head.
func (w *Worker) reduceTied(ctx context.Context, h *holding, step plan.Step) error {
	layer, last := 0, len(h.pipe.Stages)-1
	if h.last() {
		layer = w.headLayer()
	}
	tied := collective.Tied{
		Replica: h.Replica, Generation: w.cfg.Plan.Generation, Step: step,
		Embed:    collective.Member{Peer: h.pipe.Stages[0].Peer, Stage: 0},
		Head:     collective.Member{Peer: h.pipe.Stages[last].Peer, Stage: plan.Stage(last)},
		SelfHead: h.last(),
	}
	return h.onHost(w.tiedGrads(h, layer), func(grad []float32) error {
		return collective.SumTied(ctx, w.cfg.Exchange, tied, grad)
	})
}

// tiedGrads is the tied range, the front of the embedding's vector or the tail of the
// head's, as far as it is added up here.
func (w *Worker) tiedGrads(h *holding, layer int) kernels.View {
	grads, n := h.stack.Grads(layer), w.cfg.Run.Model.TiedGradLen()
	first := 0
	if layer > 0 {
		first = grads.Len - n
	}
	own := h.share(layer).Of(model.Range{First: 0, End: n})
	return grads.Slice(first+own.First, own.Len())
}

// onHost runs f on a host copy of a view and writes the copy back, beside the passes.
func (h *holding) onHost(v kernels.View, f func([]float32) error) error {
	host := make([]float32, v.Len)
	h.reductions.Read(kernels.Float32Bytes(host), v)
	if err := h.reductions.Sync(); err != nil {
		return err
	}
	if err := f(host); err != nil {
		return err
	}
	h.reductions.Write(v, kernels.Float32Bytes(host))
	return h.reductions.Sync()
}
