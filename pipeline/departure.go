package pipeline

import (
	"context"
	"fmt"
	"sync"

	"pnode/kernels"
	"pnode/pipeline/wire"
)

// maxDepartures bounds the messages that wait to be sent; the program waits when there are more.
const maxDepartures = 16

// departure is a message that is copied from the device and sent, beside the passes.
type departure struct {
	send func() error
	read *reading
}

// reading is what copies a message from the device: what is in its place may be written over
// behind it.
type reading struct {
	once  sync.Once
	under chan struct{}
	event kernels.Event // once under is closed; nil for what will not be read
}

// is tells of the event behind the copies, once.
func (r *reading) is(e kernels.Event) {
	r.once.Do(func() {
		r.event = e
		close(r.under)
	})
}

// depart carries departures out in order. After an error, which fail is told at once, it sends
// no more, and lets none wait.
func depart(departures <-chan departure, fail func(error)) (err error) {
	for d := range departures {
		if err == nil {
			if err = d.send(); err != nil {
				fail(err)
			}
		}
		d.read.is(nil)
	}
	return err
}

// leaving are the gradients of each slot that are being copied from the device.
type leaving [][]*reading

// wait has a queue wait for those of a slot.
func (l leaving) wait(q kernels.Queue, slot int) {
	for _, r := range l[slot] {
		if <-r.under; r.event != nil {
			q.Wait(r.event)
		}
	}
	l[slot] = nil
}

// send has rows of a boundary tensor, as what is enqueued leaves them, copied to the host, written
// in the boundary's codec and queued for the stage in the tag: within a program in its own time,
// else at once.
func (w *Worker) send(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) (*reading, error) {
	computed, read := w.queue.Record(), &reading{under: make(chan struct{})}
	d := departure{read: read, send: func() error {
		return w.ship(ctx, h, tag, elements(rows), func(host []byte) error {
			return w.download(h, tag, copied{
				after: computed, copy: func(q kernels.Queue) { readRows(q, host, rows) }, under: read.is,
			})
		})
	}}
	if w.departures == nil {
		return read, d.send()
	}
	select {
	case w.departures <- d:
		return read, nil
	case <-ctx.Done():
		return read, ctx.Err()
	}
}

// ship sends n elements that fetch copies to the host.
func (w *Worker) ship(ctx context.Context, h *holding, tag wire.Tag, n int, fetch func(host []byte) error) error {
	codec, noise := w.crossing(h, tag)
	var payload, host []byte
	var xs []float32
	if codec == wire.F32 {
		payload, host = wire.NewF32Tensor(n)
	} else {
		xs = make([]float32, n)
		host = kernels.Float32Bytes(xs)
	}
	if err := fetch(host); err != nil {
		return err
	}
	used := wire.Encoded{Codec: codec}
	if codec != wire.F32 {
		payload, used = wire.AppendTensor(nil, codec, xs, noise)
	}
	h.times.sent(tag.Kind).add(used)
	return w.cfg.Exchange.Send(ctx, h.pipe.Stages[tag.Stage].Peer, wire.Frame{Tag: tag, Payload: payload})
}

func (w *Worker) download(h *holding, tag wire.Tag, c copied) error {
	begin, end, err := h.downloads.do(c)
	if err != nil {
		return fmt.Errorf("pipeline: download of %v: %w", tag, err)
	}
	w.noteCopy("download", h, tag, begin, end)
	return nil
}
