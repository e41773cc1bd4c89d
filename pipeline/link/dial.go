package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

const (
	// maxSpread bounds the connections that a session spreads its messages over.
	maxSpread = 16
	// maxConns bounds the live connections with one peer: two more when both dialled at once.
	maxConns = maxSpread + 2
	// A failed dial is repeated after firstRetry, then twice as long, up to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Second
)

// connect returns a live connection with id: the newest there is, or a new one. It tries until
// PeerTimeout is over.
func (e *Endpoint) connect(ctx context.Context, id plan.PeerID) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opt.PeerTimeout)
	defer cancel()
	again := time.NewTimer(0)
	defer again.Stop()
	ready, retry := true, firstRetry
	var last error
	for {
		conns, changed := e.connections(id)
		if len(conns) > 0 {
			return conns[len(conns)-1], nil
		}
		if ready {
			conn, err := e.dial(ctx, id)
			if err == nil || errors.Is(err, ErrClosed) {
				return conn, err
			}
			if !errors.Is(err, errDialing) {
				last = err
			}
			ready = false
			again.Reset(retry)
			retry = min(2*retry, lastRetry)
		}
		select {
		case <-changed:
		case <-again.C:
			ready = true
		case <-e.ctx.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, fmt.Errorf("link: connect to %s: %w", id, cmp.Or(last, ctx.Err()))
		}
	}
}

// connections returns the live connections with a peer, the oldest first, and a channel that is closed
// by the next change.
func (e *Endpoint) connections(id plan.PeerID) ([]transport.Conn, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var live []transport.Conn
	for _, c := range e.peer(id).conns {
		if !ended(c) {
			live = append(live, c)
		}
	}
	return live, e.changed.wait()
}

// dial makes a connection, unless somebody else does: then it fails with errDialing at once.
func (e *Endpoint) dial(ctx context.Context, id plan.PeerID) (transport.Conn, error) {
	e.mu.Lock()
	p, closed := e.peer(id), e.closed
	busy := p.dialing
	p.dialing = busy || !closed
	e.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case busy:
		return nil, errDialing
	}
	conn, err := e.net.Dial(ctx, id, "")
	e.mu.Lock()
	p.dialing = false
	e.changed.wake()
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return conn, e.register(id, conn)
}

// register begins to serve a connection. Beyond maxConns it closes the oldest one: the peer would not
// have dialled if it still believed in it.
func (e *Endpoint) register(id plan.PeerID, conn transport.Conn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		conn.Close(codeShutdown, "shutting down")
		return ErrClosed
	}
	p := e.peer(id)
	p.conns = append(p.conns, conn)
	if len(p.conns) > maxConns {
		p.conns[0].Close(codeReplaced, "replaced by a newer connection")
		p.conns = p.conns[1:]
	}
	e.changed.wake()
	e.work.Go(func() error {
		e.serve(id, conn)
		return nil
	})
	return nil
}

func ended(c transport.Conn) bool { return c.Context().Err() != nil }

// serve accepts the peer's streams until the connection ends.
func (e *Endpoint) serve(id plan.PeerID, conn transport.Conn) {
	for {
		stream, err := conn.AcceptStream(e.ctx)
		if err != nil {
			break
		}
		e.work.Go(func() error {
			e.welcome(id, conn, stream)
			return nil
		})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peer(id)
	p.conns = slices.DeleteFunc(p.conns, func(c transport.Conn) bool { return c == conn })
	p.parked = slices.DeleteFunc(p.parked, func(s incoming) bool { return s.conn == conn })
	e.changed.wake()
}

// Refuser is implemented by a Network that can tell a dead process from a silent network.
type Refuser interface {
	// Refuses reports whether the peer's host says that nobody listens at the peer's address,
	// as the operating system does when a process has ended, however it did. Silence is no
	// refusal. It takes a moment.
	Refuses(ctx context.Context, peer plan.PeerID) bool
}

var (
	errRefused = errors.New("link: nobody listens at the peer's address any more")
	errDialing = errors.New("link: a connection is being made already")
)

// dialer makes the connections that a remote lacks, one at a time. All of it but attempt
// belongs to the goroutine of remote.run.
type dialer struct {
	remote   *remote
	dialed   chan error  // capacity 1: the result of an attempt
	again    *time.Timer // sets ready
	ready    bool
	running  bool
	attempts int
	retry    time.Duration
	refusals int
}

// newDialer leaves the first attempt to the peer for a while if its ID is the lower one.
func newDialer(r *remote) *dialer {
	var patience time.Duration
	if e := r.session.endpoint; e.net.Self() > r.id {
		patience = e.opt.interval()
	}
	return &dialer{remote: r, dialed: make(chan error, 1), again: time.NewTimer(patience), ready: patience == 0, retry: firstRetry}
}

// want begins an attempt if connections are lacking and it is time for one.
func (d *dialer) want(lacking int) {
	if lacking <= 0 || !d.ready || d.running || d.remote.left.Load() {
		return
	}
	again := d.attempts > 0 || d.remote.epoch.Load() != 0
	d.attempts++
	d.running = true
	d.remote.session.also(func() { d.dialed <- d.attempt(again) })
}

// attempt dials once; one that is not the first asks before whether the peer's process is dead.
func (d *dialer) attempt(again bool) error {
	e, id := d.remote.session.endpoint, d.remote.id
	ctx, cancel := context.WithTimeout(d.remote.flush, e.opt.ConnTimeout)
	defer cancel()
	if refuser, ok := e.net.(Refuser); ok && again && refuser.Refuses(ctx, id) {
		return errRefused
	}
	_, err := e.dial(ctx, id)
	return err
}

// note takes the result of an attempt, and reports whether the peer has refused twice in a row: a
// network that reorders its packets may bring one refusal late.
func (d *dialer) note(err error) (dead bool) {
	d.running = false
	switch {
	case err == nil:
		d.retry, d.refusals = firstRetry, 0
		return false
	case errors.Is(err, errRefused):
		d.refusals++
	default:
		d.refusals = 0
	}
	d.ready = false
	d.again.Reset(d.retry)
	d.retry = min(2*d.retry, lastRetry)
	return d.refusals > 1
}
