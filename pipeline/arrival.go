package pipeline

import (
	"context"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner"
)

// arrival is a message of which the program will have need: it is received and copied to the
// device beside the passes.
type arrival struct {
	place []kernels.View // on the device
	done  chan struct{}
	err   error // once done is closed
}

// expect begins to fetch a message to rows that nothing reads or writes until it is waited for.
// What has begun is waited for in any case, at the end of the step.
func (w *Worker) expect(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) {
	a := &arrival{place: rows, done: make(chan struct{})}
	h.arriving[tag] = a
	w.beside.Go(func() error {
		defer close(a.done)
		a.err = w.bring(ctx, h, rows, tag)
		return nil // the program meets it
	})
}

// expectGradient fetches the gradient of what a part's forward has computed: its place is the
// part's own from now on.
func (w *Worker) expectGradient(ctx context.Context, h *holding, step planner.Step, p part) {
	if !h.last() && h.behind == nil && !w.heldOut(p.micro) {
		w.expect(ctx, h, h.outputGrad(p), w.message(wire.Gradient, h, 0, step, p))
	}
}

// expectActivations fetches the inputs of the next forward of each stage in the rest of the
// program: into its slot where one is free already, else to the stage's landing.
func (w *Worker) expectActivations(ctx context.Context, step planner.Step, rest []schedule.Action) error {
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

// receive waits until the message with the tag, which a neighbour sent to this stage, is in rows.
func (w *Worker) receive(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) error {
	op := schedule.ReceiveActivation
	if tag.Kind == wire.Gradient {
		op = schedule.ReceiveGradient
	}
	begin := time.Now()
	err := w.arrived(ctx, h, rows, tag)
	h.times.Wait += time.Since(begin)
	w.waited(begin)
	if err == nil {
		w.note(tag.Step, h.action(op, planner.Micro(tag.Index)), begin)
	}
	return err
}

// arrived waits for a message that is being fetched, or fetches it.
func (w *Worker) arrived(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) error {
	a := h.arriving[tag]
	if a == nil {
		return w.bring(ctx, h, rows, tag)
	}
	<-a.done // soon where ctx is done
	delete(h.arriving, tag)
	if a.err == nil && a.place[0] != rows[0] {
		w.hand(rows, a.place) // before the landing is used again the pass has been waited for
	}
	return a.err
}

// bring receives a message and copies it to the device.
func (w *Worker) bring(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) error {
	from := h.Stage - 1
	if tag.Kind == wire.Gradient {
		from = h.Stage + 1
	}
	payload, err := unpaced(w.cfg.Exchange).Receive(ctx, h.pipe.Stages[from].Peer, tag)
	if err != nil {
		return err
	}
	n := elements(rows)
	host, plain := wire.F32Elements(payload, n)
	if !plain {
		xs := make([]float32, n)
		if _, err := wire.DecodeTensor(xs, payload); err != nil {
			return fmt.Errorf("pipeline: %v from stage %d: %w", tag, from, err)
		}
		host = kernels.Float32Bytes(xs)
	}
	begin := time.Now()
	err = h.uploads.do(func(q kernels.Queue) { writeRows(q, rows, host) })
	w.noteCopy("upload", h, tag, begin)
	return err
}
