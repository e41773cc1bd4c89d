package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"pnode/planner/plan"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
	"pnode/swarm/transport"
)

const (
	// ALPN names the protocol of the connections between an end and the relay.
	ALPN = "pnode-relay/1"
	// AskProtocol is what a member that relays for others answers on libp2p.
	AskProtocol  = "/pnode/relay/1"
	callProtocol = "/pnode/relay-call/1"

	// askTime bounds a question to a relay, callTime the relay's call of the other end within it.
	askTime  = 8 * time.Second
	callTime = 5 * time.Second
	// meetTime is how long a token is good.
	meetTime = 10 * time.Second
	// wayTime is how long one way may take before the next is tried too: a member that this node is connected to may be
	// connected through a hole that other connections do not find, and a relay may have died a moment ago.
	wayTime = time.Second
	// maxTries is how many relays are asked for one connection.
	maxTries = 4
)

// ErrNoRelay is returned where no member that relays is connected to both ends.
var ErrNoRelay = errors.New("no member relays to this peer")

// Carrier makes and accepts connections between members on ALPN. *alpn.Transport is one.
type Carrier interface {
	Dial(ctx context.Context, p plan.PeerID) (transport.Conn, error)
	// DialBack connects to a member that asked to be dialed, but not to any address that it names.
	DialBack(ctx context.Context, p plan.PeerID) (transport.Conn, error)
	Accept(ctx context.Context) (transport.Conn, plan.PeerID, error)
}

// Config holds what a Service needs.
type Config struct {
	Self    plan.PeerID
	Carrier Carrier
	// Open and Handle are the control streams between members.
	Open   func(ctx context.Context, p plan.PeerID, proto string) (streams.Stream, error)
	Handle func(proto string, f func(ctx context.Context, from plan.PeerID, st streams.Stream))
	// Member reports whether a peer is connected and admitted, or may be soon; Direct whether a member is connected
	// without a relay.
	Member, Direct func(plan.PeerID) bool
	// Relays lists members that may relay to a peer, the likeliest first.
	Relays func(plan.PeerID) []plan.PeerID
	// Serve takes over the called end of a relayed connection, by ALPN. It returns once the other end has proved who it is,
	// or has failed to.
	Serve map[string]func(context.Context, net.Conn)
	// BytesPerS bounds what this node relays, all pairs and directions together.
	BytesPerS int64
	Tasks     *tasks.Group
	Log       *slog.Logger
}

// Service reaches other members through relays, answers those that reach this node so, and, after Offer, relays for
// others. Its methods may be called from any goroutine.
type Service struct {
	Config
	limiter *rate.Limiter
	calls   counter
	// mu guards the fields below. ends are the tokens that were not shown yet, shares those
	// of the members that asked for what is relayed.
	mu     sync.Mutex
	ends   map[token]end
	shares map[plan.PeerID]*share
	// paths are those that have not ended.
	paths map[*path]bool
	// open counts relayed connections, those that have yet to meet included, by who asked for them.
	open counter
	// asking and calling bound how fast members ask this node to relay, and have it dial them.
	asking, calling limits
}

// New answers calls of relays until the swarm closes.
func New(cfg Config) *Service {
	s := &Service{
		Config: cfg, limiter: rate.NewLimiter(rate.Limit(cfg.BytesPerS), chunk),
		calls: newCounter(maxCalls, callsPerRelay), open: newCounter(maxOpen, openPerPeer),
		ends: map[token]end{}, shares: map[plan.PeerID]*share{}, paths: map[*path]bool{},
		asking: newLimits(asksPerS, asksBurst), calling: newLimits(callsPerS, callsBurst),
	}
	cfg.Handle(callProtocol, s.called)
	cfg.Tasks.Run(s.accept)
	return s
}

// Dial returns a byte stream to p: over a connection that p opens to this node, if it is connected to it, else through a
// relay. p takes its end over as one of the ALPN; nothing on the stream is proved or secret. The error wraps ErrNoRelay
// where there is nobody to ask.
func (s *Service) Dial(ctx context.Context, p plan.PeerID, alpn string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ways []func() (net.Conn, error)
	if s.Direct(p) {
		ways = append(ways, func() (net.Conn, error) { return s.reverse(ctx, p, alpn) })
	}
	relays := s.Relays(p)
	for _, r := range relays[:min(len(relays), maxTries)] {
		ways = append(ways, func() (net.Conn, error) {
			conn, err := s.through(ctx, r, p, alpn)
			if err != nil {
				return nil, fmt.Errorf("relay %s: %w", r, err)
			}
			return conn, nil
		})
	}
	if len(relays) == 0 {
		ways = append(ways, func() (net.Conn, error) { return nil, ErrNoRelay })
	}
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	next, begun := time.NewTimer(0), 0
	defer next.Stop()
	var errs []error
	for len(errs) < len(ways) {
		select {
		case <-next.C:
			if begun == len(ways) {
				continue
			}
			way := ways[begun]
			begun++
			next.Reset(wayTime)
			if !s.Tasks.Run(func(context.Context) {
				conn, err := way()
				select {
				case results <- result{conn, err}:
				case <-ctx.Done(): // the other way was faster
					if err == nil {
						conn.Close()
					}
				}
			}) {
				return nil, net.ErrClosed
			}
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			errs = append(errs, r.err)
			next.Reset(0)
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
	return nil, errors.Join(errs...)
}

// reverse has p dial this node, as if this node were the relay between itself and p.
func (s *Service) reverse(ctx context.Context, p plan.PeerID, alpn string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, meetTime)
	defer cancel()
	own := &path{asker: s.Self, called: p, met: make(chan *pathConn, 1)}
	t := &own.tokens[1]
	rand.Read(t[:])
	s.mu.Lock()
	s.ends[*t] = end{own, 1}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.ends, *t)
		s.mu.Unlock()
		select {
		case c := <-own.met: // came, and is not used
			c.abort()
		default:
		}
	}()
	if v := s.call(ctx, own, alpn); v != accepted {
		return nil, errors.New(v.String())
	}
	var c *pathConn
	select {
	case c = <-own.met:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, err := c.Write([]byte{1}); err != nil {
		c.abort()
		return nil, err
	}
	return c, nil
}

// through asks one relay, and dials it.
func (s *Service) through(ctx context.Context, r, p plan.PeerID, alpn string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer, err := s.exchange(ctx, r, AskProtocol, message{peer: p, alpn: alpn})
	if err != nil {
		return nil, err
	}
	if answer.verdict != accepted {
		return nil, errors.New(answer.verdict.String())
	}
	return s.enter(ctx, r, answer.token, s.Carrier.Dial)
}

// exchange says something to a member, and returns the answer.
func (s *Service) exchange(ctx context.Context, p plan.PeerID, proto string, m message) (message, error) {
	st, err := s.Open(ctx, p, proto)
	if err != nil {
		return message{}, err
	}
	defer st.Reset()
	defer context.AfterFunc(ctx, func() { st.Reset() })()
	if err := write(st, m); err != nil {
		return message{}, err
	}
	answer, err := read(st)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return answer, err
}

// dialFunc connects to a member.
type dialFunc func(context.Context, plan.PeerID) (transport.Conn, error)

// enter dials the relay and shows a token, and returns once the other end has come too.
func (s *Service) enter(ctx context.Context, r plan.PeerID, t token, dial dialFunc) (net.Conn, error) {
	conn, err := dial(ctx, r)
	if err != nil {
		return nil, err
	}
	st, err := conn.OpenStream(ctx)
	if err != nil {
		conn.Close(0, "")
		return nil, err
	}
	c := &pathConn{Stream: st, conn: conn, via: r}
	stop := context.AfterFunc(ctx, func() { c.abort() })
	if _, err = st.Write(t[:]); err == nil {
		_, err = io.ReadFull(st, make([]byte, 1))
	}
	if !stop() || err != nil {
		c.abort()
		return nil, errors.Join(err, ctx.Err())
	}
	return c, nil
}

// called answers a relay's call: this node dials the relay back, if it knows who asks.
func (s *Service) called(_ context.Context, from plan.PeerID, st streams.Stream) {
	if err := st.SetDeadline(time.Now().Add(callTime)); err != nil {
		return
	}
	m, err := read(st)
	if err != nil {
		st.Reset()
		return
	}
	answer := message{verdict: accepted}
	serve := s.Serve[m.alpn]
	switch {
	case serve == nil || !s.Member(m.peer) || !s.Direct(from):
		answer.verdict = refused
	case !s.takeCall(from):
		answer.verdict = busy
	default:
		begun := s.Tasks.Run(func(ctx context.Context) {
			defer s.give(&s.calls, from)
			meeting, cancel := context.WithTimeout(ctx, meetTime)
			defer cancel()
			conn, err := s.enter(meeting, from, m.token, s.Carrier.DialBack)
			if err != nil {
				s.Log.Debug("swarm: answer a call by a relay", "relay", from, "peer", m.peer, "err", err)
				return
			}
			serve(ctx, conn) // the place is held until the other end is known
		})
		if !begun {
			s.give(&s.calls, from)
			answer.verdict = refused
		}
	}
	if err := write(st, answer); err != nil {
		st.Reset()
	}
}
