package link

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// Endpoint owns this node's end of the data plane.
type Endpoint struct {
	net   Network
	opt   Options
	log   *slog.Logger
	epoch wire.ProcessEpoch
	ctx   context.Context // ends when Run ends
	stop  context.CancelFunc
	// work are the goroutines of connections and of incoming streams.
	work   errgroup.Group
	chunks atomic.Pointer[ChunkFunc]
	counts counters

	mu         sync.Mutex // guards everything below
	closed     bool
	peers      map[plan.PeerID]*peer
	session    *Session
	generation plan.Generation // newest that was opened
	changed    broadcast       // of connections
}

// peer holds the connections with another node. Guarded by Endpoint.mu.
type peer struct {
	conns    []*liveConn // the newest last, at most maxConns
	dialing  bool
	parked   []incoming
	fetching chan struct{}  // one element for each Fetch stream
	serving  int            // chunk streams being answered
	tuner    *tuner         // of the last session, nil before the first has ended
	life     liveness       // of the session's goroutine, and of each later one's
	missing  bool           // a session has lost it, and nothing was connected since
	over     plan.Transport // over which messages went last
	ended    bool           // its process has, and no connection was made since
	bulk     pacer
}

// liveConn is a connection of an endpoint.
type liveConn struct {
	transport.Conn
	dialed bool   // by this end
	warm   uint64 // how many bytes its congestion window was opened for; guarded by Endpoint.mu
}

// NewEndpoint makes an endpoint. It does nothing until Run runs.
func NewEndpoint(n Network, opt Options) *Endpoint {
	opt = opt.withDefaults()
	ctx, stop := context.WithCancel(context.Background())
	epoch := wire.ProcessEpoch(rand.Uint64())
	for epoch == 0 {
		epoch = wire.ProcessEpoch(rand.Uint64())
	}
	return &Endpoint{net: n, opt: opt, log: opt.Log, epoch: epoch, ctx: ctx, stop: stop, peers: map[plan.PeerID]*peer{}}
}

// Run accepts connections until ctx ends or the network fails. It then closes the session and all
// connections, waits for every goroutine, and returns the network's error, or nil when ctx has ended.
// An endpoint runs once.
func (e *Endpoint) Run(ctx context.Context) error {
	accept, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	for err == nil {
		conn, from, failed := e.net.Accept(accept)
		if failed != nil {
			err = fmt.Errorf("link: accept connections: %w", failed)
			break
		}
		err = e.register(from, &liveConn{Conn: conn})
	}
	if ctx.Err() != nil { // only now: shutdown takes a while
		err = nil
	}
	e.shutdown()
	return err
}

// shutdown closes the session and all connections, and waits for every goroutine.
func (e *Endpoint) shutdown() {
	e.mu.Lock()
	e.closed = true // no other session begins
	session := e.session
	e.changed.wake()
	e.mu.Unlock()
	if session != nil {
		session.Close()
	}
	e.stop()
	e.mu.Lock()
	for _, p := range e.peers {
		for _, conn := range p.conns {
			e.end(conn, codeShutdown, "shutting down")
		}
	}
	e.mu.Unlock()
	e.work.Wait()
}

// Session opens a generation for an exchange with peers (the own ID among them is
// ignored) after closing the one before. The generation has to be newer than any before:
// with an older one, or after Run has ended, every call of the session fails. One
// goroutine at a time may call Session. What comes is expected, unless an Expect says otherwise.
func (e *Endpoint) Session(generation plan.Generation, peers []plan.PeerID, rules ...Rules) *Session {
	e.mu.Lock()
	old := e.session
	e.mu.Unlock()
	if old != nil {
		old.Close()
	}
	s := newSession(e, generation, peers, rules)
	streams, err := e.open(s)
	if err != nil {
		s.inbox.close(err)
		for _, r := range s.order {
			r.fail(err)
		}
		s.Close()
		return s
	}
	for _, r := range s.order {
		s.spawn(r.run)
	}
	for _, p := range streams {
		s.adopt(p)
	}
	return s
}

// open makes s the current session and returns the streams that were parked for it.
func (e *Endpoint) open(s *Session) ([]incoming, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if s.generation <= e.generation {
		return nil, fmt.Errorf("%w: session of generation %d after %d", ErrGeneration, s.generation, e.generation)
	}
	e.session, e.generation = s, s.generation
	var mine []incoming
	for _, p := range e.peers {
		mine = append(mine, e.unpark(p)...)
	}
	return mine, nil
}

// unpark returns the streams of the present generation that a peer's newest process has opened: the
// processes of the others have ended. Callers hold mu.
func (e *Endpoint) unpark(p *peer) (mine []incoming) {
	var newer []incoming
	var epoch wire.ProcessEpoch
	for _, st := range slices.Backward(p.parked) {
		switch {
		case st.open.Generation > e.generation:
			newer = append(newer, st)
			continue
		case st.open.Generation < e.generation:
			cut(st.stream, streamOver)
			e.counts.oldStreams.Add(1)
			continue
		case epoch == 0:
			epoch = st.open.From
		}
		if st.open.From != epoch {
			cut(st.stream, streamReborn)
			e.counts.oldStreams.Add(1)
			continue
		}
		mine = append(mine, st)
	}
	slices.Reverse(newer)
	p.parked = newer
	return mine
}

// end closes a connection. What the peer is told may wait for the line: nobody else waits for that.
func (e *Endpoint) end(conn *liveConn, code transport.Code, reason string) {
	e.work.Go(func() error {
		conn.Close(code, reason)
		return nil
	})
}

// peer returns the entry of id, made on first use. Callers hold mu.
func (e *Endpoint) peer(id plan.PeerID) *peer {
	p := e.peers[id]
	if p == nil {
		p = &peer{fetching: make(chan struct{}, max(1, e.opt.ChunkStreams/2))}
		e.peers[id] = p
	}
	return p
}

// PeerEnded loses a peer of the session whose process has ended, as the caller knows, and closes the connections with it:
// neither a fetch nor the next process of the peer waits until they are found silent.
func (e *Endpoint) PeerEnded(id plan.PeerID) {
	e.mu.Lock()
	session := e.session
	e.mu.Unlock()
	if session != nil {
		if r := session.remotes[id]; r != nil && !r.left.Load() {
			r.lose(errRefused)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peer(id)
	p.ended = true
	for _, conn := range p.conns {
		e.end(conn, codeSilent, "the peer's process has ended")
	}
}

// Missing reports whether a peer was lost for its silence and has not been connected since: it may take long to reach it.
func (e *Endpoint) Missing(id plan.PeerID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[id]
	return p != nil && p.missing
}

// miss notes that a peer was lost for its silence.
func (e *Endpoint) miss(id plan.PeerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peer(id).missing = true
}

// keep has the next session with a peer begin with what a tuner has found.
func (e *Endpoint) keep(id plan.PeerID, t *tuner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peer(id).tuner = t
}
