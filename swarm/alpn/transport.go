package alpn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/cert"
	"pnode/swarm/choice"
	"pnode/swarm/host"
	"pnode/swarm/mux"
	"pnode/swarm/tasks"
	"pnode/swarm/transport"
)

const (
	// maxPending bounds the accepted connections that wait for their peer's admission, pendingPerPeer those of one peer.
	maxPending     = 64
	pendingPerPeer = 4
	// maxQueued bounds the admitted connections that wait for Accept.
	maxQueued = 16

	codeClosed transport.Code = 3

	removed = "removed from the run"
)

// Transport makes and accepts the QUIC connections of one ALPN between members, on the UDP sockets that libp2p
// listens on. Both ends prove their peer ID in the TLS handshake, as libp2p does. Its methods may be
// called from any goroutine.
type Transport struct {
	Config
	identity  *libp2ptls.Identity
	listeners []io.Closer
	queue     chan accepted
	late      lateConns
	proved    *provedAddrs
	// mu guards conns, the open connections, and how many connections wait.
	mu      sync.Mutex
	conns   map[transport.Conn]peer.ID
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
	// Relay returns a stream of bytes to a peer through another member; nil where none forwards.
	Relay func(context.Context, plan.PeerID) (net.Conn, error)
	// Hole returns a stream of bytes to a peer through the hole that was punched over TCP for libp2p; nil where holes are
	// not used.
	Hole func(context.Context, peer.ID) (net.Conn, error)
	// FixedWindows keeps receive windows as they are at first, which bounds what is buffered for a user that reads slowly.
	FixedWindows bool
	// Choice is shared by the transports of a node; nil for one of its own.
	Choice *choice.Choice
	Log    *slog.Logger
}

// accepted is a member's connection that waits for Accept.
type accepted struct {
	conn transport.Conn
	peer peer.ID
}

// errBusy is returned for one connection too many that waits for its peer's admission.
var errBusy = errors.New("too many connections wait for admission")

// New listens for the ALPN wherever libp2p listens for QUIC and TCP.
func New(cfg Config) (*Transport, error) {
	identity, err := cert.New(cfg.Identity.Key())
	if err != nil {
		return nil, fmt.Errorf("swarm: %s: %w", cfg.ALPN, err)
	}
	t := &Transport{
		Config: cfg, identity: identity, conns: map[transport.Conn]peer.ID{}, proved: newProvedAddrs(cfg.Host),
		queue: make(chan accepted, maxQueued), pending: map[peer.ID]int{},
	}
	if t.Choice == nil {
		t.Choice = choice.New()
	}
	if cfg.Host.TCP != nil {
		cfg.Host.TCP.Serve(cfg.ALPN, t.Serve)
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
		ln, err := t.listenAt(addr, conf)
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("swarm: listen for %s on %s: %w", cfg.ALPN, addr, err)
		}
		t.listeners = append(t.listeners, ln)
		cfg.Tasks.Run(func(ctx context.Context) { t.listen(ctx, ln) })
	}
	return t, nil
}

// listenAt takes connections where libp2p takes those of QUIC.
func (t *Transport) listenAt(addr ma.Multiaddr, conf *tls.Config) (host.Listener, error) {
	if sim := t.Host.Simulated; sim != nil && sim.Direct != nil {
		return sim.Direct.Listen(t.ALPN, t.Host.ID())
	}
	ln, err := t.Host.QUIC.ListenQUIC(addr, conf, t.mayGrow)
	return quicListener{ln}, err
}

// quicListener accepts connections of QUIC.
type quicListener struct{ quicreuse.Listener }

// Accept returns the next connection and the peer ID that its handshake proved, with an error where it proved none. An error
// without a connection is the listener's end.
func (l quicListener) Accept(ctx context.Context) (transport.Conn, peer.ID, error) {
	conn, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, "", err
	}
	p, err := remotePeer(conn)
	return transport.QUIC(conn), p, err
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

// mayGrow lets a connection's windows grow to their maximum: only members have one.
func (t *Transport) mayGrow(*quic.Conn, uint64) bool { return !t.FixedWindows }

func isQUIC(a ma.Multiaddr) bool {
	_, err := a.ValueForProtocol(ma.P_QUIC_V1)
	_, relayed := a.ValueForProtocol(ma.P_CIRCUIT)
	return err == nil && relayed != nil
}

// listen takes connections until the listener closes.
func (t *Transport) listen(ctx context.Context, ln host.Listener) {
	for {
		conn, p, err := ln.Accept(ctx)
		if conn == nil {
			return
		}
		t.accept(conn, p, err)
	}
}

// accept closes a connection of a peer that is not connected to libp2p or was refused, before anything is read from it.
// A member's is welcome; one whose verdict is pending waits for it, if few do.
func (t *Transport) accept(conn transport.Conn, p peer.ID, err error) {
	if err == nil && !t.Peers.Member(p) && !t.Peers.Pending(p) {
		err = admission.ErrNotMember
	}
	if err != nil {
		t.refuse(conn, p, err)
		return
	}
	t.Tasks.Run(func(ctx context.Context) {
		if err := t.admit(ctx, p); err != nil {
			t.refuse(conn, p, err)
			return
		}
		t.welcome(ctx, conn, p)
	})
}

// Serve makes a connection on a stream of bytes whose other end is given to Client, and queues it for Accept. It returns
// at once, and owns raw from now on. A peer costs a TLS handshake until it is a member: then streams begin.
func (t *Transport) Serve(raw net.Conn, over plan.Transport) {
	if !t.Tasks.Run(func(ctx context.Context) { t.Take(ctx, raw, over) }) {
		raw.Close()
	}
}

// Take does what Serve does, and returns once the connection is queued or refused: its caller can bound how many are not
// yet the connections of a member.
func (t *Transport) Take(ctx context.Context, raw net.Conn, over plan.Transport) {
	secured, p, err := t.secure(ctx, raw)
	if err == nil {
		err = t.admit(ctx, p)
	}
	if scoped, counted := raw.(interface{ SetPeer(peer.ID) error }); err == nil && counted {
		if scoped.SetPeer(p) != nil {
			err = errBusy
		}
	}
	if err != nil {
		t.Log.Debug("swarm: connection refused", "alpn", t.ALPN, "over", over, "peer", p, "addr", raw.RemoteAddr(), "err", err)
		if secured != nil {
			code, reason := refusal(err)
			mux.Refuse(ctx, secured, code, reason)
		}
		raw.Close()
		return
	}
	t.welcome(ctx, mux.New(secured, mux.Config{Transport: over, RemoteAddr: raw.RemoteAddr(), FixedWindows: t.FixedWindows}), p)
}

// secure makes the TLS handshake of an accepted connection, and returns the peer ID that it proved.
func (t *Transport) secure(ctx context.Context, raw net.Conn) (*tls.Conn, peer.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conf, _ := t.tls("")
	secured := tls.Server(raw, conf)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, "", err
	}
	key, err := libp2ptls.PubKeyFromCertChain(secured.ConnectionState().PeerCertificates)
	if err != nil {
		return nil, "", err
	}
	p, err := peer.IDFromPublicKey(key)
	if err != nil {
		return nil, "", err
	}
	return secured, p, nil
}

// admit blocks until a peer is a member. It gives ErrNotMember at once for one that is not connected to libp2p or was
// refused, and errBusy where too many wait.
func (t *Transport) admit(ctx context.Context, p peer.ID) error {
	switch {
	case t.Peers.Member(p):
		return nil
	case !t.Peers.Pending(p):
		return admission.ErrNotMember
	case !t.wait(p):
		return errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, admission.TimeLimit)
	defer cancel()
	err := t.Peers.Wait(ctx, p)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
	if t.pending[p]--; t.pending[p] == 0 {
		delete(t.pending, p)
	}
	return err
}

// wait counts a connection that waits for its peer's admission, and reports whether it may. admit counts it out.
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
	t.proved.remember(conn, p, nil)
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
	conn.Close(refusal(err))
}

// refusal returns what a peer is told that is not let in.
func refusal(err error) (transport.Code, string) {
	if errors.Is(err, errBusy) {
		return transport.CodeBusy, "too many connections at once"
	}
	return transport.CodeNotMember, "not an admitted member"
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
		conn.Close(transport.CodeNotMember, removed)
	}
}

// Has reports whether a connection with p is open.
func (t *Transport) Has(p peer.ID) bool {
	return len(t.open(func(_ transport.Conn, owner peer.ID) bool { return owner == p })) > 0
}

// Drop closes the connections with p, which is no member any more.
func (t *Transport) Drop(p peer.ID) {
	closeAll(t.open(func(_ transport.Conn, owner peer.ID) bool { return owner == p }), transport.CodeNotMember, removed)
}

// Moved ends the connections over TCP that have an address which this machine has no longer: nothing comes over them any more.
// Those over QUIC go on from another one.
func (t *Transport) Moved(gone []netip.Addr) {
	for _, conn := range t.open(func(transport.Conn, peer.ID) bool { return true }) {
		if c, ok := conn.(*mux.Conn); ok && slices.Contains(gone, addrPort(c.LocalAddr()).Addr()) {
			c.Break("this machine has another address")
		}
	}
}

// closeAll closes connections at the same time: a peer that does not read holds up its own alone.
func closeAll(conns []transport.Conn, code transport.Code, reason string) {
	var closing sync.WaitGroup
	for _, conn := range conns {
		closing.Go(func() { conn.Close(code, reason) })
	}
	closing.Wait()
}

// open lists some of the open connections.
func (t *Transport) open(which func(transport.Conn, peer.ID) bool) (out []transport.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn, p := range t.conns {
		if which(conn, p) {
			out = append(out, conn)
		}
	}
	return out
}

// Close stops listening and closes all connections.
func (t *Transport) Close() {
	if t.Host.TCP != nil {
		t.Host.TCP.Serve(t.ALPN, nil)
	}
	for _, ln := range t.listeners {
		ln.Close()
	}
	closeAll(t.open(func(transport.Conn, peer.ID) bool { return true }), codeClosed, "closing")
}
