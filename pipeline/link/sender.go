package link

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/quic-go/quic-go"

	"pnode/pipeline/wire"
)

// write sends the frames of one class, on a stream that begins with the first of them.
// At the end of the queue it waits until the peer has read everything.
func (r *remote) write(conn *quic.Conn, class wire.Class) {
	q := r.queues[class]
	f, err := q.take()
	if err != nil {
		return
	}
	stream, err := conn.OpenStreamSync(r.flush)
	if err != nil {
		r.broken(err)
		return
	}
	defer context.AfterFunc(r.flush, func() { cut(stream, streamCut) })()
	defer context.AfterFunc(stream.Context(), func() { r.stopped(context.Cause(stream.Context())) })()
	stream.SetPriority(urgency(class), true)
	front := wire.AppendOpen(make([]byte, 0, wire.OpenBytes+wire.HeaderBytes), wire.Open{Class: class, Generation: r.session.generation})
	for err == nil {
		if err := r.writeFrame(stream, wire.AppendHeader(front, f), f); err != nil {
			cut(stream, streamCut)
			r.broken(err)
			return
		}
		q.done(f)
		front = front[:0]
		f, err = q.take()
	}
	if !errors.Is(err, io.EOF) { // the queue was failed
		cut(stream, streamCut)
		return
	}
	if err := finish(stream); err != nil {
		cut(stream, streamCut)
		r.broken(err)
	}
}

func (r *remote) writeFrame(stream *quic.Stream, front []byte, f wire.Frame) error {
	r.busy.start()
	defer r.busy.stop()
	if _, err := stream.Write(front); err != nil {
		return err
	}
	if _, err := stream.Write(f.Payload); err != nil {
		return err
	}
	r.counts.sent(f.Tag.Kind, len(f.Payload))
	return nil
}

// finish ends a stream and waits until the peer's reader has come to its end: it then
// ends the direction back, on which nothing is ever sent.
func finish(stream *quic.Stream) error {
	if err := stream.Close(); err != nil {
		return err
	}
	switch _, err := stream.Read(make([]byte, 1)); {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return fmt.Errorf("%w: bytes on the way back", wire.ErrLength)
	default:
		return err
	}
}

// cut ends both directions of a stream at once.
func cut(stream *quic.Stream, code quic.StreamErrorCode) {
	stream.CancelRead(code)
	stream.CancelWrite(code)
}

// stopped notices at once that the peer reads a stream no more; otherwise only the next
// write would.
func (r *remote) stopped(cause error) {
	if _, ok := cutBy(cause); ok {
		r.broken(cause)
	}
}

// broken judges why a stream to the peer has failed.
func (r *remote) broken(err error) {
	if r.flush.Err() != nil {
		return // by our own doing
	}
	if code, ok := cutBy(err); ok && code == streamLeft {
		r.leave()
		return
	}
	r.lose(err)
}
