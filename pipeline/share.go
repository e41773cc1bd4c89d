package pipeline

import (
	"bytes"
	"context"
	"io"
	"time"

	"pnode/kernels"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/planner/plan"
)

// gather begins to exchange the parameters of layers that each replica has updated its part
// of. It runs beside what follows: the stage's first forward waits for it. Behind the last
// update of a plan replica 0 alone needs them, to evaluate and to save.
func (w *Worker) gather(ctx context.Context, h *holding, step plan.Step, last bool) {
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
			frozen := w.cfg.Run.Model.FrozenLen(l)
			params := h.stack.Params(l)
			if params.Len == frozen {
				continue
			}
			err := h.onHost(params.Slice(frozen, params.Len-frozen), func(v []float32) error {
				return exchange(ctx, w.cfg.Exchange, w.group(h, step, l), v)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// gathered waits until the stage has all of its parameters, and rounds them where products
// read them in halves.
func (w *Worker) gathered(h *holding) error {
	if h.gathering.done == nil {
		return nil
	}
	if err := h.gathering.wait(); err != nil {
		return err
	}
	h.stack.RoundWeights(w.queue, w.opt.rounding(h.step))
	return nil
}

// allGathered is gathered for everything here, outside of a program.
func (w *Worker) allGathered() error {
	for _, h := range w.holdings {
		begin := time.Now()
		err := w.gathered(h)
		h.times.Wait += time.Since(begin)
		if err != nil {
			return err
		}
	}
	return w.queue.Sync()
}

// sharedMoment is what a replica has of a layer's moment, and how it comes together.
type sharedMoment struct {
	state collective.State
	own   kernels.View
	queue kernels.Queue
	whole int // elements of all parts
}

// sharedMoments are those of a layer; a frozen one has none.
func (w *Worker) sharedMoments(h *holding, step plan.Step, layer int) []sharedMoment {
	whole := w.cfg.Run.Model.TrainedLen(layer)
	if whole == 0 {
		return nil
	}
	moments := make([]sharedMoment, momentVectors)
	for i := range moments {
		moments[i] = sharedMoment{
			state: collective.State{Group: w.group(h, step, layer), Number: i},
			own:   h.stack.Moment(layer, i), queue: h.saves, whole: whole,
		}
	}
	return moments
}

// read copies the own part to the host.
func (m sharedMoment) read() ([]float32, error) {
	own := make([]float32, m.own.Len)
	host.Read(m.queue, kernels.Float32Bytes(own), m.own)
	return own, m.queue.Sync()
}

// contribute hands in what is held here of layers' moments to the replica that saves.
func contribute(ctx context.Context, ex collective.Exchange, layers [][]sharedMoment, unread *unread) error {
	for _, moments := range layers {
		parts := make([][]float32, len(moments))
		for i, m := range moments {
			var err error
			if parts[i], err = m.read(); err != nil {
				return err
			}
		}
		unread.one()
		for i, m := range moments {
			if err := collective.Contribute(ctx, ex, m.state, parts[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// collected reads a layer's parameters from the device and its moments from all replicas.
func collected(ctx context.Context, ex collective.Exchange, params io.Reader, moments []sharedMoment, unread *unread) io.Reader {
	parts := []io.Reader{params}
	for i, m := range moments {
		parts = append(parts, &lateReader{make: func() ([]byte, error) {
			own, err := m.read()
			if err != nil {
				return nil, err
			}
			if i == len(moments)-1 {
				unread.one()
			}
			whole, err := collective.Collect(ctx, ex, m.state, m.whole, own)
			return kernels.Float32Bytes(whole), err
		}})
	}
	return io.MultiReader(parts...)
}

// lateReader reads bytes that are made when they are first asked for.
type lateReader struct {
	make func() ([]byte, error)
	made *bytes.Reader
}

func (r *lateReader) Read(p []byte) (int, error) {
	if r.made == nil {
		b, err := r.make()
		if err != nil {
			return 0, err
		}
		r.made = bytes.NewReader(b)
	}
	return r.made.Read(p)
}
