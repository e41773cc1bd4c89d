package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/pipeline/wire"
)

// AckEvery is the least time between two acknowledgements on a stream. Room in the sender's
// outbox waits for them, and what is measured with them may be off by as much.
const AckEvery = 10 * time.Millisecond

// read takes the pieces of one incoming stream in.
func (r *remote) read(p parked) {
	ctx, end := context.WithCancel(r.ctx)
	defer end()
	defer context.AfterFunc(r.ctx, func() { cut(p.stream, streamLeft) })()
	defer context.AfterFunc(p.conn.Context(), end)() // it may be waiting for room
	acks := &acks{stream: p.stream, wake: make(chan struct{}, 1)}
	r.session.spawn(func() { acks.send(ctx) })
	switch err := r.readPieces(ctx, p, acks); {
	case err == nil:
		p.stream.SetWriteDeadline(time.Now()) // the peer has read all acknowledgements, or never will
		p.stream.Close()
	case r.ctx.Err() != nil:
	case over(err):
		r.depart()
	case undecodable(err):
		r.session.endpoint.corrupt(p, err)
		r.lose(err)
	default: // the connection broke, or the peer has closed its session in a hurry
		cut(p.stream, streamCut)
	}
}

// meet compares the life of the peer's endpoint with the one that the session knows. A peer
// that was started again has nothing of what was sent to it before.
func (r *remote) meet(from wire.Boot) bool {
	if r.boot.CompareAndSwap(0, uint64(from)) || r.boot.Load() == uint64(from) {
		return true
	}
	r.lose(errReborn)
	return false
}

func (r *remote) readPieces(ctx context.Context, p parked, acks *acks) error {
	in := hearing{r, p.stream}
	r.heard.Store(time.Now().UnixNano())
	r.warmUp.met.give()
	padded := false
	var front [wire.PieceBytes]byte
	room := make([]byte, wire.MaxPieceBytes)
	for {
		if _, err := io.ReadFull(in, front[:]); errors.Is(err, io.EOF) {
			if padded {
				r.warmUp.there.give()
			}
			return nil
		} else if err != nil {
			return err
		}
		head, err := wire.DecodePiece(front[:], r.session.endpoint.opt.MaxTensorBytes)
		if err != nil {
			return err
		}
		if head.Header.Tag.Kind.Class() != p.open.Class {
			return fmt.Errorf("%w: %v on a stream of %v", wire.ErrClass, head.Header.Tag, p.open.Class)
		}
		if err := r.readPiece(ctx, in, head, room[:head.Bytes()]); err != nil {
			return err
		}
		padded = head.Header.Tag.Kind == wire.Padding
		if head.Seq != 0 {
			acks.count()
		}
	}
}

// readPiece reads what follows a piece's front once the inbox has room for its message.
// What came before, and what says nothing, is read over.
func (r *remote) readPiece(ctx context.Context, in io.Reader, p wire.Piece, data []byte) error {
	useful := false
	if p.Seq != 0 {
		var err error
		if useful, err = r.inflows[p.Header.Tag.Kind.Class()].admit(ctx, p); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(in, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("link: piece of %v: %w", p.Header.Tag, err)
	}
	if p.Seq == 0 {
		return nil
	}
	if !useful {
		r.counts.repeated.Add(1)
	}
	return r.inflows[p.Header.Tag.Kind.Class()].put(p, data)
}

// acks tells the sender of one stream how many numbered pieces have been taken in.
type acks struct {
	stream *quic.Stream
	pieces atomic.Uint64
	wake   chan struct{}
}

func (a *acks) count() {
	a.pieces.Add(1)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// send runs until ctx ends or the stream fails.
func (a *acks) send(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			return
		}
		if _, err := a.stream.Write(wire.AppendAck(nil, a.pieces.Load())); err != nil {
			return
		}
		pause.Reset(AckEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
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
