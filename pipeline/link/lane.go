package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/pipeline/wire"
)

// lane is one outgoing stream of a stripe. Along a lane the pieces are in the order in
// which the receiver needs them, so that one which it has no room for yet holds up only
// what comes later.
type outStream struct {
	conn   *connection
	box    *outbox
	stream *quic.Stream
	newest piece // written last

	mu      sync.Mutex // guards the rest
	sent    []piece    // not acknowledged, in order
	acked   uint64     // pieces, in all
	closed  bool       // sent was given back
	retired bool       // nothing more is written
}

// openLane opens a stream for a class.
func (s *connection) openStream(class wire.Class) (*outStream, error) {
	stream, err := s.quic.OpenStreamSync(s.ctx)
	if err != nil {
		return nil, err
	}
	stream.SetPriority(urgency(class), true)
	r := s.remote
	l := &outStream{conn: s, box: r.outboxes[class], stream: stream}
	s.streams.add(l)
	open := wire.Open{
		Class: class, Generation: r.session.generation,
		From: r.session.endpoint.boot, To: wire.Boot(r.boot.Load()),
	}
	if _, err := stream.Write(wire.AppendOpen(nil, open)); err != nil {
		return nil, err
	}
	s.writers.Go(l.readAcks)
	return l, nil
}

// write sends a numbered piece.
func (l *outStream) write(p piece) error {
	l.mu.Lock()
	l.sent = append(l.sent, p)
	l.mu.Unlock()
	l.newest = p
	if _, err := l.stream.Write(wire.AppendPiece(make([]byte, 0, wire.PieceBytes), p.header, p.seq, p.offset)); err != nil {
		return err
	}
	if _, err := l.stream.Write(p.payload()); err != nil {
		return err
	}
	l.conn.remote.counts.sent(p)
	return nil
}

// retire ends a lane on which nothing more is written, as soon as all of it has been
// acknowledged: a peer accepts so many streams at a time and no more.
func (l *outStream) retire() {
	l.mu.Lock()
	l.retired = true
	through := len(l.sent) == 0
	l.mu.Unlock()
	if through {
		l.leave()
	}
}

// leave closes a lane on which everything has been acknowledged and has its stripe forget it.
func (l *outStream) leave() {
	l.conn.streams.remove(l)
	l.stream.Close()
	l.stream.CancelRead(streamCut)
}

// drop ends the lane as its stripe ends. A session that closes sends nothing more on any.
func (l *outStream) drop() {
	if l.conn.remote.flush.Err() != nil {
		cut(l.stream, streamOver)
		return
	}
	cut(l.stream, streamCut)
}

// readAcks gives room in the outbox back as the peer takes pieces in.
func (l *outStream) readAcks() {
	defer context.AfterFunc(l.conn.ctx, l.drop)()
	var b [wire.AckBytes]byte
	for {
		_, err := io.ReadFull(l.stream, b[:])
		if errors.Is(err, io.EOF) {
			return // the peer has come to the end of the lane
		}
		var n uint64
		if err == nil {
			n, err = wire.DecodeAck(b[:])
		}
		through := false
		if err == nil {
			c := l.conn.quic.ConnectionStats()
			through, err = l.ack(n, min(c.LatestRTT, c.SmoothedRTT))
			l.conn.remote.noteHeld(c)
		}
		if err != nil {
			l.conn.failed(err)
			return
		}
		if through {
			l.leave()
			return
		}
	}
}

// ack notes that the peer has taken in the first n pieces of the lane, over a round trip of
// rtt, and tells whether that was the last of a retired one.
func (l *outStream) ack(n uint64, rtt time.Duration) (through bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, nil
	}
	if n < l.acked || n-l.acked > uint64(len(l.sent)) {
		return false, fmt.Errorf("%w: %d pieces acknowledged after %d, %d are under way", wire.ErrValue, n, l.acked, len(l.sent))
	}
	if fresh := l.sent[:n-l.acked]; len(fresh) > 0 {
		l.conn.remote.queued.acked(payloadBytes(fresh), fresh[0].put, time.Now(), rtt+AckEvery)
		l.box.done(fresh)
		l.sent, l.acked = l.sent[len(fresh):], n
	}
	return l.retired && len(l.sent) == 0, nil
}

// giveBack has everything that is not acknowledged sent by another stripe.
func (l *outStream) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.box.giveBack(l.sent)
	l.sent = nil
}

// lanes are those of one stripe.
type outStreams struct {
	mu  sync.Mutex // guards all
	all []*outStream
}

func (ls *outStreams) add(l *outStream) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = append(ls.all, l)
}

func (ls *outStreams) remove(l *outStream) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = slices.DeleteFunc(ls.all, func(other *outStream) bool { return other == l })
}

func (ls *outStreams) giveBack() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		l.giveBack()
	}
	ls.all = nil
}

// cut ends both directions of a stream at once.
func cut(stream *quic.Stream, code quic.StreamErrorCode) {
	stream.CancelRead(code)
	stream.CancelWrite(code)
}
