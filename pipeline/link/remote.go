package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// remote is one peer of a session.
type remote struct {
	session   *Session
	id        plan.PeerID
	outboxes  map[wire.Class]*outbox // fixed
	inflows   map[wire.Class]*inflow // fixed
	heartbeat []byte
	// ctx and flush are the session's open and flush, and end when the peer is lost.
	ctx, flush     context.Context
	endCtx, endAll context.CancelFunc
	boot           atomic.Uint64 // the life of the peer's endpoint, 0 until it is known
	heard          atomic.Int64  // when the last byte of a frame came, Unix nanoseconds; 0 is never
	left           atomic.Bool   // the peer has closed its session
	want           atomic.Int32  // how many stripes are to send
	counts         traffic
	busy           stopwatch
	queued         queueMeter
	held           stopwatch // runs while messages wait for a window though the line has room
	warmUp         *warmUp
	tuner          *tuner // run's alone
	sampled        sample // run's alone: the state at the end of the last sample

	mu          sync.Mutex // guards the rest
	gone        bool
	connections []*connection // changed by run alone
}

func newRemote(s *Session, id plan.PeerID) *remote {
	r := &remote{session: s, id: id, outboxes: map[wire.Class]*outbox{}, inflows: map[wire.Class]*inflow{}, warmUp: newWarmUp()}
	r.flush, r.endAll = context.WithCancel(s.flush)
	r.ctx, r.endCtx = context.WithCancel(s.open)
	r.tuner = newTuner(s.endpoint.spreadTo(id))
	r.want.Store(int32(r.tuner.want()))
	beat := wire.Frame{Tag: wire.Tag{Kind: wire.Heartbeat, Generation: s.generation}}
	r.heartbeat = wire.AppendPiece(nil, wire.AppendHeader(nil, beat), 0, 0)
	for _, c := range wire.SessionClasses {
		r.outboxes[c] = &outbox{maxMessages: s.endpoint.opt.QueueFrames, maxBytes: s.endpoint.opt.QueueBytes, busy: &r.busy}
		r.inflows[c] = newInflow(r, c)
	}
	return r
}

// run keeps connections to the peer until the session closes or the peer is lost. A
// connection that breaks is replaced; what was under way on it is sent again.
func (r *remote) run() {
	e := r.session.endpoint
	tick := time.NewTicker(e.opt.interval())
	defer tick.Stop()
	d := newDialer(r)
	defer d.again.Stop()
	seen := time.Now()
	defer func() { e.keepSpread(r.id, r.tuner.settled) }()
	closing := r.ctx.Done()
	for {
		conns, changed := e.connections(r.id)
		if r.use(conns) {
			seen = time.Now()
			r.heardAgain(seen)
		}
		if closing == nil && len(r.connections) > 0 {
			return // the connection was made for what is queued
		}
		d.want(int(r.want.Load()) - len(conns))
		select {
		case <-closing:
			if len(r.connections) > 0 || r.unread() == 0 {
				r.distrust()
				return
			}
			closing = nil
			d.hurry()
		case <-r.flush.Done():
			return
		case <-changed:
		case <-d.again.C:
			d.ready = true
		case err := <-d.dialed:
			if d.note(err) {
				r.lose(err)
			}
		case <-tick.C:
			if err := r.look(&seen); err != nil {
				r.lose(err)
			}
			r.tune()
		}
	}
}

// use lets go of the connections that have ended and sends over those that are new; fresh
// tells whether there is one.
func (r *remote) use(conns []*quic.Conn) (fresh bool) {
	var kept []*connection
	known := map[*quic.Conn]bool{}
	for _, s := range r.connections {
		if s.quic.Context().Err() != nil {
			r.judge(context.Cause(s.quic.Context()))
		} else if s.ctx.Err() == nil {
			kept, known[s.quic] = append(kept, s), true
		}
	}
	for _, conn := range conns {
		if !known[conn] && !r.left.Load() {
			kept, fresh = append(kept, r.attach(conn)), true
		}
	}
	for i, s := range kept {
		s.rank.Store(int32(i))
	}
	r.mu.Lock()
	r.connections = kept
	r.mu.Unlock()
	r.stir()
	return fresh
}

// look closes the connections that have gone silent, and tells when the peer is to be taken
// for lost: nothing has come since seen plus PeerTimeout.
func (r *remote) look(seen *time.Time) error {
	opt, now := r.session.endpoint.opt, time.Now()
	for _, s := range r.connections {
		s.look(now)
		if r.left.Load() {
			s.moved = now // nothing is sent any more, so that nothing can come back
		}
		if s.moved.After(*seen) {
			*seen = s.moved
		}
	}
	if r.left.Load() {
		*seen = now
	}
	lively := now.Sub(*seen) <= 2*opt.interval()
	for _, s := range r.connections {
		if d := s.silent(now); d > opt.ConnTimeout || lively && d > 2*opt.interval() {
			s.quic.CloseWithError(codeSilent, fmt.Sprintf("nothing came for %v", d))
		}
	}
	if d := now.Sub(*seen); d > opt.PeerTimeout {
		return fmt.Errorf("nothing came for %v", d)
	}
	if d := r.silence(now); lively && d > opt.PeerTimeout && !r.session.endpoint.movedOn(r.id, r.session.generation) {
		return fmt.Errorf("no heartbeat came for %v, though the connection lives", d)
	}
	return nil
}

// silence is how long no byte of a frame has come; 0 before the first one, when the peer
// may not have opened its session yet.
func (r *remote) silence(now time.Time) time.Duration {
	heard := r.heard.Load()
	if heard == 0 {
		return 0
	}
	return now.Sub(time.Unix(0, heard))
}

// heardAgain gives a peer whose connection was replaced its time to be heard.
func (r *remote) heardAgain(now time.Time) {
	if r.heard.Load() != 0 {
		r.heard.Store(now.UnixNano())
	}
}

// distrust closes the connections of a session that ends for another reason while they are
// silent: the next one dials anew.
func (r *remote) distrust() {
	now := time.Now()
	for _, s := range r.connections {
		if s.look(now); s.silent(now) > 2*r.session.endpoint.opt.interval() {
			s.quic.CloseWithError(codeSilent, "silent at the end of its generation")
		}
	}
}

func (r *remote) drain() {
	for _, o := range r.outboxes {
		o.drain(ErrClosed)
	}
}

// unread is how many messages the peer has not acknowledged.
func (r *remote) unread() (n int) {
	for _, o := range r.outboxes {
		n += o.unread()
	}
	return n
}

// stir has the stripes look again whether it is their turn.
func (r *remote) stir() {
	for _, o := range r.outboxes {
		o.stir()
	}
}
