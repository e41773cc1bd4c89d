package alpn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/tasks"
	"pnode/swarm/transport"
)

const (
	// maxPending bounds the accepted connections that wait for their peer's admission, pendingPerPeer those of one peer.
	maxPending     = 64
	pendingPerPeer = 4
	// maxQueued bounds the admitted connections that wait for Accept.
	maxQueued = 16

	// CodeNotMember closes a connection of a peer that is no member, CodeBusy one too many.
	CodeNotMember transport.Code = 1
	CodeBusy      transport.Code = 2
	codeClosed    transport.Code = 3

	removed = "removed from the run"
)

// Transport makes and accepts the QUIC connections of one ALPN between members, on the UDP sockets that libp2p
// listens on. Both ends prove their peer ID in the TLS handshake, as libp2p does. Its methods may be
// called from any goroutine.
type Transport struct {
	Config
	identity  *libp2ptls.Identity
	listeners []quicreuse.Listener
	queue     chan accepted
	// mu guards conns, the open connections, proved, where a peer was last, and how many connections wait.
	mu      sync.Mutex
	conns   map[transport.Conn]peer.ID
	proved  map[peer.ID]provedAddress
	pending map[peer.ID]int
	waiting int
}

// Config holds what a Transport needs.
type Config struct {
	// ALPN ends in a slash and the version of what is spoken.
	ALPN     string
	Identity admission.Identity
	Host     *host.Host
	Peers    *admission.Peers
	Tasks    *tasks.Group
	// Reach connects to a peer, whose addresses are known, and waits until it is a member.
	Reach func(context.Context, plan.PeerID) (peer.ID, error)
	Log   *slog.Logger
}

// accepted is a member's connection that waits for Accept.
type accepted struct {
	conn transport.Conn
	peer peer.ID
}

// ErrNoUDP is returned for a member that is reached over TCP or a relay only.
var ErrNoUDP = errors.New("no UDP path to this peer")

// New listens for the ALPN wherever libp2p listens for QUIC.
func New(cfg Config) (*Transport, error) {
	identity, err := libp2ptls.NewIdentity(cfg.Identity.Key())
	if err != nil {
		return nil, fmt.Errorf("swarm: %s: %w", cfg.ALPN, err)
	}
	t := &Transport{
		Config: cfg, identity: identity, conns: map[transport.Conn]peer.ID{}, proved: map[peer.ID]provedAddress{},
		queue: make(chan accepted, maxQueued), pending: map[peer.ID]int{},
	}
	conf := &tls.Config{
		NextProtos: []string{cfg.ALPN},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			conf, _ := t.tls("")
			return conf, nil
		},
	}
	for _, addr := range cfg.Host.Network().ListenAddresses() {
		if !isQUIC(addr) {
			continue
		}
		ln, err := cfg.Host.QUIC.ListenQUIC(addr, conf, anyWindow)
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("swarm: listen for %s on %s: %w", cfg.ALPN, addr, err)
		}
		t.listeners = append(t.listeners, ln)
		cfg.Tasks.Run(func(ctx context.Context) { t.listen(ctx, ln) })
	}
	return t, nil
}

// Self returns this node's peer ID.
func (t *Transport) Self() plan.PeerID { return t.Identity.Peer() }

// Accept blocks until a member has opened a connection. When the swarm is closed the error wraps net.ErrClosed.
func (t *Transport) Accept(ctx context.Context) (transport.Conn, plan.PeerID, error) {
	select {
	case c := <-t.queue:
		return c.conn, plan.PeerID(c.peer.String()), nil
	case <-ctx.Done():
		return nil, "", fmt.Errorf("swarm: accept on %s: %w", t.ALPN, ctx.Err())
	case <-t.Tasks.Context.Done():
		return nil, "", fmt.Errorf("swarm: accept on %s: %w", t.ALPN, net.ErrClosed)
	}
}

// tls returns the configuration of one connection with p; empty accepts any peer. verified reports, once the
// handshake is done, whether the other end proved its ID.
func (t *Transport) tls(p peer.ID) (*tls.Config, func() bool) {
	conf, key := t.identity.ConfigForPeer(p)
	conf.NextProtos = []string{t.ALPN}
	verified := func() bool {
		select {
		case k := <-key:
			return k != nil
		default:
			return false
		}
	}
	return conf, verified
}

// anyWindow lets a connection's windows grow to their maximum: only members have one.
func anyWindow(*quic.Conn, uint64) bool { return true }

func isQUIC(a ma.Multiaddr) bool {
	_, err := a.ValueForProtocol(ma.P_QUIC_V1)
	_, relayed := a.ValueForProtocol(ma.P_CIRCUIT)
	return err == nil && relayed != nil
}

// listen takes connections until the listener closes.
func (t *Transport) listen(ctx context.Context, ln quicreuse.Listener) {
	for {
		conn, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		p, err := remotePeer(conn)
		t.accept(transport.QUIC(conn), p, err)
	}
}

// accept closes a connection of a peer that is not connected to libp2p or was refused, before anything is read from it.
// A member's is welcome; one whose verdict is pending waits for it, if few do.
func (t *Transport) accept(conn transport.Conn, p peer.ID, err error) {
	switch {
	case err != nil:
	case t.Peers.Member(p):
		t.Tasks.Run(func(ctx context.Context) { t.welcome(ctx, conn, p) })
		return
	case !t.Peers.Pending(p):
		err = admission.ErrNotMember
	case !t.wait(p):
		conn.Close(CodeBusy, "too many connections at once")
		return
	default:
		t.Tasks.Run(func(ctx context.Context) { t.await(ctx, conn, p) })
		return
	}
	t.refuse(conn, p, err)
}

// wait counts a connection that waits for its peer's admission, and reports whether it may. await counts it out.
func (t *Transport) wait(p peer.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting >= maxPending || t.pending[p] >= pendingPerPeer {
		return false
	}
	t.waiting++
	t.pending[p]++
	return true
}

// await welcomes a connection once its peer is a member.
func (t *Transport) await(ctx context.Context, conn transport.Conn, p peer.ID) {
	bounded, cancel := context.WithTimeout(ctx, admission.TimeLimit)
	err := t.Peers.Wait(bounded, p)
	cancel()
	t.mu.Lock()
	t.waiting--
	if t.pending[p]--; t.pending[p] == 0 {
		delete(t.pending, p)
	}
	t.mu.Unlock()
	if err != nil {
		t.refuse(conn, p, err)
		return
	}
	t.welcome(ctx, conn, p)
}

// welcome queues a member's connection, counted as that peer's.
func (t *Transport) welcome(ctx context.Context, conn transport.Conn, p peer.ID) {
	// Without a scope the connection manager does not count.
	if scope, counts := network.UnwrapConnManagementScope(conn.Context()); counts == nil && scope != nil {
		if err := scope.SetPeer(p); err != nil {
			t.refuse(conn, p, err)
			return
		}
	}
	t.track(conn, p)
	t.remember(conn, p, false)
	select {
	case t.queue <- accepted{conn, p}:
	case <-conn.Context().Done():
	case <-ctx.Done():
		conn.Close(codeClosed, "closing")
	}
}

// refuse closes a connection that is not let in.
func (t *Transport) refuse(conn transport.Conn, p peer.ID, err error) {
	t.Log.Debug("swarm: connection refused", "alpn", t.ALPN, "peer", p, "addr", conn.RemoteAddr(), "err", err)
	conn.Close(CodeNotMember, "not an admitted member")
}

// remotePeer returns the peer ID that the connection's handshake proved.
func remotePeer(conn *quic.Conn) (peer.ID, error) {
	key, err := libp2ptls.PubKeyFromCertChain(conn.ConnectionState().TLS.PeerCertificates)
	if err != nil {
		return "", err
	}
	return peer.IDFromPublicKey(key)
}

// track counts a connection as p's until it is closed. One of a peer that was removed meanwhile is closed: Drop may have come
// before.
func (t *Transport) track(conn transport.Conn, p peer.ID) {
	t.mu.Lock()
	t.conns[conn] = p
	t.mu.Unlock()
	context.AfterFunc(conn.Context(), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.conns, conn)
	})
	if t.Peers.Blocked(p) {
		conn.Close(CodeNotMember, removed)
	}
}

// Drop closes the connections with p, which was removed from the run.
func (t *Transport) Drop(p peer.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn, owner := range t.conns {
		if owner == p {
			conn.Close(CodeNotMember, removed)
		}
	}
}

// Close stops listening and closes all connections.
func (t *Transport) Close() {
	for _, ln := range t.listeners {
		ln.Close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn := range t.conns {
		conn.Close(codeClosed, "closing")
	}
}
