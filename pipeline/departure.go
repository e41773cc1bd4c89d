package pipeline

import (
	"context"
	"fmt"
	"sync"

	"pnode/kernels"
	"pnode/kernels/quant"
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
	d := departure{read: read, send: func() error { return w.ship(ctx, h, outgoing{tag, rows, computed, read}) }}
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

// outgoing is a message in its place on the device, once computed has come. read tells when it may
// be written over.
type outgoing struct {
	tag      wire.Tag
	rows     []kernels.View
	computed kernels.Event
	read     *reading
}

// ship copies a message to the host in its boundary's codec, and sends it.
func (w *Worker) ship(ctx context.Context, h *holding, m outgoing) error {
	payload, used, err := w.tensor(h, m)
	if err != nil {
		return fmt.Errorf("pipeline: download of %v: %w", m.tag, err)
	}
	h.times.sent(m.tag.Kind).add(used)
	return w.cfg.Exchange.Send(ctx, h.pipe.Stages[m.tag.Stage].Peer, wire.Frame{Tag: m.tag, Payload: payload})
}

// tensor copies a message to the host as the one that wire.AppendTensor makes, and tells how it is
// written.
func (w *Worker) tensor(h *holding, m outgoing) (tensor []byte, used wire.Encoded, err error) {
	codec, noise := w.crossing(h, m.tag)
	if codec == wire.Int8 && h.downloads.packing.holds(m.rows) {
		tensor, used, err = w.packed(h, m, noise)
		if err != nil || used.Codec == wire.Int8 {
			return tensor, used, err
		}
	}
	n := elements(m.rows)
	if codec == wire.F32 {
		tensor, elements := wire.NewF32Tensor(n)
		return tensor, wire.Encoded{Codec: codec}, w.whole(h, m, elements)
	}
	xs := make([]float32, n)
	if err := w.whole(h, m, kernels.Float32Bytes(xs)); err != nil {
		return nil, wire.Encoded{}, err
	}
	if used.Refused > 0 { // the host need not pack it to find that out
		tensor, used = wire.AppendRefused(nil, codec, used.Refused, xs, noise)
	} else {
		tensor, used = wire.AppendTensor(nil, codec, xs, noise)
	}
	return tensor, used, nil
}

// packed has the device pack a message. It gives no codec where the elements are wanted to
// choose one, and Refused where that is another: until then they stay as they are, and who waits to
// write over them waits for the copy too.
func (w *Worker) packed(h *holding, m outgoing, noise wire.Noise) (tensor []byte, used wire.Encoded, err error) {
	n := elements(m.rows)
	tensor, words := wire.NewInt8Tensor(n)
	steps := make([]float32, 2*quant.Groups(n))
	var event kernels.Event
	err = w.download(h, m.tag, copied{
		after: m.computed,
		copy:  func(q kernels.Queue) { h.downloads.packing.pack(q, m.rows, noise, words, steps) },
		under: func(e kernels.Event) { event = e },
	})
	if err != nil {
		return nil, wire.Encoded{}, err
	}
	if used = wire.CheckInt8(words, steps); used.Codec != wire.Int8 {
		return nil, used, nil
	}
	m.read.is(event)
	return tensor, used, nil
}

// whole copies a message to the host as it is.
func (w *Worker) whole(h *holding, m outgoing, host []byte) error {
	return w.download(h, m.tag, copied{
		after: m.computed, copy: func(q kernels.Queue) { readRows(q, host, m.rows) }, under: m.read.is,
	})
}

func (w *Worker) download(h *holding, tag wire.Tag, c copied) error {
	begin, end, err := h.downloads.do(c)
	if err == nil {
		w.noteCopy("download", h, tag, begin, end)
	}
	return err
}
