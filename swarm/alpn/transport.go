package alpn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

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
	"pnode/swarm/version"
)

const (
	// dialTime bounds the try of one address, dialStagger is when the next one begins.
	dialTime    = 5 * time.Second
	dialStagger = 500 * time.Millisecond
	// maxPending bounds the accepted connections that wait for their peer's admission.
	maxPending = 64
	// maxQueued bounds the admitted connections that wait for Accept.
	maxQueued = 16

	// CodeNotMember closes a connection of a peer that is no member, CodeBusy one too many.
	CodeNotMember quic.ApplicationErrorCode = 1
	CodeBusy      quic.ApplicationErrorCode = 2
	codeClosed    quic.ApplicationErrorCode = 3

	// TLS alerts as QUIC carries them (RFC 9001, 4.8), with which a peer answers an ALPN that it does not listen
	// for: libp2p's listener sends internal_error, others no_application_protocol.
	alertInternal quic.TransportErrorCode = 0x100 + 80
	alertNoALPN   quic.TransportErrorCode = 0x100 + 120
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

// Dial opens a connection to a member, whose peer ID the handshake proves: first where libp2p is connected to
// it, which is where a hole was punched, then at its other addresses. Without a UDP path the error wraps
// ErrNoUDP.
func (t *Transport) Dial(ctx context.Context, p plan.PeerID) (*quic.Conn, error) {
	id, err := t.Reach(ctx, p)
	if err == nil {
		var conn *quic.Conn
		if conn, err = t.first(ctx, id, t.candidates(id)); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("swarm: dial %s on %s: %w", p, t.ALPN, err)
}

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

// welcome queues a member's connection and closes any other.
func (t *Transport) welcome(ctx context.Context, conn *quic.Conn) {
	p, err := remotePeer(conn)
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, admission.TimeLimit)
		defer cancel()
		err = t.Peers.Wait(wait, p)
	}
	if err == nil {
		err = account(conn, p)
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

// account counts an accepted connection as its peer's, when libp2p counts connections.
func account(conn *quic.Conn, p peer.ID) error {
	scope, err := network.UnwrapConnManagementScope(conn.Context())
	if err != nil || scope == nil {
		return nil // a connection manager without accounting
	}
	return scope.SetPeer(p)
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

// first dials the addresses in turn, each when the one before has failed or taken dialStagger, and returns the
// first connection. The others are given up.
func (t *Transport) first(ctx context.Context, p peer.ID, addrs []ma.Multiaddr) (*quic.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn *quic.Conn
		err  error
	}
	results := make(chan outcome)
	errs, pending := []error{ErrNoUDP}, 0
	for len(addrs) > 0 || pending > 0 {
		var next <-chan time.Time
		if len(addrs) > 0 {
			addr := addrs[0]
			addrs = addrs[1:]
			if !t.Tasks.Enter() {
				return nil, net.ErrClosed
			}
			pending++
			go func() {
				defer t.Tasks.Leave()
				conn, err := t.dialAddr(ctx, p, addr)
				select {
				case results <- outcome{conn, err}:
				case <-ctx.Done():
					if conn != nil {
						conn.CloseWithError(codeClosed, "another was faster")
					}
				}
			}()
			next = time.After(dialStagger)
		}
		select {
		case r := <-results:
			pending--
			if r.err == nil {
				return r.conn, nil
			}
			errs = append(errs, r.err)
		case <-next:
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
	return nil, errors.Join(errs...)
}

// candidates lists p's QUIC addresses without repetition.
func (t *Transport) candidates(p peer.ID) []ma.Multiaddr {
	var all, out []ma.Multiaddr
	for _, c := range t.Host.Network().ConnsToPeer(p) {
		all = append(all, c.RemoteMultiaddr())
	}
	for _, a := range append(all, t.Host.Peerstore().Addrs(p)...) {
		if isQUIC(a) && !slices.ContainsFunc(out, a.Equal) {
			out = append(out, a)
		}
	}
	return out
}

func (t *Transport) dialAddr(ctx context.Context, p peer.ID, a ma.Multiaddr) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conf, verified := t.tls(p)
	conn, err := t.Host.QUIC.DialQUIC(ctx, a, conf, anyWindow)
	if err != nil {
		if alert := new(quic.TransportError); errors.As(err, &alert) && alert.Remote && (alert.ErrorCode == alertInternal || alert.ErrorCode == alertNoALPN) {
			err = fmt.Errorf("%w: the peer does not speak %s: fetch the same release of pnode for both ends: %w", version.Err, t.ALPN, err)
		}
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	if !verified() {
		conn.CloseWithError(CodeNotMember, "no proof of identity")
		return nil, fmt.Errorf("%s: peer %s gave no proof of identity", a, p)
	}
	t.track(conn, p)
	t.remember(conn, p, true)
	return conn, nil
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
