package swarm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
)

const (
	// laneDialTime bounds the try of one address, laneStagger is when the next one begins.
	laneDialTime = 5 * time.Second
	laneStagger  = 500 * time.Millisecond
	// laneGreetings bounds the accepted connections that wait for their peer's admission.
	laneGreetings = 64
	// laneQueue bounds the admitted connections that wait for Accept.
	laneQueue = 16

	codeNotMember quic.ApplicationErrorCode = 1
	codeBusy      quic.ApplicationErrorCode = 2
	codeClosed    quic.ApplicationErrorCode = 3
)

// lane is one ALPN of QUIC connections between members, on the UDP sockets that libp2p
// listens on, so that a port that is mapped or punched for one serves both. Both ends
// prove their peer ID in the TLS handshake, as libp2p does.
type lane struct {
	swarm     *Swarm
	alpn      string
	identity  *libp2ptls.Identity
	listeners []quicreuse.Listener
	queue     chan laneConn
	room      chan struct{}
	// mu guards conns, the open connections, and proved, where a peer was last.
	mu     sync.Mutex
	conns  map[*quic.Conn]peer.ID
	proved map[peer.ID]provedAddress
}

type laneConn struct {
	conn *quic.Conn
	peer peer.ID
}

// newLane listens for alpn wherever libp2p listens for QUIC.
func newLane(s *Swarm, alpn string) (*lane, error) {
	identity, err := libp2ptls.NewIdentity(s.cfg.Identity.key)
	if err != nil {
		return nil, fmt.Errorf("swarm: %s: %w", alpn, err)
	}
	l := &lane{
		swarm: s, alpn: alpn, identity: identity, conns: map[*quic.Conn]peer.ID{}, proved: map[peer.ID]provedAddress{},
		queue: make(chan laneConn, laneQueue), room: make(chan struct{}, laneGreetings),
	}
	conf := &tls.Config{
		NextProtos: []string{alpn},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			conf, _ := l.tls("")
			return conf, nil
		},
	}
	for _, addr := range s.host.Network().ListenAddresses() {
		if !isQUIC(addr) {
			continue
		}
		ln, err := s.host.quic.ListenQUIC(addr, conf, anyWindow)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("swarm: listen for %s on %s: %w", alpn, addr, err)
		}
		l.listeners = append(l.listeners, ln)
		s.tasks.run(func(ctx context.Context) { l.accept(ctx, ln) })
	}
	return l, nil
}

// tls is the configuration for one connection; p empty accepts any peer.
func (l *lane) tls(p peer.ID) (*tls.Config, func() bool) {
	conf, key := l.identity.ConfigForPeer(p)
	conf.NextProtos = []string{l.alpn}
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

// accept takes connections until the listener closes.
func (l *lane) accept(ctx context.Context, ln quicreuse.Listener) {
	for {
		conn, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		select {
		case l.room <- struct{}{}:
			l.swarm.tasks.run(func(ctx context.Context) {
				defer func() { <-l.room }()
				l.welcome(ctx, conn)
			})
		default:
			conn.CloseWithError(codeBusy, "too many connections at once")
		}
	}
}

// welcome queues a member's connection and closes any other.
func (l *lane) welcome(ctx context.Context, conn *quic.Conn) {
	p, err := remotePeer(conn)
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, admissionTime)
		defer cancel()
		err = l.swarm.door.wait(wait, p)
	}
	if err == nil {
		err = account(conn, p)
	}
	if err != nil {
		l.swarm.log.Debug("swarm: connection refused", "alpn", l.alpn, "peer", p, "addr", conn.RemoteAddr(), "err", err)
		conn.CloseWithError(codeNotMember, "not an admitted member")
		return
	}
	l.track(conn, p)
	l.remember(conn, p, false)
	select {
	case l.queue <- laneConn{conn, p}:
	case <-conn.Context().Done():
	case <-ctx.Done():
		conn.CloseWithError(codeClosed, "closing")
	}
}

// remotePeer is the peer ID that the connection's handshake proved.
func remotePeer(conn *quic.Conn) (peer.ID, error) {
	key, err := libp2ptls.PubKeyFromCertChain(conn.ConnectionState().TLS.PeerCertificates)
	if err != nil {
		return "", err
	}
	return peer.IDFromPublicKey(key)
}

// account moves an accepted connection from the anonymous ones to its peer's, when libp2p
// counts connections.
func account(conn *quic.Conn, p peer.ID) error {
	scope, err := network.UnwrapConnManagementScope(conn.Context())
	if err != nil || scope == nil {
		return nil // a connection manager without accounting
	}
	return scope.SetPeer(p)
}

func (l *lane) track(conn *quic.Conn, p peer.ID) {
	l.mu.Lock()
	l.conns[conn] = p
	l.mu.Unlock()
	context.AfterFunc(conn.Context(), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, conn)
	})
}

// dial connects to a member: first where libp2p is connected to it, which is where a
// hole was punched, then at its other addresses.
func (l *lane) dial(ctx context.Context, p plan.PeerID) (*quic.Conn, error) {
	id, err := l.swarm.reach(ctx, p)
	if err != nil {
		return nil, err
	}
	return l.first(ctx, id, l.candidates(id))
}

// first dials the addresses in turn, each when the one before has failed or taken
// laneStagger, and gives the first connection. The others are given up.
func (l *lane) first(ctx context.Context, p peer.ID, addrs []ma.Multiaddr) (*quic.Conn, error) {
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
			if !l.swarm.tasks.enter() {
				return nil, net.ErrClosed
			}
			pending++
			go func() {
				defer l.swarm.tasks.leave()
				conn, err := l.dialAddr(ctx, p, addr)
				select {
				case results <- outcome{conn, err}:
				case <-ctx.Done():
					if conn != nil {
						conn.CloseWithError(codeClosed, "another was faster")
					}
				}
			}()
			next = time.After(laneStagger)
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
func (l *lane) candidates(p peer.ID) []ma.Multiaddr {
	var all, out []ma.Multiaddr
	for _, c := range l.swarm.host.Network().ConnsToPeer(p) {
		all = append(all, c.RemoteMultiaddr())
	}
	for _, a := range append(all, l.swarm.host.Peerstore().Addrs(p)...) {
		if isQUIC(a) && !slices.ContainsFunc(out, a.Equal) {
			out = append(out, a)
		}
	}
	return out
}

func (l *lane) dialAddr(ctx context.Context, p peer.ID, a ma.Multiaddr) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, laneDialTime)
	defer cancel()
	conf, verified := l.tls(p)
	conn, err := l.swarm.host.quic.DialQUIC(ctx, a, conf, anyWindow)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	if !verified() {
		conn.CloseWithError(codeNotMember, "no proof of identity")
		return nil, fmt.Errorf("%s: peer %s gave no proof of identity", a, p)
	}
	l.track(conn, p)
	l.remember(conn, p, true)
	return conn, nil
}

// drop closes the connections with p.
func (l *lane) drop(p peer.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn, owner := range l.conns {
		if owner == p {
			conn.CloseWithError(codeNotMember, "removed from the run")
		}
	}
}

// close stops listening and closes all connections.
func (l *lane) close() {
	for _, ln := range l.listeners {
		ln.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		conn.CloseWithError(codeClosed, "closing")
	}
}
