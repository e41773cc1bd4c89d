package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/transport"
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
	epoch          atomic.Uint64 // the process epoch of the peer's endpoint, 0 until it is known
	heard          atomic.Int64  // when the last byte of a frame came, in nanoseconds after begun, which no clock moves; 0 is never
	silence        atomic.Int64  // for how long nothing had come at the last look, in nanoseconds
	left           atomic.Bool   // the peer has closed its session
	want           atomic.Int32  // how many connections are to send
	counts         traffic
	busy           stopwatch
	queued         queueMeter
	waits          stopwatch // runs while messages wait to be sent
	held           stopwatch // runs while they wait for a window though the line has room
	warmUp         *warmUp
	// These are run's alone. sampled is the state at the end of the last sample, silent reports that nothing has come over
	// any connection for nearly two heartbeats, told is the choice that was logged last.
	tuner   *tuner
	life    *liveness
	begun   time.Time
	sampled sample
	silent  bool
	told    choice

	mu          sync.Mutex     // guards the rest
	lost        error          // why it is, as all who ask hear from then on; nil: it is not
	connections []*connection  // changed by run alone
	over        plan.Transport // over which messages go
	why         string         // they do
}

func newRemote(s *Session, id plan.PeerID) *remote {
	r := &remote{session: s, id: id, begun: time.Now(), outboxes: map[wire.Class]*outbox{}, inflows: map[wire.Class]*inflow{}, warmUp: &warmUp{
		asked: newSignal(), here: newSignal(), met: newSignal(), there: newSignal(), over: newSignal(),
	}}
	r.flush, r.endAll = context.WithCancel(s.flush)
	r.ctx, r.endCtx = context.WithCancel(s.open)
	s.endpoint.mu.Lock()
	if r.tuner = s.endpoint.peer(id).tuner; r.tuner == nil {
		r.tuner = newTuner(1)
	} else {
		r.tuner = r.tuner.again()
	}
	r.life = &s.endpoint.peer(id).life
	s.endpoint.mu.Unlock()
	r.want.Store(int32(r.tuner.using.n))
	beat := wire.Frame{Tag: wire.Tag{Kind: wire.Heartbeat, Generation: s.generation}}
	r.heartbeat = wire.AppendPiece(nil, wire.AppendHeader(nil, beat), 0, 0)
	for _, c := range wire.SessionClasses {
		r.outboxes[c] = &outbox{maxMessages: s.endpoint.opt.QueueFrames, maxBytes: s.endpoint.opt.QueueBytes, busy: &r.busy}
		r.inflows[c] = &inflow{remote: r, class: c, partial: map[uint64]*partial{}}
	}
	return r
}

// run keeps connections to the peer until the session closes or the peer is lost. It replaces a
// connection that breaks; what was under way on it is sent again.
func (r *remote) run() {
	e := r.session.endpoint
	tick := time.NewTicker(e.opt.interval() / looksPerBeat)
	defer tick.Stop()
	d := newDialer(r)
	defer d.again.Stop()
	r.life.begin(e.opt.interval(), time.Now())
	defer func() { e.keep(r.id, r.tuner) }()
	closing, looks := r.ctx.Done(), 0
	for {
		conns, changed := e.connections(r.id)
		if r.use(conns) {
			if r.life.excuse(time.Now()); r.silent {
				r.closeSilent()
				r.silent = false
			}
			if r.heard.Load() != 0 { // a replaced connection gives the peer its time to be heard
				r.hear()
			}
		}
		if closing == nil && len(r.connections) > 0 {
			return // the connection was made for what is queued
		}
		d.want(r.lacking(conns, d.attempts == 0))
		select {
		case <-closing:
			if r.life.silent(time.Now()) > 2*e.opt.interval() {
				r.endAll() // who is silent reads nothing that is queued
			}
			if len(r.connections) > 0 || r.unread() == 0 {
				r.closeSilent()
				return
			}
			closing, d.ready = nil, true // the next attempt is not left to the peer
		case <-r.flush.Done():
			return
		case <-changed:
		case <-d.again.C:
			d.ready = true
		case err := <-d.dialed:
			if d.note(err) {
				r.lose(err)
			}
			if err != nil && d.over != "" && !errors.Is(err, errDialing) && !errors.Is(err, context.Canceled) {
				r.tuner.lose(d.over, missing(err))
			}
		case <-tick.C:
			if err := r.look(); err != nil {
				r.lose(err)
			}
			if looks++; looks%looksPerBeat == 0 {
				r.tune()
			}
		}
	}
}

// lacking returns how many connections are to be made, over which transport, and whether there is none at all. Without
// one, or while nothing comes over those in use, the network chooses the transport; first of all it is the one that
// served the last session.
func (r *remote) lacking(conns []*liveConn, first bool) (n int, over plan.Transport, alone bool) {
	want, up := r.tuner.wanted(), 0
	for _, c := range conns {
		if want.over == "" || c.Transport() == want.over {
			up++
		}
	}
	switch {
	case len(conns) == 0 && first:
		return 1, want.over, true
	case len(conns) == 0, r.silent:
		return 1, "", len(conns) == 0
	}
	return min(want.n-up, maxConns-len(conns)), want.over, false
}

// use lets go of the connections that have ended and sends over those that are new; fresh reports
// whether there is one.
func (r *remote) use(conns []*liveConn) (fresh bool) {
	var kept []*connection
	known, up, ends := map[*liveConn]bool{}, map[plan.Transport]int{}, map[plan.Transport]error{}
	for _, c := range r.connections {
		if ended(c.conn) {
			err := c.conn.Err()
			r.judge(err)
			ends[c.conn.Transport()] = ending(err)
		} else if c.ctx.Err() == nil {
			kept, known[c.conn] = append(kept, c), true
		}
	}
	for _, conn := range conns {
		if !known[conn] && !ended(conn) && !r.left.Load() { // it may have ended since it was listed
			kept, fresh = append(kept, r.attach(conn)), true
		}
	}
	for _, c := range kept {
		up[c.conn.Transport()]++
	}
	r.mu.Lock()
	r.connections = kept
	r.mu.Unlock()
	r.tuner.connected(up, r.session.endpoint.net.Transports(r.id), ends)
	r.spread()
	return fresh
}

// ending returns what the end of a connection says of its transport: nil that it was silent, errUnused nothing.
func ending(err error) error {
	closed, late := new(transport.ConnError), net.Error(nil)
	switch {
	case errors.As(err, &closed) && closed.Code == codeReplaced:
		return errUnused
	case errors.As(err, &closed) && closed.Code == codeSilent, errors.As(err, &late) && late.Timeout():
		return nil
	}
	return err
}

// missing returns why there is no connection over a transport, from the error of a dial.
func missing(err error) string {
	if late := net.Error(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout() {
		return noAnswer
	}
	return "cannot be connected"
}

// unread returns how many messages the peer has not acknowledged.
func (r *remote) unread() (n int) {
	for _, o := range r.outboxes {
		_, unread, _ := o.state()
		n += unread
	}
	return n
}

// stir has the connections look again whether it is their turn.
func (r *remote) stir() {
	for _, o := range r.outboxes {
		o.stir()
	}
}

// look closes the connections that have gone silent. It returns an error when the peer is to be taken for lost: it was silent
// for longer than it ever is.
func (r *remote) look() error {
	opt, now := r.session.endpoint.opt, time.Now()
	slept := r.life.look(now)
	for _, c := range r.connections {
		c.moved = c.moved.Add(slept)
		c.look(now)
		if r.left.Load() {
			c.moved = now // nothing is sent any more, so that nothing can come back
		}
		r.life.hear(c.moved)
	}
	if r.left.Load() {
		r.life.excuse(now)
	}
	silent := r.life.silent(now)
	r.silence.Store(int64(silent))
	lively := silent <= 2*opt.interval()
	r.silent = len(r.tuner.others()) > 0 && len(r.connections) > 0 && silent > opt.interval()*3/2
	for _, c := range r.connections {
		if d := c.silent(now); d > opt.ConnTimeout || lively && d > 2*opt.interval() {
			r.session.endpoint.end(c.conn, codeSilent, "nothing came for "+plan.Duration(d))
		}
	}
	if silent > r.life.patience(opt) {
		r.session.endpoint.miss(r.id)
		return fmt.Errorf("nothing came for %s", plan.Duration(silent))
	}
	heard := r.heard.Load() // 0 while the peer may not have opened its session yet
	d := now.Sub(r.begun) - time.Duration(heard)
	if heard != 0 && lively && d > opt.PeerTimeout && !r.session.endpoint.movedOn(r.id, r.session.generation) {
		return fmt.Errorf("no heartbeat came for %s, though the connection lives", plan.Duration(d))
	}
	return nil
}

// hear notes that a byte of a frame has come now.
func (r *remote) hear() { r.heard.Store(max(1, int64(time.Since(r.begun)))) }

// closeSilent closes the connections that are silent when the session ends for another reason: the
// next one dials anew.
func (r *remote) closeSilent() {
	now := time.Now()
	for _, c := range r.connections {
		if c.look(now); c.silent(now) > 2*r.session.endpoint.opt.interval() {
			r.session.endpoint.end(c.conn, codeSilent, "silent at the end of its generation")
		}
	}
}

// errRestarted says that a peer is lost because it was started again.
var errRestarted = errors.New("link: the peer was started again and has nothing of what was sent before")

// meet compares the process epoch of the peer's endpoint with the one that the session knows. A peer
// that was started again has nothing of what was sent to it before.
func (r *remote) meet(from wire.ProcessEpoch) bool {
	if r.epoch.CompareAndSwap(0, uint64(from)) || r.epoch.Load() == uint64(from) {
		return true
	}
	r.lose(errRestarted)
	return false
}

// judge reports whether an error says more than that a connection broke, and acts on it.
func (r *remote) judge(err error) bool {
	if code, ok := transport.CutBy(err); ok {
		switch code {
		case streamLeft:
			r.leave()
			return true
		case streamOver:
			r.depart()
			return true
		case streamReborn:
			r.lose(errRestarted)
			return true
		case streamRefused:
			r.lose(errors.New("link: the peer takes no messages of this node in its generation"))
			return true
		}
	}
	switch closed, ok := transport.ClosedBy(err); {
	case !ok, closed.Code == codeSilent, closed.Code == codeReplaced:
	case closed.Code == transport.CodeNotMember && r.connected():
		return false // libp2p has yet to connect anew: one that was removed has all of its connections closed
	default:
		r.lose(fmt.Errorf("link: the peer closed the connection, saying %q", closed.Reason))
		return true
	}
	if !undecodable(err) {
		return false
	}
	r.session.endpoint.log.Error("acknowledgements make no sense", "peer", r.id, "reason", err)
	r.lose(r.unreadable(err))
	return true
}

// connected reports whether one of the connections to the peer lives.
func (r *remote) connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.connections, func(c *connection) bool { return !ended(c.conn) })
}

// lose reports the peer, once, and cuts everything that belongs to it: after each call its outboxes take nothing.
func (r *remote) lose(reason error) {
	err := fmt.Errorf("%w: %w", ErrLost, reason)
	r.mu.Lock()
	again := r.lost != nil
	if !again {
		r.lost = err
	}
	r.mu.Unlock()
	if again {
		<-r.flush.Done() // until the first call is through
		return
	}
	if !r.session.alive() { // it closes, and waits for this peer no longer
		r.fail(err)
		r.endAll()
		return
	}
	r.session.endpoint.log.Info("peer lost", "peer", r.id, "generation", r.session.generation, "reason", reason) // people hear of the plan that follows
	r.session.lost <- r.id                                                                                       // first, so that whoever sees a call fail finds the reason in Lost
	r.session.miss(r.id, err)
	r.fail(err)
	r.endCtx()
	r.endAll()
}

// reason returns why the peer is lost; nil while it is not.
func (r *remote) reason() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// leave notes that the peer has closed its session: what is sent has no reader. Messages that it sent
// before may still come.
func (r *remote) leave() {
	r.left.Store(true)
	r.fail(ErrLeft)
}

// depart notes that the peer has closed its session and sends nothing more: all of it has come, or
// never will.
func (r *remote) depart() {
	r.leave()
	r.session.miss(r.id, ErrLeft)
}

func (r *remote) fail(err error) {
	for _, o := range r.outboxes {
		o.fail(err)
	}
}
