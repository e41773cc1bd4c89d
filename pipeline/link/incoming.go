package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// AckEvery is the least time between two acknowledgements on a stream. Room in the sender's outbox
// waits for them, and what is measured with them may be off by as much.
const AckEvery = 10 * time.Millisecond

// urgency orders the streams of a connection (RFC 9218, section 4.1): lower goes first.
var urgency = map[wire.Class]int8{wire.Control: 0, wire.Activations: 2, wire.Gradients: 2, wire.Reductions: 3, wire.Chunks: 6}

// urgencyWarm is the urgency of padding.
const urgencyWarm = 7

// incoming is a peer's stream whose first bytes were read, and no more.
type incoming struct {
	from   plan.PeerID
	conn   transport.Conn
	stream transport.Stream
	open   wire.Open
}

// welcome reads what an incoming stream is for and puts it where it belongs.
func (e *Endpoint) welcome(from plan.PeerID, conn transport.Conn, stream transport.Stream) {
	p := incoming{from: from, conn: conn, stream: stream}
	stream.SetReadDeadline(time.Now().Add(e.opt.PeerTimeout))
	var b [wire.OpenBytes]byte
	if _, err := io.ReadFull(stream, b[:]); err != nil {
		cut(p.stream, streamRefused)
		return
	}
	stream.SetReadDeadline(time.Time{})
	var err error
	if p.open, err = wire.DecodeOpen(b[:]); err != nil {
		e.corrupt(p, err)
		e.mu.Lock()
		session := e.session
		e.mu.Unlock()
		if session.alive() && session.remotes[from] != nil {
			session.remotes[from].lose(session.remotes[from].unreadable(err))
		}
		return
	}
	if p.open.To != 0 && p.open.To != e.epoch {
		cut(p.stream, streamReborn)
		return
	}
	e.mu.Lock()
	session := e.session
	e.mu.Unlock()
	if session.alive() { // whatever the stream is for, it says which process the peer is
		if r := session.remotes[from]; r != nil && p.open.Generation <= session.generation {
			r.meet(p.open.From)
		}
	}
	if p.open.Class == wire.Chunks {
		e.answer(p)
		return
	}
	if session, ours := e.place(p); ours {
		session.adopt(p)
	}
}

// place parks a stream of a newer generation and refuses one of an older; a stream of the present one
// is the session's.
func (e *Endpoint) place(p incoming) (*Session, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case p.open.Generation > e.generation:
		e.park(p)
	case p.open.Generation == e.generation && e.session.alive():
		return e.session, true
	case p.open.Generation == e.generation && e.session.closing():
		cut(p.stream, streamLeft)
	default:
		e.counts.oldStreams.Add(1)
		cut(p.stream, streamOver)
	}
	return nil, false
}

// park keeps a stream for a session to come. When there are too many, the one of the oldest generation
// has to go. Callers hold mu.
func (e *Endpoint) park(p incoming) {
	peer := e.peer(p.from)
	peer.parked = append(peer.parked, p)
	if len(peer.parked) <= e.opt.ParkedStreams {
		return
	}
	oldest := 0
	for i, q := range peer.parked {
		if q.open.Generation < peer.parked[oldest].open.Generation {
			oldest = i
		}
	}
	e.counts.unparked.Add(1)
	cut(peer.parked[oldest].stream, streamOver)
	peer.parked = append(peer.parked[:oldest], peer.parked[oldest+1:]...)
}

// movedOn reports whether a stream of a newer generation of the peer is parked.
func (e *Endpoint) movedOn(from plan.PeerID, generation plan.Generation) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.peer(from).parked, func(p incoming) bool { return p.open.Generation > generation })
}

// corrupt closes a connection that carries what cannot be decoded.
func (e *Endpoint) corrupt(p incoming, reason error) {
	e.counts.corrupt.Add(1)
	e.log.Error("closing a corrupt connection", "peer", p.from, "reason", reason)
	p.conn.Close(codeCorrupt, reason.Error())
}

// undecodable reports whether err says that bytes came which do not follow the protocol.
func undecodable(err error) bool {
	bad := []error{
		wire.ErrMagic, wire.ErrVersion, wire.ErrKind, wire.ErrClass, wire.ErrChecksum, wire.ErrLength, wire.ErrValue,
		io.ErrUnexpectedEOF,
	}
	return slices.ContainsFunc(bad, func(b error) bool { return errors.Is(err, b) })
}

// read takes the pieces of one incoming stream in.
func (r *remote) read(p incoming) {
	ctx, end := context.WithCancel(r.ctx)
	defer end()
	defer context.AfterFunc(r.ctx, func() { cut(p.stream, streamLeft) })()
	defer context.AfterFunc(p.conn.Context(), end)() // it may be waiting for room
	p.stream.SetUrgency(urgency[wire.Control])       // this end writes acknowledgements on it, for which the peer's messages wait
	acks := &acks{stream: p.stream, wake: make(chan struct{}, 1)}
	r.session.spawn(func() { acks.send(ctx) })
	err := r.readPieces(ctx, p, acks)
	if err == nil {
		p.stream.SetWriteDeadline(time.Now()) // the peer has read all acknowledgements, or never will
		p.stream.Close()
		return
	}
	switch code, _ := transport.CutBy(err); {
	case r.ctx.Err() != nil:
	case code == streamOver: // its session has ended
		r.depart()
	case undecodable(err):
		r.session.endpoint.corrupt(p, err)
		r.lose(r.unreadable(err))
	case errors.Is(err, errNoWord):
		r.lose(err)
	default: // the connection broke, or the peer has closed its session in a hurry
		cut(p.stream, streamCut)
	}
}

// readPieces reads pieces until the stream ends.
func (r *remote) readPieces(ctx context.Context, p incoming, acks *acks) error {
	in := heardReader{r, p.stream}
	r.hear()
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
		// Padding and heartbeats have no number and say nothing; other pieces are read once the inbox has
		// room for their message.
		useful, inflow, data := false, r.inflows[p.open.Class], room[:head.Bytes()]
		if head.Seq != 0 {
			if useful, err = inflow.admit(ctx, head); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(in, data); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("link: piece of %v: %w", head.Header.Tag, err)
		}
		padded = head.Header.Tag.Kind == wire.Padding
		if head.Seq == 0 {
			continue
		}
		if !useful {
			r.counts.repeated.Add(1)
		}
		if err := inflow.put(head, data); err != nil {
			return err
		}
		acks.count()
	}
}

// acks sends one stream's acknowledgements: how many numbered pieces have been taken in.
type acks struct {
	stream transport.Stream
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

// heardReader notes when bytes of frames come.
type heardReader struct {
	remote *remote
	in     io.Reader
}

func (h heardReader) Read(b []byte) (int, error) {
	n, err := h.in.Read(b)
	if n > 0 {
		h.remote.hear()
	}
	return n, err
}
