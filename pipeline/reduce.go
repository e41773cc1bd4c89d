package pipeline

import (
	"context"
	"time"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/pipeline/schedule"
	"pnode/planner"
)

// reduce begins to sum the gradients of a stage's layers over the replicas, and over the
// two ends of the tied embedding. Every worker takes the layers of a stage in their order
// and does not wait for one stage before it begins with another, so that all come to their
// end however stages are cut and spread.
func (w *Worker) reduce(ctx context.Context, h *holding, step planner.Step) error {
	if len(w.cfg.Plan.Replicas) == 1 && !w.tiedElsewhere(h) {
		return nil
	}
	w.reductions.Go(func() error {
		defer w.note(step, h.action(schedule.Reduce, 0), time.Now())
		for _, l := range h.layers() {
			if err := w.reduceReplicas(ctx, h, step, l); err != nil {
				return err
			}
		}
		if !w.tiedElsewhere(h) {
			return nil
		}
		return w.reduceTied(ctx, h, step)
	})
	return nil
}

// squares gives each layer's sum of squares. The tied tail of the head counts once, with
// the embedding.
func (w *Worker) squares() ([]layerSquare, error) {
	var squares []layerSquare
	for _, h := range w.holdings {
		if n := w.cfg.Run.Model.TiedGradLen(); n > 0 && h.first() && h.last() {
			embed, head := w.tiedGrads(h, 0), w.tiedGrads(h, w.headLayer())
			w.queue.Do(kernels.Add(embed, embed, head, n)) // the head's is of no use any more
		}
		if h.Replica != 0 {
			continue // after the reduction it has the same gradient as replica 0
		}
		for _, l := range h.layers() {
			grads := h.stack.Grads(l)
			if l == w.headLayer() {
				grads = grads.Slice(0, grads.Len-w.cfg.Run.Model.TiedGradLen())
			}
			sum, err := w.sumSquares(grads)
			if err != nil {
				return nil, err
			}
			squares = append(squares, layerSquare{layer: l, sum: sum})
		}
	}
	return squares, nil
}

func (w *Worker) headLayer() int { return w.cfg.Run.Model.Layers() - 1 }

func (w *Worker) sumSquares(v kernels.View) (float64, error) {
	if v.Len == 0 { // a frozen layer
		return 0, nil
	}
	out := make([]float32, 1)
	w.queue.Do(kernels.SumSquares(kernels.Whole(w.square), v, v.Len))
	w.queue.Read(kernels.Float32Bytes(out), kernels.Whole(w.square))
	err := w.queue.Sync()
	return float64(out[0]), err
}

// reduceReplicas sums one layer's gradient over its holders in replica order.
func (w *Worker) reduceReplicas(ctx context.Context, h *holding, step planner.Step, layer int) error {
	if len(w.cfg.Plan.Replicas) == 1 || h.stack.Grads(layer).Len == 0 {
		return nil
	}
	group := collective.Group{Self: h.Replica, Layer: layer, Generation: w.cfg.Plan.Generation, Step: step}
	for _, pipe := range w.cfg.Plan.Replicas {
		for s, place := range pipe.Stages {
			if place.Layers.Contains(layer) {
				group.Members = append(group.Members, collective.Member{Peer: place.Peer, Stage: planner.Stage(s)})
			}
		}
	}
	return h.onHost(h.stack.Grads(layer), func(grad []float32) error {
		return collective.AllReduce(ctx, w.cfg.Exchange, group, grad)
	})
}

// tiedElsewhere tells whether the stage has one end of a tied embedding and another stage
// the other.
func (w *Worker) tiedElsewhere(h *holding) bool {
	return w.cfg.Run.Model.TiedGradLen() > 0 && h.first() != h.last()
}

// reduceTied gives one end of the tied embedding the gradient embedding + head.
func (w *Worker) reduceTied(ctx context.Context, h *holding, step planner.Step) error {
	layer, last := 0, len(h.pipe.Stages)-1
	if h.last() {
		layer = w.headLayer()
	}
	tied := collective.Tied{
		Replica: h.Replica, Generation: w.cfg.Plan.Generation, Step: step,
		Embed:    collective.Member{Peer: h.pipe.Stages[0].Peer, Stage: 0},
		Head:     collective.Member{Peer: h.pipe.Stages[last].Peer, Stage: planner.Stage(last)},
		SelfHead: h.last(),
	}
	return h.onHost(w.tiedGrads(h, layer), func(grad []float32) error {
		return collective.SumTied(ctx, w.cfg.Exchange, tied, grad)
	})
}

// tiedGrads is the tied range: the front of the embedding's vector, the tail of the
// head's.
func (w *Worker) tiedGrads(h *holding, layer int) kernels.View {
	grads, n := h.stack.Grads(layer), w.cfg.Run.Model.TiedGradLen()
	if layer == 0 {
		return grads.Slice(0, n)
	}
	return grads.Slice(grads.Len-n, n)
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
