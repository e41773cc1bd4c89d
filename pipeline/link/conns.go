package link

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
)

const (
	// maxStripes is how many connections a session spreads its messages over.
	maxSpread = 16
	// maxConns live connections with one peer: two more when both dialled at once.
	maxConns = maxSpread + 2
	// A failed dial is repeated after firstRetry, then twice as long, up to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Second
)

// connect gives a live connection with id: the newest there is, or a new one. It tries
// until PeerTimeout is over.
func (e *Endpoint) connect(ctx context.Context, id plan.PeerID) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opt.PeerTimeout)
	defer cancel()
	again := time.NewTimer(0)
	defer again.Stop()
	ready, retry := true, firstRetry
	var last error
	for {
		conn, changed, dial, err := e.current(id, ready)
		if conn != nil || err != nil {
			return conn, err
		}
		if dial {
			if conn, last = e.dial(ctx, id); last == nil {
				return conn, nil
			}
			ready = false
			again.Reset(retry)
			retry = min(2*retry, lastRetry)
			continue
		}
		select {
		case <-changed:
		case <-again.C:
			ready = true
		case <-ctx.Done():
			return nil, fmt.Errorf("link: connect to %s: %w", id, cmp.Or(last, ctx.Err()))
		}
	}
}

// connections gives the live connections with a peer, the oldest first, and the channel
// that tells of a change.
func (e *Endpoint) connections(id plan.PeerID) ([]*quic.Conn, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var live []*quic.Conn
	for _, c := range e.peer(id).conns {
		if !ended(c) {
			live = append(live, c)
		}
	}
	return live, e.changed.wait()
}

// current gives the newest live connection, or says whether the caller is to dial, or the
// channel that tells of a change.
func (e *Endpoint) current(id plan.PeerID, ready bool) (conn *quic.Conn, changed <-chan struct{}, dial bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, false, ErrClosed
	}
	p := e.peer(id)
	for _, c := range slices.Backward(p.conns) {
		if !ended(c) {
			return c, nil, false, nil
		}
	}
	if ready && !p.dialing {
		p.dialing = true
		return nil, nil, true, nil
	}
	return nil, e.changed.wait(), false, nil
}

// dial makes a connection; the caller was told to by current.
func (e *Endpoint) dial(ctx context.Context, id plan.PeerID) (*quic.Conn, error) {
	conn, err := e.net.Dial(ctx, id)
	e.mu.Lock()
	e.peer(id).dialing = false
	e.changed.wake()
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return conn, e.register(id, conn)
}

// register begins to serve a connection. Beyond maxConns the oldest one is closed: the
// peer would not have dialled if it still believed in it.
func (e *Endpoint) register(id plan.PeerID, conn *quic.Conn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		conn.CloseWithError(codeShutdown, "shutting down")
		return ErrClosed
	}
	p := e.peer(id)
	p.conns = append(p.conns, conn)
	if len(p.conns) > maxConns {
		p.conns[0].CloseWithError(codeReplaced, "replaced by a newer connection")
		p.conns = p.conns[1:]
	}
	e.changed.wake()
	e.work.Go(func() error {
		e.serve(id, conn)
		return nil
	})
	return nil
}

// isWarm tells whether a session has warmed a connection.
func (e *Endpoint) isWarm(id plan.PeerID, conn *quic.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.peer(id).warm, conn)
}

func (e *Endpoint) noteWarm(id plan.PeerID, conn *quic.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peer(id)
	p.warm = append(slices.DeleteFunc(p.warm, ended), conn)
}

func ended(c *quic.Conn) bool { return c.Context().Err() != nil }

// serve accepts the peer's streams until the connection ends.
func (e *Endpoint) serve(id plan.PeerID, conn *quic.Conn) {
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
	p.conns = slices.DeleteFunc(p.conns, func(c *quic.Conn) bool { return c == conn })
	p.parked = slices.DeleteFunc(p.parked, func(s parked) bool { return s.conn == conn })
	e.changed.wake()
}
