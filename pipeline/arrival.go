package pipeline

import (
	"context"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// arrival is a message of which the program will have need: it is received and copied to the
// device beside the passes.
type arrival struct {
	place []kernels.View // on the device
	free  kernels.Event  // behind what uses the place for something else
	here  chan struct{}
	// Once here is closed the message is being copied, or will not be.
	copied kernels.Event
	err    error
}

// newArrival is a message for rows that nothing uses which is enqueued from now on, until the
// message has been waited for.
func (w *Worker) newArrival(rows []kernels.View) *arrival {
	return &arrival{place: rows, free: w.queue.Record(), here: make(chan struct{})}
}

// expect begins to fetch a message. What has begun is waited for in any case, at the end of the
// step.
func (w *Worker) expect(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) {
	a := w.newArrival(rows)
	h.arriving[tag] = a
	w.beside.Go(func() error {
		if a.err = w.bring(ctx, h, a, tag); a.copied != nil {
			return a.err
		}
		close(a.here)
		return nil // the program meets it
	})
}

// expectGradient fetches the gradient of what a part's forward has computed: its place is the
// part's own from now on.
func (w *Worker) expectGradient(ctx context.Context, h *holding, step plan.Step, p part) {
	if !h.last() && h.behind == nil && !w.heldOut(p.micro) {
		w.expect(ctx, h, h.outputGrad(p), w.message(wire.Gradient, h, 0, step, p))
	}
}

// expectActivations fetches the inputs of the next forward of each stage in the rest of the
// program: into its slot where one is free already, else to the stage's landing.
func (w *Worker) expectActivations(ctx context.Context, step plan.Step, rest []schedule.Action) error {
	for _, h := range w.holdings {
		if h.first() || h.before != nil {
			continue
		}
		p, ok := w.nextForward(h, rest)
		if !ok {
			continue
		}
		tag := w.message(wire.Activation, h, 0, step, p)
		switch {
		case h.arriving[tag] != nil:
		case h.slots.ready(p.micro):
			if _, err := h.slots.take(p.micro); err != nil {
				return err
			}
			w.expect(ctx, h, h.input(p), tag)
		case h.landing != nil:
			w.expect(ctx, h, h.landed(p), tag)
		}
	}
	return nil
}

// landed is the stage's landing as the rows of a part.
func (h *holding) landed(p part) []kernels.View {
	return h.stack.Rows(kernels.Whole(h.landing), p.Segment)
}

// nextForward is the part of a stage's first forward in the rest of a program.
func (w *Worker) nextForward(h *holding, rest []schedule.Action) (part, bool) {
	for _, a := range rest {
		if a.Op == schedule.Forward && a.Replica == h.Replica && a.Stage == h.Stage {
			return w.part(a.Micro), true
		}
	}
	return part{}, false
}

// receive waits until the message with the tag, which a neighbour sent to this stage, is on its
// way to rows, and has the queue wait for it; or it tells from where it is to be copied.
func (w *Worker) receive(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) (handing, error) {
	op := schedule.ReceiveActivation
	if tag.Kind == wire.Gradient {
		op = schedule.ReceiveGradient
	}
	begin := time.Now()
	a, err := w.arrived(ctx, h, rows, tag)
	w.waited(begin)
	if err != nil {
		return handing{}, err
	}
	w.queue.Wait(a.copied)
	w.awaited = append(w.awaited, await{h, h.action(op, plan.Micro(tag.Index))})
	if a.place[0] == rows[0] {
		return handing{}, nil
	}
	return handing{rows, a.place}, nil // behind the pass the landing is used again
}

// arrived waits for a message that is being fetched, or fetches it.
func (w *Worker) arrived(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) (*arrival, error) {
	a := h.arriving[tag]
	if a == nil {
		a = w.newArrival(rows)
		return a, w.bring(ctx, h, a, tag)
	}
	<-a.here // soon where ctx is done
	delete(h.arriving, tag)
	if a.copied == nil {
		return nil, a.err
	}
	return a, nil
}

// bring receives a message and copies it to the device.
func (w *Worker) bring(ctx context.Context, h *holding, a *arrival, tag wire.Tag) error {
	from, uploads := h.Stage-1, &h.activations
	if tag.Kind == wire.Gradient {
		from, uploads = h.Stage+1, &h.gradients
	}
	payload, err := unpaced(w.cfg.Exchange).Receive(ctx, h.pipe.Stages[from].Peer, tag)
	if err != nil {
		return err
	}
	if len(payload) == 0 && w.ofTwins(tag) {
		return fmt.Errorf("pipeline: %v from stage %d: %w", tag, from, errNothing)
	}
	place, err := uploads.placing(a.place, payload)
	if err != nil {
		return fmt.Errorf("pipeline: %v from stage %d: %w", tag, from, err)
	}
	begin, end, err := uploads.do(copied{
		after: a.free, copy: place,
		under: func(e kernels.Event) {
			a.copied = e
			close(a.here)
		},
	})
	if err != nil {
		return fmt.Errorf("pipeline: upload of %v: %w", tag, err)
	}
	w.noteCopy("upload", h, tag, begin, end)
	return nil
}

// placing is what copies a tensor, in whichever codec it is, to rows.
func (c *copier) placing(rows []kernels.View, tensor []byte) (func(kernels.Queue), error) {
	n := elements(rows)
	if words, ok := wire.Int8Words(tensor, n); ok && c.packing.holds(rows) {
		return func(q kernels.Queue) { c.packing.unpack(q, rows, words) }, nil
	}
	host, plain := wire.F32Elements(tensor, n)
	if !plain {
		xs := make([]float32, n)
		if _, err := wire.DecodeTensor(xs, tensor); err != nil {
			return nil, err
		}
		host = kernels.Float32Bytes(xs)
	}
	return func(q kernels.Queue) { writeRows(q, rows, host) }, nil
}
