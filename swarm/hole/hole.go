// Package hole carries data over TCP between two members behind NATs. Where libp2p has punched a hole for its own
// connection over TCP, that connection is all there is: another one comes from another port, which no hole fits. So the
// data goes through streams of it, one for each connection for data, in which the two ends speak TLS and package mux as
// on any stream of bytes. Package mux bounds what is on its way there to about 100 ms, so that control is not held up
// for longer.
//
// Streams open on direct connections alone: circuits are for control. A member has at most 16 of them here.
//
// It has no goroutines but the handlers of its streams. It is called by swarm.
package hole

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/streams"
)

const (
	// prefix comes before the ALPN that is spoken inside, in the name of a protocol.
	prefix = "/pnode/hole/"
	// maxPerPeer bounds the open streams of one member.
	maxPerPeer = 16
)

// ErrNoHole is returned where a peer is not connected directly.
var ErrNoHole = errors.New("no hole is punched")

// Holes makes and takes streams of bytes through punched holes. Its methods may be called from any goroutine.
type Holes struct {
	Streams *streams.Streams

	// mu guards taken, the open streams of each member that it opened.
	mu    sync.Mutex
	taken map[plan.PeerID]int
}

// Serve has take called with each stream of bytes that members open for an ALPN. take returns once the other end has
// proved who it is, or has failed to.
func (h *Holes) Serve(alpn string, take func(context.Context, net.Conn)) {
	h.Streams.Handle(prefix+alpn, func(ctx context.Context, from plan.PeerID, st streams.Stream) {
		conn, err := newConn(st)
		if err != nil || !h.take(from) {
			st.Reset()
			return
		}
		defer h.give(from)
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		take(ctx, conn)
		<-conn.closed
	})
}

// For returns a function that opens streams of bytes for an ALPN to members. Its error wraps ErrNoHole where they are
// connected through a relay.
func (h *Holes) For(alpn string) func(context.Context, peer.ID) (net.Conn, error) {
	return func(ctx context.Context, p peer.ID) (net.Conn, error) { return h.dial(ctx, p, alpn) }
}

func (h *Holes) dial(ctx context.Context, p peer.ID, alpn string) (net.Conn, error) {
	st, err := h.Streams.Open(ctx, p, protocol.ID(prefix+alpn))
	if err != nil {
		return nil, err
	}
	conn, err := newConn(st)
	if err != nil {
		st.Reset()
		return nil, err
	}
	return conn, nil
}

func (h *Holes) take(p plan.PeerID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken == nil {
		h.taken = map[plan.PeerID]int{}
	}
	if h.taken[p] >= maxPerPeer {
		return false
	}
	h.taken[p]++
	return true
}

func (h *Holes) give(p plan.PeerID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken[p]--; h.taken[p] == 0 {
		delete(h.taken, p)
	}
}

// conn is a stream as a net.Conn.
type conn struct {
	streams.Stream
	local, remote net.Addr
	once          sync.Once
	closed        chan struct{}
}

var _ net.Conn = (*conn)(nil)

// newConn returns a stream of a direct connection as a net.Conn.
func newConn(st streams.Stream) (*conn, error) {
	on, ok := st.(interface{ Conn() network.Conn })
	if !ok {
		return nil, fmt.Errorf("%w: the stream is of no connection", ErrNoHole)
	}
	at := on.Conn().RemoteMultiaddr()
	for _, other := range []int{ma.P_CIRCUIT, ma.P_WS, ma.P_WSS} {
		if _, err := at.ValueForProtocol(other); err == nil {
			return nil, fmt.Errorf("%w: connected over %s", ErrNoHole, ma.ProtocolWithCode(other).Name)
		}
	}
	remote, err := manet.ToNetAddr(at)
	if err != nil {
		return nil, err
	}
	local, err := manet.ToNetAddr(on.Conn().LocalMultiaddr())
	if err != nil {
		return nil, err
	}
	return &conn{Stream: st, local: Addr{local}, remote: Addr{remote}, closed: make(chan struct{})}, nil
}

// Close ends both directions, after what was written, and unblocks Read and Write.
func (c *conn) Close() (err error) {
	c.once.Do(func() {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // a stream that has none has ended
		err = c.Stream.Close()
		close(c.closed)
	})
	return err
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// Addr names the other end of a hole.
type Addr struct{ net.Addr }

func (a Addr) String() string { return a.Addr.String() + " through a punched hole" }
