package link

import (
	"errors"
	"io"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Urgencies of streams (RFC 9218, section 4.1): lower goes first.
const (
	urgencyControl = iota
	_
	urgencyTensor
	urgencyReduce
	_
	_
	urgencyChunk
	urgencyWarm
)

func urgency(c wire.Class) int8 {
	switch c {
	case wire.Control:
		return urgencyControl
	case wire.Activations, wire.Gradients:
		return urgencyTensor
	case wire.Reductions:
		return urgencyReduce
	default:
		return urgencyChunk
	}
}

// parked is an incoming stream whose first bytes were read, and no more.
type parked struct {
	from   plan.PeerID
	conn   *quic.Conn
	stream *quic.Stream
	open   wire.Open
}

// welcome reads what an incoming stream is for and puts it where it belongs.
func (e *Endpoint) welcome(from plan.PeerID, conn *quic.Conn, stream *quic.Stream) {
	p := parked{from: from, conn: conn, stream: stream}
	stream.SetReadDeadline(time.Now().Add(e.opt.PeerTimeout))
	var b [wire.OpenBytes]byte
	if _, err := io.ReadFull(stream, b[:]); err != nil {
		cut(p.stream, streamRefused)
		return
	}
	stream.SetReadDeadline(time.Time{})
	open, err := wire.DecodeOpen(b[:])
	if err != nil {
		e.corrupt(p, err)
		return
	}
	p.open = open
	if open.To != 0 && open.To != e.boot {
		cut(p.stream, streamReborn)
		return
	}
	e.greet(p)
	if open.Class == wire.Chunks {
		e.answer(p)
		return
	}
	if session, ours := e.place(p); ours {
		session.adopt(p)
	}
}

// place parks a stream of a newer generation and refuses one of an older; a stream of the
// present one is the session's.
func (e *Endpoint) place(p parked) (*Session, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case p.open.Generation > e.generation:
		e.park(p)
		return nil, false
	case p.open.Generation == e.generation && e.session.alive():
		return e.session, true
	case p.open.Generation == e.generation && e.session.closing():
		cut(p.stream, streamLeft)
		return nil, false
	default:
		e.counts.oldStreams.Add(1)
		cut(p.stream, streamOver)
		return nil, false
	}
}

// greet has the session know which life of the peer a stream comes from, whatever the
// stream is for.
func (e *Endpoint) greet(p parked) {
	e.mu.Lock()
	session := e.session
	e.mu.Unlock()
	if session.alive() {
		session.meet(p)
	}
}

// park keeps a stream for a session to come. When there are too many, the one of the
// oldest generation has to go. Callers hold mu.
func (e *Endpoint) park(p parked) {
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

// movedOn tells whether a stream of a newer generation of the peer is parked.
func (e *Endpoint) movedOn(from plan.PeerID, generation plan.Generation) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.peer(from).parked {
		if p.open.Generation > generation {
			return true
		}
	}
	return false
}

// corrupt closes a connection that carries what cannot be decoded.
func (e *Endpoint) corrupt(p parked, reason error) {
	e.counts.corrupt.Add(1)
	e.log.Error("closing a corrupt connection", "peer", p.from, "reason", reason)
	p.conn.CloseWithError(codeCorrupt, reason.Error())
}

// undecodable tells whether err says that bytes came which do not follow the protocol.
func undecodable(err error) bool {
	for _, bad := range []error{wire.ErrMagic, wire.ErrVersion, wire.ErrKind, wire.ErrClass, wire.ErrChecksum, wire.ErrLength, wire.ErrValue, io.ErrUnexpectedEOF} {
		if errors.Is(err, bad) {
			return true
		}
	}
	return false
}

// over tells whether the peer has cut a stream because its session has ended.
func over(err error) bool {
	code, ok := cutBy(err)
	return ok && code == streamOver
}

// cutBy gives the code with which the peer has cut a stream.
func cutBy(err error) (quic.StreamErrorCode, bool) {
	var cut *quic.StreamError
	if errors.As(err, &cut) && cut.Remote {
		return cut.ErrorCode, true
	}
	return 0, false
}
