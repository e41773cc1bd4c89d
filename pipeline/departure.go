package pipeline

import (
	"context"
	"sync"
	"time"

	"pnode/kernels"
	"pnode/pipeline/wire"
)

// maxDepartures bounds the messages that wait to be sent; the program waits when there are more.
const maxDepartures = 16

// departure is a message that is copied from the device and sent, beside the passes.
type departure struct {
	send func() error
	// read tells that the message is not on the device any more, or never will leave it.
	read func()
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
		d.read()
	}
	return err
}

// leaving are the gradients of each slot that are being copied from the device: what is in their
// place may be written over when these channels are closed.
type leaving [][]<-chan struct{}

// wait waits for those of a slot.
func (l leaving) wait(slot int) {
	for _, read := range l[slot] {
		<-read
	}
	l[slot] = nil
}

// send has rows of a boundary tensor copied to the host, written in the boundary's codec and
// queued for the stage in the tag: within a program in its own time, else at once. The channel
// tells when the rows have been read.
func (w *Worker) send(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) (<-chan struct{}, error) {
	done := make(chan struct{})
	read := sync.OnceFunc(func() { close(done) })
	d := departure{read: read, send: func() error { return w.ship(ctx, h, rows, tag, read) }}
	if w.departures == nil {
		return done, d.send()
	}
	select {
	case w.departures <- d:
		return done, nil
	case <-ctx.Done():
		return done, ctx.Err()
	}
}

// ship sends rows, and tells when they are read.
func (w *Worker) ship(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag, read func()) error {
	codec, noise := w.crossing(h, tag)
	var payload, host []byte
	var xs []float32
	if n := elements(rows); codec == wire.F32 {
		payload, host = wire.NewF32Tensor(n)
	} else {
		xs = make([]float32, n)
		host = kernels.Float32Bytes(xs)
	}
	if err := w.download(h, host, rows, tag); err != nil {
		return err
	}
	read()
	used := wire.Encoded{Codec: codec}
	if codec != wire.F32 {
		payload, used = wire.AppendTensor(nil, codec, xs, noise)
	}
	h.times.sent(tag.Kind).add(used)
	return w.cfg.Exchange.Send(ctx, h.pipe.Stages[tag.Stage].Peer, wire.Frame{Tag: tag, Payload: payload})
}

func (w *Worker) download(h *holding, host []byte, rows []kernels.View, tag wire.Tag) error {
	defer w.noteCopy("download", h, tag, time.Now())
	return h.downloads.do(func(q kernels.Queue) { readRows(q, host, rows) })
}
