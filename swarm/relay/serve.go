package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"pnode/planner/plan"
	"pnode/swarm/streams"
	"pnode/swarm/transport"
)

const (
	// maxOpen is how many connections this node relays at once, openPerPeer how many one member asked for. silentTime is
	// how long one may carry nothing: what members relay says something every second (package mux).
	maxOpen     = 64
	openPerPeer = 16
	silentTime  = 20 * time.Second
	// maxCalls is how many calls this node answers at once, callsPerRelay those of one relay.
	maxCalls      = 32
	callsPerRelay = 16
	// asksPerS and asksBurst bound one member's questions, callsPerS and callsBurst the calls of one: each has this node
	// dial.
	asksPerS   = 10
	asksBurst  = 32
	callsPerS  = 1
	callsBurst = 32
	// chunk is how many bytes are copied at a time, and take a turn in the rate: each relayed connection has a buffer of
	// this size in each direction.
	chunk = 32 << 10
	// tokenTime bounds how long a connection may take to show its token.
	tokenTime = 5 * time.Second
)

// share is a member's part of the rate. All connections that it asked for take turns, and the members take turns with
// each other: one with many connections, to one other member or to many, gets no more than one with one.
type share struct {
	turn  chan struct{} // holds one element while somebody waits for the rate
	paths int           // that use it, guarded by the service's mu
}

// path is a relayed connection.
type path struct {
	asker, called plan.PeerID
	tokens        [2]token
	// mu of the service guards conns, which have arrived, and over.
	conns [2]*pathConn
	over  bool
	share *share
	bytes atomic.Int64
	// heard is when the newest byte came, in nanoseconds since 1970, or when the path was made.
	heard atomic.Int64
	// silence ends a path that carries nothing.
	silence *time.Timer
	// met, if not nil, takes the called end's connection: the asker is this node. Its other fields are unused then.
	met chan *pathConn
}

// end is one end of a path: 0 asked for it, 1 was called.
type end struct {
	path *path
	side int
}

// Offer has this node relay for other members from now on.
func (s *Service) Offer() { s.Handle(AskProtocol, s.asked) }

// asked answers the question of a member.
func (s *Service) asked(ctx context.Context, from plan.PeerID, st streams.Stream) {
	if err := st.SetDeadline(time.Now().Add(askTime)); err != nil {
		return
	}
	m, err := read(st)
	if err != nil {
		st.Reset()
		return
	}
	p, answer := s.prepare(from, m)
	if p != nil {
		answer.verdict = s.call(ctx, p, m.alpn)
		if answer.verdict != accepted {
			s.end(p)
		}
	}
	if err := write(st, answer); err != nil {
		st.Reset()
		if p != nil {
			s.end(p)
		}
	}
}

// prepare makes a path that waits for its ends for meetTime, and the answer with the asking end's token. Without a
// path, the answer has the reason.
func (s *Service) prepare(from plan.PeerID, m message) (*path, message) {
	if m.peer == from || m.peer == s.Self || !s.Direct(m.peer) {
		return nil, message{verdict: unreachable}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asking.allow(from) || !s.place(from) {
		return nil, message{verdict: busy}
	}
	p := &path{asker: from, called: m.peer}
	p.heard.Store(time.Now().UnixNano())
	s.paths[p] = true
	for i := range p.tokens {
		rand.Read(p.tokens[i][:])
		s.ends[p.tokens[i]] = end{p, i}
	}
	if s.shares[from] == nil {
		s.shares[from] = &share{turn: make(chan struct{}, 1)}
	}
	p.share = s.shares[from]
	p.share.paths++
	time.AfterFunc(meetTime, func() { s.expire(p) })
	p.silence = time.AfterFunc(silentTime, func() { s.end(p) })
	return p, message{token: p.tokens[0]}
}

// place takes a place for one more connection that a member asks for, and reports whether there is one. Where all are
// taken, a member that has more than the asking one will have gives up one: the one that was silent for longest. Callers
// hold mu.
func (s *Service) place(from plan.PeerID) bool {
	if s.open.take(from) {
		return true
	}
	mine := s.open.held[from]
	var gives *path
	for p := range s.paths {
		switch has := s.open.held[p.asker]; {
		case has < mine+2:
		case gives == nil, has > s.open.held[gives.asker]:
			gives = p
		case has == s.open.held[gives.asker] && p.heard.Load() < gives.heard.Load():
			gives = p
		}
	}
	if mine >= openPerPeer || gives == nil {
		return false
	}
	s.Log.Info("swarm: a relayed connection gives way to a member that has fewer", "from", gives.asker, "to", gives.called, "for", from)
	s.close(gives)
	return s.open.take(from)
}

// call has the other end dial this node.
func (s *Service) call(ctx context.Context, p *path, alpn string) verdict {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	answer, err := s.exchange(ctx, p.called, callProtocol, message{token: p.tokens[1], peer: p.asker, alpn: alpn})
	if err != nil {
		s.Log.Debug("swarm: call a member to relay to it", "peer", p.called, "for", p.asker, "err", err)
		return unreachable
	}
	return answer.verdict
}

// accept takes the ends' connections until the swarm closes.
func (s *Service) accept(ctx context.Context) {
	for {
		conn, from, err := s.Carrier.Accept(ctx)
		if err != nil {
			return
		}
		if !s.Tasks.Run(func(ctx context.Context) { s.arrive(ctx, conn, from) }) {
			conn.Close(0, "")
		}
	}
}

// arrive reads a connection's token and, once both ends of its path are there, has them copied.
func (s *Service) arrive(ctx context.Context, conn transport.Conn, from plan.PeerID) {
	ctx, cancel := context.WithTimeout(ctx, tokenTime)
	defer cancel()
	var t token
	st, err := conn.AcceptStream(ctx)
	if err == nil {
		if err = st.SetReadDeadline(time.Now().Add(tokenTime)); err == nil {
			_, err = io.ReadFull(st, t[:])
		}
	}
	if err == nil {
		err = st.SetReadDeadline(time.Time{})
	}
	if err != nil || !s.meet(t, from, &pathConn{Stream: st, conn: conn, via: s.Self}) {
		conn.Close(0, "no such token")
	}
}

// meet gives a path one of its ends, and begins to copy when it has both. It reports whether the token is one of this
// peer's that nobody has shown.
func (s *Service) meet(t token, from plan.PeerID, c *pathConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.ends[t]
	if !known || from != [2]plan.PeerID{e.path.asker, e.path.called}[e.side] {
		return false
	}
	delete(s.ends, t)
	p := e.path
	if p.met != nil {
		p.met <- c // the token is good once: there is room
		return true
	}
	p.conns[e.side] = c
	if p.conns[0] != nil && p.conns[1] != nil {
		return s.Tasks.Run(func(ctx context.Context) { s.copy(ctx, p) })
	}
	return true
}

// expire ends a path whose ends have not both come.
func (s *Service) expire(p *path) {
	s.mu.Lock()
	met := p.conns[0] != nil && p.conns[1] != nil
	s.mu.Unlock()
	if !met {
		s.end(p)
	}
}

// end closes a path and gives back what it took; again, it does nothing.
func (s *Service) end(p *path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(p)
}

// close is end. Callers hold mu.
func (s *Service) close(p *path) {
	if p.over {
		return
	}
	p.over = true
	p.silence.Stop()
	delete(s.paths, p)
	s.open.give(p.asker)
	if p.share.paths--; p.share.paths == 0 {
		delete(s.shares, p.asker)
	}
	for i, c := range p.conns {
		delete(s.ends, p.tokens[i])
		if c != nil {
			c.abort()
		}
	}
}

// copy copies both directions of a path until both have ended, or one has failed.
func (s *Service) copy(ctx context.Context, p *path) {
	defer s.end(p)
	began := time.Now()
	for _, c := range p.conns {
		if _, err := c.Write([]byte{0}); err != nil { // both ends are there
			return
		}
	}
	s.Log.Info("swarm: relaying", "from", p.asker, "to", p.called)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	back := make(chan error, 1)
	begun := s.Tasks.Run(func(context.Context) { back <- s.forward(ctx, p, 1) })
	if !begun {
		return
	}
	defer context.AfterFunc(ctx, func() { s.end(p) })() // unblocks both directions
	err := s.forward(ctx, p, 0)
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-back)
	if err == nil { // what was sent last is under way
		s.linger(ctx, p)
	}
	s.Log.Info("swarm: relayed", "from", p.asker, "to", p.called, "bytes", p.bytes.Load(), "for", time.Since(began).Round(time.Second), "err", err)
}

// linger waits until both ends have closed their connections, for at most lingerTime.
func (s *Service) linger(ctx context.Context, p *path) {
	ctx, cancel := context.WithTimeout(ctx, lingerTime)
	defer cancel()
	for _, c := range p.conns {
		select {
		case <-c.conn.Context().Done():
		case <-ctx.Done():
		}
	}
}

// forward copies one direction, from the end of this side to the other, until the first closes it.
func (s *Service) forward(ctx context.Context, p *path, side int) (err error) {
	from, to := p.conns[side], p.conns[1-side]
	defer func() {
		if err != nil { // the other direction is of no use alone
			from.abort()
			to.abort()
		}
	}()
	b := make([]byte, chunk)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if err := s.pace(ctx, p.share, n); err != nil {
				return err
			}
			p.carried(n)
			if _, err := to.Write(b[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return to.Stream.Close()
		case err != nil:
			return err
		}
	}
}

// carried counts bytes that a path is about to send on.
func (p *path) carried(n int) {
	p.bytes.Add(int64(n))
	p.heard.Store(time.Now().UnixNano())
	p.silence.Reset(silentTime)
}

// pace blocks until n more bytes of a member's connections may be sent.
func (s *Service) pace(ctx context.Context, sh *share, n int) error {
	select {
	case sh.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-sh.turn }()
	return s.limiter.WaitN(ctx, n)
}

// takeCall takes a place for a relay's call, and reports whether there was one and it calls no faster than it may.
func (s *Service) takeCall(from plan.PeerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calling.allow(from) && s.calls.take(from)
}

// give gives a place back.
func (s *Service) give(c *counter, p plan.PeerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.give(p)
}

// counter counts places that members hold, at most total in all and each of one.
type counter struct {
	total, each, used int
	held              map[plan.PeerID]int
}

func newCounter(total, each int) counter {
	return counter{total: total, each: each, held: map[plan.PeerID]int{}}
}

func (c *counter) take(p plan.PeerID) bool {
	if c.used >= c.total || c.held[p] >= c.each {
		return false
	}
	c.used++
	c.held[p]++
	return true
}

func (c *counter) give(p plan.PeerID) {
	c.used--
	if c.held[p]--; c.held[p] == 0 {
		delete(c.held, p)
	}
}

// maxLimits is how many members' rates are kept.
const maxLimits = 1024

// limits bounds how often each member does something.
type limits struct {
	perS  rate.Limit
	burst int
	of    map[plan.PeerID]*rate.Limiter
}

func newLimits(perS rate.Limit, burst int) limits {
	return limits{perS, burst, map[plan.PeerID]*rate.Limiter{}}
}

// allow reports whether a member may do it once more now, and counts it.
func (l limits) allow(p plan.PeerID) bool {
	if l.of[p] == nil {
		if len(l.of) >= maxLimits { // members that came and went
			clear(l.of)
		}
		l.of[p] = rate.NewLimiter(l.perS, l.burst)
	}
	return l.of[p].Allow()
}
