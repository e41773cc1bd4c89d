package pipeline

import (
	"context"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/planner"
)

// reduce sums the gradients of the stage's layers over the replicas and over the two
// ends of the tied embedding, and returns each layer's sum of squares. The tied tail of
// the head counts once, with the embedding.
func (w *Worker) reduce(ctx context.Context, step planner.Step) ([]layerSquare, error) {
	layers := w.place.Layers
	for l := layers.First; l < layers.End; l++ {
		if err := w.reduceReplicas(ctx, step, l); err != nil {
			return nil, err
		}
	}
	if err := w.reduceTied(ctx, step); err != nil {
		return nil, err
	}
	var squares []layerSquare
	for l := layers.First; l < layers.End; l++ {
		grads := w.stack.Grads(l)
		if l == w.headLayer() {
			grads = grads.Slice(0, grads.Len-w.cfg.Run.Model.TiedGradLen())
		}
		sum, err := w.sumSquares(grads)
		if err != nil {
			return nil, err
		}
		squares = append(squares, layerSquare{layer: l, sum: sum})
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
func (w *Worker) reduceReplicas(ctx context.Context, step planner.Step, layer int) error {
	if len(w.cfg.Plan.Replicas) == 1 || w.stack.Grads(layer).Len == 0 {
		return nil
	}
	group := collective.Group{Self: w.cfg.Replica, Layer: layer, Generation: w.cfg.Plan.Generation, Step: step}
	for _, pipe := range w.cfg.Plan.Replicas {
		for s, place := range pipe.Stages {
			if place.Layers.Contains(layer) {
				group.Members = append(group.Members, collective.Member{Peer: place.Peer, Stage: planner.Stage(s)})
			}
		}
	}
	return w.onHost(w.stack.Grads(layer), func(grad []float32) error {
		return collective.AllReduce(ctx, w.cfg.Exchange, group, grad)
	})
}

// reduceTied gives both ends of the tied embedding, if it is tied, the gradient
// embedding + head.
func (w *Worker) reduceTied(ctx context.Context, step planner.Step) error {
	n := w.cfg.Run.Model.TiedGradLen()
	switch {
	case n == 0:
		return nil
	case w.first() && w.last():
		embed, head := w.tiedGrads(0), w.tiedGrads(w.headLayer())
		w.queue.Do(kernels.Add(embed, embed, head, n)) // the head's is of no use any more
		return w.queue.Sync()
	case w.first():
		return w.exchangeTied(ctx, step, 0)
	case w.last():
		return w.exchangeTied(ctx, step, w.headLayer())
	default:
		return nil
	}
}

// tiedGrads is the tied range: the front of the embedding's vector, the tail of the
// head's.
func (w *Worker) tiedGrads(layer int) kernels.View {
	grads, n := w.stack.Grads(layer), w.cfg.Run.Model.TiedGradLen()
	if layer == 0 {
		return grads.Slice(0, n)
	}
	return grads.Slice(grads.Len-n, n)
}

func (w *Worker) exchangeTied(ctx context.Context, step planner.Step, layer int) error {
	last := len(w.pipe.Stages) - 1
	tied := collective.Tied{
		Replica: w.cfg.Replica, Generation: w.cfg.Plan.Generation, Step: step,
		Embed:    collective.Member{Peer: w.pipe.Stages[0].Peer, Stage: 0},
		Head:     collective.Member{Peer: w.pipe.Stages[last].Peer, Stage: planner.Stage(last)},
		SelfHead: layer != 0,
	}
	return w.onHost(w.tiedGrads(layer), func(grad []float32) error {
		return collective.SumTied(ctx, w.cfg.Exchange, tied, grad)
	})
}

// onHost runs f on a host copy of a view and writes the copy back.
func (w *Worker) onHost(v kernels.View, f func([]float32) error) error {
	host := make([]float32, v.Len)
	w.queue.Read(kernels.Float32Bytes(host), v)
	if err := w.queue.Sync(); err != nil {
		return err
	}
	if err := f(host); err != nil {
		return err
	}
	w.queue.Write(v, kernels.Float32Bytes(host))
	return w.queue.Sync()
}
