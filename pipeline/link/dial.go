package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"
)

const (
	// maxSpread bounds the connections that a session spreads its messages over.
	maxSpread = 16
	// maxConns bounds the live connections with one peer: each direction may have a transport of its own, and two more
	// come when both dialled at once.
	maxConns = 2*maxSpread + 2
	// A failed dial is repeated after firstRetry, then twice as long, up to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Second
)

// connect returns a live connection with id: over the transport that messages go over, or without any over the one that the
// network prefers, which it dials once; else the newest of all, or a new one. It tries until PeerTimeout is over, or the host of
// a peer whose process has ended says that no other one listens.
func (e *Endpoint) connect(ctx context.Context, id plan.PeerID) (*liveConn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opt.PeerTimeout)
	defer cancel()
	again := time.NewTimer(0)
	defer again.Stop()
	ready, retry, chosen := true, firstRetry, false
	var last error
	for {
		conns, changed := e.connections(id)
		if len(conns) > 0 {
			over, dials := e.chunksOver(id)
			for _, c := range slices.Backward(conns) {
				if c.Transport() == over {
					return c, nil
				}
			}
			if !dials || chosen {
				return conns[len(conns)-1], nil
			}
			chosen = true
			if conn, err := e.dial(ctx, id, over); err == nil {
				return conn, nil
			}
			continue
		}
		if ready {
			if e.stillEnded(ctx, id) {
				return nil, fmt.Errorf("link: connect to %s: %w: %w", id, ErrLost, errRefused)
			}
			conn, err := e.dial(ctx, id, "")
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

// stillEnded reports whether a peer's process has ended and no other one has taken its place, as its host says.
func (e *Endpoint) stillEnded(ctx context.Context, id plan.PeerID) bool {
	e.mu.Lock()
	ended := e.peer(id).ended
	e.mu.Unlock()
	refuser, ok := e.net.(Refuser)
	return ended && ok && refuser.Refuses(ctx, id)
}

// chunksOver returns the transport for what is no message: that of the messages, or without any, "" or the one that the network
// prefers. A relay is not dialed while there is anything else.
func (e *Endpoint) chunksOver(id plan.PeerID) (over plan.Transport, dials bool) {
	e.mu.Lock()
	over = e.peer(id).over
	e.mu.Unlock()
	if all := e.net.Transports(id); over == "" && len(all) > 0 && all[0] != plan.Relay {
		return all[0], true
	}
	return over, false
}

// connections returns the live connections with a peer, the oldest first, and a channel that is closed
// by the next change.
func (e *Endpoint) connections(id plan.PeerID) ([]*liveConn, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var live []*liveConn
	for _, c := range e.peer(id).conns {
		if !ended(c) {
			live = append(live, c)
		}
	}
	return live, e.changed.wait()
}

// dial makes a connection over a transport, unless somebody else makes one: then it fails with errDialing at once.
func (e *Endpoint) dial(ctx context.Context, id plan.PeerID, over plan.Transport) (*liveConn, error) {
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
	conn, err := e.net.Dial(ctx, id, over)
	e.mu.Lock()
	p.dialing = false
	e.changed.wake()
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	live := &liveConn{Conn: conn, dialed: true}
	return live, e.register(id, live)
}

// register begins to serve a connection. Beyond maxConns it closes the oldest one: the peer would not
// have dialled if it still believed in it.
func (e *Endpoint) register(id plan.PeerID, conn *liveConn) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		conn.Close(codeShutdown, "shutting down")
		return ErrClosed
	}
	defer e.mu.Unlock()
	p := e.peer(id)
	p.conns, p.ended, p.missing = append(p.conns, conn), false, false
	if len(p.conns) > maxConns {
		e.end(p.conns[0], codeReplaced, "replaced by a newer connection")
		p.conns = p.conns[1:]
	}
	e.changed.wake()
	e.work.Go(func() error {
		e.serve(id, conn)
		return nil
	})
	return nil
}

func ended(c *liveConn) bool { return c.Context().Err() != nil }

// serve accepts the peer's streams until the connection ends.
func (e *Endpoint) serve(id plan.PeerID, conn *liveConn) {
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
	p.conns = slices.DeleteFunc(p.conns, func(c *liveConn) bool { return c == conn })
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
	over     plan.Transport     // of the attempt that runs, or ran last
	giveUp   context.CancelFunc // ends the attempt that runs
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

// want begins an attempt over a transport if connections are lacking and it is time for one. Without any connection the
// network chooses the transport, whatever was being tried.
func (d *dialer) want(lacking int, over plan.Transport, alone bool) {
	if lacking <= 0 || d.remote.left.Load() {
		return
	}
	if d.running && alone && d.over != "" && over == "" {
		d.giveUp()
	}
	if !d.ready || d.running {
		return
	}
	asks := alone && (d.attempts > 0 || d.remote.epoch.Load() != 0)
	d.attempts++
	d.running, d.over = true, over
	ctx, giveUp := context.WithTimeout(d.remote.flush, d.remote.session.endpoint.opt.ConnTimeout)
	d.giveUp = giveUp
	d.remote.session.also(func() {
		defer giveUp()
		d.dialed <- d.attempt(ctx, over, asks)
	})
}

// attempt dials once. One that is not the first, without another connection, asks before whether the peer's process is
// dead.
func (d *dialer) attempt(ctx context.Context, over plan.Transport, asks bool) error {
	e, id := d.remote.session.endpoint, d.remote.id
	if refuser, ok := e.net.(Refuser); ok && asks && refuser.Refuses(ctx, id) {
		return errRefused
	}
	_, err := e.dial(ctx, id, over)
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
