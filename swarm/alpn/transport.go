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
)

const (
	// maxPending bounds the accepted connections that wait for their peer's admission.
	maxPending = 64
	// maxQueued bounds the admitted connections that wait for Accept.
	maxQueued = 16

	// CodeNotMember closes a connection of a peer that is no member, CodeBusy one too many.
	CodeNotMember quic.ApplicationErrorCode = 1
	CodeBusy      quic.ApplicationErrorCode = 2
	codeClosed    quic.ApplicationErrorCode = 3
)

// Transport makes and accepts the QUIC connections of one ALPN between members, on the UDP sockets that libp2p
// listens on. Both ends prove their peer ID in the TLS handshake, as libp2p does. Its methods may be
// called from any goroutine.
type Transport struct {
	Config
	identity  *libp2ptls.Identity
	listeners []quicreuse.Listener
	queue     chan accepted
	room      chan struct{}
	// mu guards conns, the open connections, and proved, where a peer was last.
	mu     sync.Mutex
	conns  map[*quic.Conn]peer.ID
	proved map[peer.ID]provedAddress
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
	conn *quic.Conn
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
		Config: cfg, identity: identity, conns: map[*quic.Conn]peer.ID{}, proved: map[peer.ID]provedAddress{},
		queue: make(chan accepted, maxQueued), room: make(chan struct{}, maxPending),
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
func (t *Transport) Accept(ctx context.Context) (*quic.Conn, plan.PeerID, error) {
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
		select {
		case t.room <- struct{}{}:
			t.Tasks.Run(func(ctx context.Context) {
				defer func() { <-t.room }()
				t.welcome(ctx, conn)
			})
		default:
			conn.CloseWithError(CodeBusy, "too many connections at once")
		}
	}
}

// welcome queues a member's connection, counted as that peer's, and closes any other.
func (t *Transport) welcome(ctx context.Context, conn *quic.Conn) {
	p, err := remotePeer(conn)
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, admission.TimeLimit)
		defer cancel()
		err = t.Peers.Wait(wait, p)
	}
	// Without a scope the connection manager does not count.
	if scope, counts := network.UnwrapConnManagementScope(conn.Context()); err == nil && counts == nil && scope != nil {
		err = scope.SetPeer(p)
	}
	if err != nil {
		t.Log.Debug("swarm: connection refused", "alpn", t.ALPN, "peer", p, "addr", conn.RemoteAddr(), "err", err)
		conn.CloseWithError(CodeNotMember, "not an admitted member")
		return
	}
	t.track(conn, p)
	t.remember(conn, p, false)
	select {
	case t.queue <- accepted{conn, p}:
	case <-conn.Context().Done():
	case <-ctx.Done():
		conn.CloseWithError(codeClosed, "closing")
	}
}

// remotePeer returns the peer ID that the connection's handshake proved.
func remotePeer(conn *quic.Conn) (peer.ID, error) {
	key, err := libp2ptls.PubKeyFromCertChain(conn.ConnectionState().TLS.PeerCertificates)
	if err != nil {
		return "", err
	}
	return peer.IDFromPublicKey(key)
}

func (t *Transport) track(conn *quic.Conn, p peer.ID) {
	t.mu.Lock()
	t.conns[conn] = p
	t.mu.Unlock()
	context.AfterFunc(conn.Context(), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.conns, conn)
	})
}

// Drop closes the connections with p, which was removed from the run.
func (t *Transport) Drop(p peer.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn, owner := range t.conns {
		if owner == p {
			conn.CloseWithError(CodeNotMember, "removed from the run")
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
		conn.CloseWithError(codeClosed, "closing")
	}
}
