package link

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// maxAhead bounds how far the numbers of messages under way may lie apart.
const maxAhead = 1 << 16

// inflow puts the messages of one peer and class together from pieces that come over
// several streams, some of them twice.
type inflow struct {
	remote *remote
	class  wire.Class

	mu       sync.Mutex // guards everything below
	finished uint64     // all messages up to this number are complete
	admitted uint64     // the newest message that the inbox has let in; in order of number
	busy     bool       // somebody waits for the inbox to admit the next one
	partial  map[uint64]*partial
	pieces   int // of the messages in partial
	changed  broadcast
}

// partial is a message between its admission and the time when all before it are complete.
type partial struct {
	header  wire.Header
	from    plan.PeerID // by the plan
	payload []byte
	have    []bool // of the pieces
	missing int
	// unwanted: it belongs to another generation, or a message with its tag came before.
	unwanted bool
}

// admit blocks until the payload of a piece may be read, and reports whether it is of any use. Messages
// are admitted in the order of their numbers, so that what comes early on one stream never takes the
// room of what another stream is about to bring.
func (f *inflow) admit(ctx context.Context, p wire.Piece) (useful bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for err == nil {
		switch m := f.partial[p.Seq]; {
		case p.Seq <= f.finished:
			return false, nil
		case p.Seq > f.finished+maxAhead:
			return false, fmt.Errorf("%w: message %d of %v after %d", wire.ErrValue, p.Seq, f.class, f.finished)
		case m != nil && m.header != p.Header:
			return false, fmt.Errorf("%w: message %d of %v is %v and %v", wire.ErrValue, p.Seq, f.class, m.header.Tag, p.Header.Tag)
		case m != nil:
			return !m.have[p.Offset/wire.MaxPieceBytes], nil
		case p.Seq == f.admitted+1 && !f.busy && f.holds(p):
			err = f.begin(ctx, p)
		default: // it is another message's turn, or there is no room
			err = f.changed.await(ctx, &f.mu)
		}
	}
	return false, err
}

// begin keeps track of the next message from when the inbox has let it in. Callers hold mu, which is
// free while the inbox has no room.
func (f *inflow) begin(ctx context.Context, p wire.Piece) error {
	f.busy = true
	f.mu.Unlock()
	from, wanted, err := f.open(ctx, p.Header)
	f.mu.Lock()
	f.busy = false
	f.changed.wake()
	if err != nil {
		return err
	}
	m := &partial{header: p.Header, from: from, missing: wire.Pieces(p.Header.PayloadBytes), unwanted: !wanted}
	if m.have = make([]bool, m.missing); wanted {
		m.payload = make([]byte, p.Header.PayloadBytes)
	}
	f.admitted, f.partial[p.Seq] = p.Seq, m
	f.pieces += m.missing
	return nil
}

// open has the inbox let a message in, and returns whom it is from by the plan, and whether it is wanted: not where it belongs
// to another generation, or one with its tag came before.
func (f *inflow) open(ctx context.Context, h wire.Header) (from plan.PeerID, wanted bool, err error) {
	s := f.remote.session
	if h.Tag.Generation != s.generation {
		f.remote.counts.dropped.Add(1)
		return f.remote.id, false, nil
	}
	from, wanted, err = s.sender(ctx, f.remote.id, h.Tag, h.PayloadBytes)
	if err != nil || !wanted {
		return from, false, err
	}
	err = s.inbox.admit(ctx, key{from: from, tag: h.Tag}, admission{by: f.remote.id, size: h.PayloadBytes})
	if errors.Is(err, ErrDuplicate) {
		f.remote.counts.duplicates.Add(1)
		return from, false, nil
	}
	return from, err == nil, err
}

// holds reports whether the next message may be kept track of. Each piece takes a byte and each
// message some hundred until all before it are complete, received or not. What is missing of
// those before never waits for this. Callers hold mu.
func (f *inflow) holds(p wire.Piece) bool {
	opt := f.remote.session.endpoint.opt
	most := opt.InboxFrames + opt.InboxBytes/wire.MaxPieceBytes
	return f.pieces == 0 || f.pieces+wire.Pieces(p.Header.PayloadBytes) <= most
}

// put copies a piece to its place, and hands its message over when it is complete.
func (f *inflow) put(p wire.Piece, data []byte) error {
	f.mu.Lock()
	m, i := f.partial[p.Seq], p.Offset/wire.MaxPieceBytes
	if m == nil || m.have[i] { // came on another stream in the meantime
		f.mu.Unlock()
		return nil
	}
	m.have[i] = true
	m.missing--
	if !m.unwanted {
		copy(m.payload[p.Offset:], data)
		f.remote.session.movement.came(m.header.Tag.Step, len(data))
	}
	complete := m.missing == 0
	for next := f.partial[f.finished+1]; complete && next != nil && next.missing == 0; next = f.partial[f.finished+1] {
		f.finished++
		f.pieces -= len(next.have)
		delete(f.partial, f.finished)
		f.changed.wake() // a reader may have no room to keep track of the next message
	}
	f.mu.Unlock()
	if !complete || m.unwanted {
		return nil
	}
	if err := m.header.Verify(m.payload); err != nil {
		return err
	}
	f.remote.counts.framesReceived.Add(1)
	f.remote.counts.payloadReceived.Add(uint64(len(m.payload)))
	f.remote.session.endpoint.counts.received[m.header.Tag.Kind].Add(uint64(len(m.payload)))
	f.remote.session.inbox.deliver(key{from: m.from, tag: m.header.Tag}, f.remote.id, m.payload)
	m.payload = nil // the receiver's now, though messages before this one may be missing
	return nil
}
