package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/pipeline/wire"
	"pnode/planner"
)

// remote is one peer of a session.
type remote struct {
	session *Session
	id      planner.PeerID
	queues  map[wire.Class]*queue // fixed
	// ctx and flush are the session's open and flush, and end when the peer is lost.
	ctx, flush     context.Context
	endCtx, endAll context.CancelFunc
	conn           atomic.Pointer[quic.Conn] // for sending
	heard          atomic.Int64              // when the last byte of a frame came, Unix nanoseconds; 0 is never
	left           atomic.Bool               // the peer has closed its session
	counts         traffic
	busy           stopwatch

	mu      sync.Mutex // guards the rest
	claimed map[wire.Class]bool
	gone    bool
}

func newRemote(s *Session, id planner.PeerID) *remote {
	r := &remote{session: s, id: id, queues: map[wire.Class]*queue{}, claimed: map[wire.Class]bool{}}
	r.flush, r.endAll = context.WithCancel(s.flush)
	r.ctx, r.endCtx = context.WithCancel(s.open)
	for _, c := range wire.SessionClasses {
		r.queues[c] = &queue{maxFrames: s.endpoint.opt.QueueFrames, maxBytes: s.endpoint.opt.QueueBytes}
	}
	return r
}

// claim lets one incoming stream of each class in.
func (r *remote) claim(c wire.Class) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claimed[c] {
		return false
	}
	r.claimed[c] = true
	return true
}

// run connects, starts the senders and watches over the peer until the session closes or
// the peer is lost.
func (r *remote) run() {
	e := r.session.endpoint
	var patience time.Duration
	if e.net.Self() > r.id {
		patience = e.opt.PeerTimeout / 4
	}
	conn, err := e.connect(r.ctx, r.id, patience)
	if err != nil {
		r.lose(err)
		return
	}
	r.conn.Store(conn)
	for _, c := range wire.SessionClasses {
		r.session.spawn(func() { r.write(conn, c) })
	}
	r.watch(conn)
}

// watch sends heartbeats and looks for signs of life.
func (r *remote) watch(conn *quic.Conn) {
	opt := r.session.endpoint.opt
	interval := min(opt.Heartbeat, opt.PeerTimeout/4)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	bytes, moved := uint64(0), time.Now() // of the connection, which moves with every acknowledgement
	for {
		r.queues[wire.Control].offerIdle(wire.Frame{Tag: wire.Tag{Kind: wire.Heartbeat, Generation: r.session.generation}})
		select {
		case <-r.ctx.Done():
			if time.Since(moved) > 2*interval { // given up for another peer, before this one's time
				conn.CloseWithError(codeSilent, "silent at the end of its generation")
			}
			return
		case <-conn.Context().Done():
			r.lose(fmt.Errorf("connection: %w", context.Cause(conn.Context())))
			return
		case <-ticker.C:
		}
		now := time.Now()
		if n := conn.ConnectionStats().BytesReceived; n != bytes {
			bytes, moved = n, now
		}
		if r.left.Load() {
			moved = now // nothing is sent any more, so that nothing can come back
		}
		if silent := now.Sub(moved); silent > opt.PeerTimeout {
			err := fmt.Errorf("nothing came for %v", silent)
			conn.CloseWithError(codeSilent, err.Error()) // the next generation dials anew
			r.lose(err)
			return
		}
		if now.Sub(moved) > 2*interval {
			continue // the connection itself may be dead
		}
		if silent := r.silence(now); silent > opt.PeerTimeout && !r.session.endpoint.movedOn(r.id, r.session.generation) {
			r.lose(fmt.Errorf("no heartbeat came for %v, though the connection lives", silent))
			return
		}
	}
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

// lose reports the peer, once, and cuts everything that belongs to it.
func (r *remote) lose(reason error) {
	r.mu.Lock()
	again := r.gone
	r.gone = true
	r.mu.Unlock()
	if again || !r.session.alive() {
		return
	}
	err := fmt.Errorf("%w: %w", ErrLost, reason)
	r.session.endpoint.log.Warn("peer lost", "peer", r.id, "generation", r.session.generation, "reason", reason)
	r.session.lost <- r.id // first, so that whoever sees a call fail finds the reason in Lost
	r.session.inbox.lose(r.id, err)
	r.fail(err)
	r.endCtx()
	r.endAll()
}

// leave notes that the peer has closed its session: what is sent has no reader. Messages
// it sent before may still come.
func (r *remote) leave() {
	r.left.Store(true)
	r.fail(ErrLeft)
}

func (r *remote) fail(err error) {
	for _, q := range r.queues {
		q.fail(err)
	}
}

func (r *remote) drain() {
	for _, q := range r.queues {
		q.drain(ErrClosed)
	}
}
