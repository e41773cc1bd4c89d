package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/kernels/quant"
	"pnode/pipeline/collective"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// maxSends bounds the messages that wait to be sent; the program waits when there are more.
const maxSends = 16

// errNothing means that a message without a tensor came: nothing was computed.
var errNothing = errors.New("nothing was computed")

// tag returns the tag of a part's message to stage `to` of a stage's replica.
func (s *stepRun) tag(kind wire.Kind, h *stageRun, to plan.Stage, p part) wire.Tag {
	t := wire.Tag{
		Kind: kind, Generation: s.plan.Generation, Step: s.step,
		Replica: h.Replica, Stage: to, Index: int32(s.numberOf(p)),
	}
	if s.secondTry && kind == wire.Activation {
		t.Index += s.tries()
	}
	return t
}

// crossing returns the codec of the boundary that a stage's message goes over, and the noise that
// rounds it: the same for this tensor under every plan that cuts the model there.
func (p *program) crossing(h *StageRuntime, tag wire.Tag) (wire.Codec, wire.Noise) {
	later := tag.Stage // the stage after the boundary
	if tag.Kind == wire.Gradient {
		later = h.Stage
	}
	c := wire.Crossing{
		Step: tag.Step, Micro: p.numbered(tag),
		Layer: h.pipe.Stages[later].Layers.First, Back: tag.Kind == wire.Gradient,
	}
	return h.codecs[later-1], wire.NoiseOf(p.spec.Train.Seed, c)
}

// prefetch asks for the inputs of the next forward of each stage in the rest of the program. They go
// into its slot where one is free already, else to the stage's landing.
func (s *stepRun) prefetch(rest []schedule.Action) {
	for _, h := range s.stages {
		if h.first() || h.prev != nil {
			continue
		}
		for _, a := range rest {
			if a.Op != schedule.Forward || a.Replica != h.Replica || a.Stage != h.Stage {
				continue
			}
			p := s.part(a.Micro)
			tag := s.tag(wire.Activation, h, h.Stage, p)
			switch {
			case h.receiving[tag] != nil:
			case h.slots.take(p.micro) == nil:
				s.ask(h, h.input(p), tag)
			case h.landing != nil:
				s.ask(h, h.rows(p, kernels.Whole(h.landing)), tag)
			}
			break
		}
	}
}

// ask begins to fetch a message into rows, which nothing enqueued later uses before the message has
// been waited for. The step waits for what has begun in any case.
func (s *stepRun) ask(h *stageRun, rows []kernels.View, tag wire.Tag) {
	t := &transfer{stage: h, tag: tag, rows: rows, after: s.queue.Record(), done: make(chan struct{})}
	h.receiving[tag] = t
	s.group.Go(func() error {
		err := s.fetch(s.ctx, t)
		if t.event != nil {
			return err
		}
		t.settle(nil, err) // the program meets the error
		return nil
	})
}

// fetch receives a message, decodes it and copies it to its rows on the device.
func (s *stepRun) fetch(ctx context.Context, t *transfer) error {
	h := t.stage
	from, uploads := h.source(t.tag.Kind), &h.activations
	if t.tag.Kind == wire.Gradient {
		uploads = &h.gradients
	}
	peer := h.pipe.Stages[from].Peer
	exchange, _, _ := plain(s.cfg.Exchange) // nobody waits yet
	payload, err := exchange.Receive(ctx, peer, t.tag)
	if err != nil {
		return err
	}
	if len(payload) == 0 && t.tag.Kind == wire.Activation && s.part(s.numbered(t.tag)).micro >= s.shadowMicro(0) {
		return fmt.Errorf("pipeline: %v from stage %d: %w", t.tag, from, errNothing)
	}
	by := collective.Brought(s.cfg.Exchange, peer, t.tag)
	host, words, err := s.decodeTensor(t.tag, payload, elements(t.rows), uploads.quantizer.fits(t.rows), by)
	if err != nil {
		return err
	}
	t.do = func(q kernels.Queue) {
		if words != nil {
			uploads.quantizer.unpack(q, t.rows, words)
		} else {
			writeRows(q, t.rows, host)
		}
	}
	if err := uploads.run(t); err != nil {
		return fmt.Errorf("pipeline: upload of %v: %w", t.tag, err)
	}
	s.time.copied("upload", t)
	return nil
}

// receive blocks until the message with the tag is on its way to the device, and has the kernels
// wait for it. Where it did not go to rows, it returns from where it is to be copied.
func (s *stepRun) receive(h *stageRun, rows []kernels.View, tag wire.Tag) (from []kernels.View, err error) {
	begin := time.Now()
	t, asked := h.receiving[tag]
	delete(h.receiving, tag)
	if !asked {
		t = &transfer{stage: h, tag: tag, rows: rows, after: s.queue.Record()}
	}
	peer := h.pipe.Stages[h.source(tag.Kind)].Peer
	err = s.progress.await(s.ctx, peer, tag, false, func(ctx context.Context) error {
		if !asked {
			return s.fetch(ctx, t)
		}
		select {
		case <-t.done: // soon where the step has failed
			return t.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if _, p, ok := plain(s.cfg.Exchange); ok {
		p.waited(begin)
	}
	if err != nil {
		return nil, err
	}
	s.queue.Wait(t.event)
	op := schedule.ReceiveActivation
	if tag.Kind == wire.Gradient {
		op = schedule.ReceiveGradient
	}
	s.awaited = append(s.awaited, await{&h.times, h.action(op, s.numbered(tag))})
	if t.rows[0] == rows[0] {
		return nil, nil
	}
	return t.rows, nil // after the kernels the landing is used again
}

// send queues rows of a boundary tensor, as what is enqueued leaves them, for the stage in the tag.
// They are copied, encoded and sent concurrently with the program, outside of one at once.
func (s *stepRun) send(h *stageRun, rows []kernels.View, tag wire.Tag) (*transfer, error) {
	t := &transfer{stage: h, tag: tag, rows: rows, after: s.queue.Record(), done: make(chan struct{})}
	sends := s.sends
	if sends == nil {
		sends = make(chan *transfer, 1)
		sends <- t
		close(sends)
		return t, s.sendAll(sends)
	}
	select {
	case sends <- t:
		return t, nil
	case <-s.ctx.Done():
		return t, s.ctx.Err()
	}
}

// sendAll copies messages to the host in their boundaries' codecs and sends them, in order. After an
// error, of which the program learns at once, it sends no more, and lets none wait.
func (s *stepRun) sendAll(sends <-chan *transfer) (err error) {
	for t := range sends {
		if err != nil {
			t.settle(nil, err)
			continue
		}
		payload, used, failed := s.encode(t)
		if err = failed; err == nil {
			t.stage.times.sent(t.tag.Kind).add(used)
			err = s.cfg.Exchange.Send(s.ctx, t.stage.pipe.Stages[t.tag.Stage].Peer, wire.Frame{Tag: t.tag, Payload: payload})
		} else {
			err = fmt.Errorf("pipeline: download of %v: %w", t.tag, err)
		}
		if err != nil {
			t.settle(nil, err)
			s.cancel(err)
		}
	}
	return err
}

// encode copies a message to the host as the tensor that wire.AppendTensor makes, and returns how it
// is written. Its rows may be written over once the transfer is settled.
func (s *stepRun) encode(t *transfer) (tensor []byte, used wire.Encoded, err error) {
	codec, noise := s.crossing(t.stage.StageRuntime, t.tag)
	queue, n, token := &t.stage.downloads, elements(t.rows), s.spec.Model.Channels
	if codec == wire.Int8 && queue.quantizer.fits(t.rows) {
		tensor, words := wire.NewInt8Tensor(n)
		sums := make([]float32, 2*quant.Groups(n))
		packed := &transfer{
			stage: t.stage, tag: t.tag, after: t.after,
			do: func(q kernels.Queue) { queue.quantizer.pack(q, t.rows, noise, words, sums) },
		}
		if err := queue.run(packed); err != nil {
			return nil, wire.Encoded{}, err
		}
		s.time.copied("download", packed)
		if used = wire.CheckInt8(words, sums); used.Codec == wire.Int8 {
			t.settle(packed.event, nil)
			return tensor, used, s.checkOwn(t.tag, nil, words, n)
		} // else the elements themselves are wanted, and stay until then
	}
	var xs []float32
	var host []byte
	if codec == wire.F32 {
		tensor, host = wire.NewF32Tensor(n)
	} else {
		xs = make([]float32, n)
		host = kernels.Float32Bytes(xs)
	}
	t.do = func(q kernels.Queue) { readRows(q, host, t.rows) }
	if err := queue.run(t); err != nil {
		return nil, wire.Encoded{}, err
	}
	s.time.copied("download", t)
	if err := s.checkOwn(t.tag, host, nil, n); err != nil {
		return nil, wire.Encoded{}, err
	}
	switch {
	case codec == wire.F32:
		used = wire.Encoded{Codec: codec}
	case used.Refused > 0: // the host need not pack it to find that out
		tensor, used = wire.AppendRefused(nil, codec, used.Refused, xs, token, noise)
	case t.tag.Kind == wire.Activation:
		tensor, used = wire.AppendActivation(nil, codec, xs, token, noise)
	default:
		tensor, used = wire.AppendTensor(nil, codec, xs, token, noise)
	}
	return tensor, used, nil
}

// Waiter learns until when a program waited for something that is not the device's; emulate.Device
// is one.
type Waiter interface{ Waited(until time.Time) }

// Paced returns an exchange that reports waits for messages to a device, so that an emulated clock
// can part them from the time that this machine takes between two calls.
func Paced(e collective.Exchange, d Waiter) collective.Exchange { return paced{e, d} }

type paced struct {
	collective.Exchange
	device Waiter
}

// atOnce is how long receiving takes when the message came before it was asked for.
const atOnce = 200 * time.Microsecond

// Receive counts as a wait unless the message was there.
func (p paced) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	defer p.waited(time.Now())
	return p.Exchange.Receive(ctx, from, tag)
}

// Brought passes collective.Brought through.
func (p paced) Brought(from plan.PeerID, tag wire.Tag) plan.PeerID {
	return collective.Brought(p.Exchange, from, tag)
}

// asReplica returns an exchange for a worker whose plan has one replica, which is another one's number to the rest.
func asReplica(e collective.Exchange, replica plan.Replica) collective.Exchange {
	if p, ok := e.(paced); ok {
		return paced{numbered{p.Exchange, replica}, p.device}
	}
	return numbered{e, replica}
}

// numbered is an exchange whose messages of replica 0 have another one's number on their way.
type numbered struct {
	collective.Exchange
	replica plan.Replica
}

func (n numbered) tag(t wire.Tag) wire.Tag {
	t.Replica = n.replica
	return t
}

// Send sends the frame as the other replica's.
func (n numbered) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	f.Tag = n.tag(f.Tag)
	return n.Exchange.Send(ctx, to, f)
}

// Receive waits for the other replica's message.
func (n numbered) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	return n.Exchange.Receive(ctx, from, n.tag(tag))
}

// Brought passes collective.Brought through.
func (n numbered) Brought(from plan.PeerID, tag wire.Tag) plan.PeerID {
	return collective.Brought(n.Exchange, from, n.tag(tag))
}

// Moved passes Movement through; 0 where the exchange does not count.
func (n numbered) Moved(step plan.Step) uint64 {
	if m, ok := n.Exchange.(Movement); ok {
		return m.Moved(step)
	}
	return 0
}

// waited reports a wait that began then and ends now.
func (p paced) waited(begin time.Time) {
	if end := time.Now(); end.Sub(begin) > atOnce {
		p.device.Waited(end)
	}
}
