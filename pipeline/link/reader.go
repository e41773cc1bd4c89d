package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"pnode/pipeline/wire"
)

// read takes the frames of one incoming stream to the inbox.
func (r *remote) read(p parked) {
	stop := context.AfterFunc(r.ctx, func() { cut(p.stream, streamLeft) })
	defer stop()
	err := r.readFrames(p)
	switch _, left := cutBy(err); {
	case err == nil:
		p.stream.Close() // tells the sender that everything was read
	case r.ctx.Err() != nil:
	case left: // the peer has closed its session in a hurry
	case undecodable(err):
		r.session.endpoint.corrupt(p, err)
		r.lose(err)
	default:
		r.lose(err)
	}
}

func (r *remote) readFrames(p parked) error {
	in := hearing{r, p.stream}
	r.heard.Store(time.Now().UnixNano())
	for {
		h, err := readHeader(in, r.session.endpoint.opt.MaxTensorBytes)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Tag.Kind.Class() != p.open.Class {
			return fmt.Errorf("%w: %v on a stream of %v", wire.ErrClass, h.Tag, p.open.Class)
		}
		if err := r.readFrame(in, h); err != nil {
			return err
		}
	}
}

// readFrame reads what follows a header once the inbox has room for it. Heartbeats end
// here; frames of another generation and duplicates are read over and counted.
func (r *remote) readFrame(in io.Reader, h wire.Header) error {
	if h.Tag.Generation != r.session.generation {
		r.counts.dropped.Add(1)
		return skip(in, h)
	}
	k := key{from: r.id, tag: h.Tag}
	if h.Tag.Kind != wire.Heartbeat {
		err := r.session.inbox.admit(r.ctx, k, h.PayloadBytes)
		if errors.Is(err, ErrDuplicate) {
			r.counts.duplicates.Add(1)
			return skip(in, h)
		}
		if err != nil {
			return err
		}
	}
	payload, err := readPayload(in, h)
	if err != nil {
		return err
	}
	r.counts.received(h.Tag.Kind, len(payload))
	if h.Tag.Kind != wire.Heartbeat {
		r.session.inbox.deliver(k, payload)
	}
	return nil
}

func skip(in io.Reader, h wire.Header) error {
	_, err := io.CopyN(io.Discard, in, int64(h.PayloadBytes))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// hearing notes when bytes of frames come.
type hearing struct {
	remote *remote
	in     io.Reader
}

func (h hearing) Read(b []byte) (int, error) {
	n, err := h.in.Read(b)
	if n > 0 {
		h.remote.heard.Store(time.Now().UnixNano())
	}
	return n, err
}
