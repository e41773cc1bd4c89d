package link

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/wire"
)

// message is a frame on its way to a peer, kept until all of it is acknowledged.
type message struct {
	frame  wire.Frame
	header []byte
	seq    uint64
	put    time.Time // into the outbox
	// left counts pieces that are not acknowledged. Guarded by the outbox.
	left int
}

// piece is the part of a message that one stream carries at a time.
type piece struct {
	*message
	offset int
	again  bool // it was under way on a connection that broke
}

func (p piece) payload() []byte {
	return p.frame.Payload[p.offset:min(len(p.frame.Payload), p.offset+wire.MaxPieceBytes)]
}

// last reports whether the piece ends the message.
func (p piece) last() bool { return p.offset+wire.MaxPieceBytes >= len(p.frame.Payload) }

// before compares pieces in the order in which the receiver needs them.
func (p piece) before(q piece) int {
	return cmp.Or(cmp.Compare(p.seq, q.seq), cmp.Compare(p.offset, q.offset))
}

// outbox numbers the messages for one peer and class, hands their pieces to whichever connection asks,
// and keeps each message until the peer has acknowledged all of it. Pieces given back, because their
// connection broke, are handed out again first. It is bounded in messages and in payload bytes; one
// message always fits an empty outbox.
type outbox struct {
	maxMessages, maxBytes int
	busy                  *stopwatch // runs while there are messages

	mu       sync.Mutex // guards everything below
	seq      uint64     // of the newest message
	fresh    []*message // not yet handed out, the first one from offset on
	offset   int
	again    []piece // given back, in order
	messages int     // neither acknowledged nor dropped
	bytes    int     // of their payloads
	acked    uint64  // payload bytes, in all
	draining bool
	err      error // why no message is accepted any more
	changed  broadcast
}

// put blocks until there is room.
func (o *outbox) put(ctx context.Context, f wire.Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && o.messages > 0 && (o.messages >= o.maxMessages || o.bytes+len(f.Payload) > o.maxBytes) {
		if err := o.changed.await(ctx, &o.mu); err != nil {
			return err
		}
	}
	return o.add(f)
}

// putAtOnce is put of a frame that somebody keeps in memory anyway: it needs no room.
func (o *outbox) putAtOnce(f wire.Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.add(f)
}

// add numbers a message. Callers hold mu.
func (o *outbox) add(f wire.Frame) error {
	if o.err != nil {
		return o.err
	}
	m := &message{frame: f, header: wire.AppendHeader(make([]byte, 0, wire.HeaderBytes), f), left: wire.Pieces(len(f.Payload))}
	o.seq++
	m.seq, m.put = o.seq, time.Now()
	o.fresh = append(o.fresh, m)
	if o.messages++; o.messages == 1 {
		o.busy.add(1)
	}
	o.bytes += len(f.Payload)
	o.changed.wake()
	return nil
}

// take blocks until there is a piece, and while allowed says no. After drain it ends with io.EOF, when
// everything has been acknowledged; after fail there are no pieces.
func (o *outbox) take(ctx context.Context, allowed func() bool) (piece, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.again)+len(o.fresh) == 0 || !allowed() {
		switch {
		case o.draining && o.messages == 0:
			return piece{}, io.EOF
		case o.err != nil && !o.draining:
			return piece{}, o.err
		}
		if err := o.changed.await(ctx, &o.mu); err != nil {
			return piece{}, err
		}
	}
	if len(o.again) > 0 {
		p := o.again[0]
		o.again = o.again[1:]
		return p, nil
	}
	p := piece{message: o.fresh[0], offset: o.offset}
	o.offset += wire.MaxPieceBytes
	if p.last() {
		o.fresh[0] = nil
		o.fresh, o.offset = o.fresh[1:], 0
	}
	return p, nil
}

// done notes that the peer has taken pieces in.
func (o *outbox) done(pieces []piece) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.messages == 0 {
		return // dropped
	}
	for _, p := range pieces {
		o.acked += uint64(len(p.payload()))
		if p.left--; p.left == 0 {
			o.bytes -= len(p.frame.Payload)
			if o.messages--; o.messages == 0 {
				o.busy.add(-1)
			}
		}
	}
	o.changed.wake()
}

// giveBack has pieces handed out again.
func (o *outbox) giveBack(pieces []piece) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && !o.draining {
		return
	}
	for _, p := range pieces {
		p.again = true
		o.again = append(o.again, p)
	}
	slices.SortFunc(o.again, piece.before)
	o.changed.wake()
}

// flush blocks until no message is left. It returns why it gave up: ctx ended, or nothing was acknowledged
// for as long as patience.
func (o *outbox) flush(ctx context.Context, patience time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.messages > 0 {
		messages, acked := o.messages, o.acked
		waiting, cancel := context.WithTimeout(ctx, patience)
		for o.messages == messages && o.acked == acked {
			if err := o.changed.await(waiting, &o.mu); err != nil {
				cancel()
				return err
			}
		}
		cancel()
	}
	return nil
}

// state returns how many payload bytes have been acknowledged, how many messages have been neither acknowledged
// nor dropped, and whether there are pieces that no connection has taken yet.
func (o *outbox) state() (acked uint64, unread int, waiting bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked, o.messages, len(o.again)+len(o.fresh) > 0
}

// stir makes everybody who waits look again.
func (o *outbox) stir() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed.wake()
}

// drain accepts no more messages, for the reason err, and has the rest sent.
func (o *outbox) drain(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err, o.draining = err, true
		o.changed.wake()
	}
}

// fail drops all messages and makes put and take fail with err.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.messages > 0 {
		o.busy.add(-1)
	}
	o.fresh, o.again, o.offset, o.messages, o.bytes, o.draining = nil, nil, 0, 0, 0, false
	if o.err == nil {
		o.err = err
	}
	o.changed.wake()
}

// broadcast wakes everybody who waits for a change of some state. The zero value is ready; the mutex
// of that state guards it.
type broadcast struct{ ch chan struct{} }

// wait returns a channel that is closed by the next wake.
func (b *broadcast) wait() <-chan struct{} {
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// await unlocks mu until the next wake. It fails when ctx ends before.
func (b *broadcast) await(ctx context.Context, mu *sync.Mutex) error {
	changed := b.wait()
	mu.Unlock()
	defer mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *broadcast) wake() {
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
