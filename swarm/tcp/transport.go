package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/net/reuseport"
	ma "github.com/multiformats/go-multiaddr"
	mafmt "github.com/multiformats/go-multiaddr-fmt"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/cert"
	"pnode/swarm/tasks"
)

const (
	// sortTime bounds how long a connection takes to say what it carries.
	sortTime = 5 * time.Second
	// connectTime bounds how long an address takes to accept a connection.
	connectTime = 5 * time.Second
	keepAlive   = 30 * time.Second
	// acceptPause is waited after an accept that failed.
	acceptPause = 50 * time.Millisecond
	// webDelay is when a WebSocket is tried beside TCP where there is a proxy, stallTime where TCP connects and libp2p's
	// handshake stalls.
	webDelay  = 250 * time.Millisecond
	stallTime = 3 * time.Second
	// punchDelay is how much later than over QUIC a hole is punched over TCP, at both ends: data through a hole of QUIC has
	// connections of its own.
	punchDelay = 400 * time.Millisecond

	httpALPN = "http/1.1"
)

// Ports are the TCP ports of a node, on which libp2p and others are served. Its methods may be called from any goroutine.
type Ports struct {
	Tasks *tasks.Group
	// ProxyFor returns the proxy for connections to a "host:port", nil for none. It is FromEnvironment but in tests.
	ProxyFor func(target string) (*url.URL, error)
	webTLS   *tls.Config
	// mu guards served.
	mu sync.Mutex
	// served holds who serves each ALPN.
	served map[string]func(net.Conn, plan.Transport)
}

// New returns the ports of a node, whose goroutines belong to a swarm. WebSockets are served with a certificate of the
// node's identity, which nobody has to check.
func New(key crypto.PrivKey, group *tasks.Group) (*Ports, error) {
	identity, err := cert.New(key)
	if err != nil {
		return nil, fmt.Errorf("swarm: certificate for WebSockets: %w", err)
	}
	conf, _ := identity.ConfigForPeer("")
	return &Ports{
		Tasks: group, ProxyFor: FromEnvironment, served: map[string]func(net.Conn, plan.Transport){},
		webTLS: &tls.Config{Certificates: conf.Certificates, NextProtos: []string{httpALPN}},
	}, nil
}

// Transport is libp2p's transport over TCP and WebSockets.
type Transport struct {
	*Ports
	upgrader transport.Upgrader
	limits   network.ResourceManager
	// reuse dials from the port that is listened on, as holes through NATs want it.
	reuse reuseport.Transport
}

var _ transport.DialUpdater = (*Transport)(nil)

// Transport is the constructor that libp2p calls: more than once, as it makes hosts of its own to test reachability.
func (t *Ports) Transport(upgrader transport.Upgrader, limits network.ResourceManager) (*Transport, error) {
	return &Transport{Ports: t, upgrader: upgrader, limits: limits}, nil
}

// Serve has f called for each connection that offers an ALPN, before anything is answered; with nil they are closed.
func (t *Ports) Serve(alpn string, f func(raw net.Conn, over plan.Transport)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f == nil {
		delete(t.served, alpn)
		return
	}
	t.served[alpn] = f
}

// serve hands a connection to whoever serves one of the ALPNs, and reports whether somebody does.
func (t *Ports) serve(c *Conn, alpns []string, over plan.Transport) bool {
	t.mu.Lock()
	i := slices.IndexFunc(alpns, func(a string) bool { return t.served[a] != nil })
	var f func(net.Conn, plan.Transport)
	if i >= 0 {
		f = t.served[alpns[i]]
	}
	t.mu.Unlock()
	if f != nil {
		f(c, over)
	}
	return f != nil
}

// Listen listens on a TCP address for libp2p and for all that is served.
func (t *Transport) Listen(at ma.Multiaddr) (transport.Listener, error) {
	ln, err := t.reuse.Listen(at)
	if err != nil {
		return nil, err
	}
	p := newPort(t.upgrader.GateMaListener(ln), t)
	t.Tasks.Run(func(context.Context) { p.run() })
	t.Tasks.Run(func(context.Context) { _ = p.web.server.Serve(p.web) }) // which ends with the port
	return t.upgrader.UpgradeGatedMaListener(t, p), nil
}

var isTCP = mafmt.And(mafmt.Or(mafmt.IP, mafmt.DNS), mafmt.Base(ma.P_TCP))

// CanConnect reports whether Connect takes an address.
func (t *Ports) CanConnect(a ma.Multiaddr) bool { return isTCP.Matches(a) }

// CanDial reports whether an address is one of TCP or of a WebSocket.
func (t *Transport) CanDial(a ma.Multiaddr) bool { return t.CanConnectWeb(a) }

// SkipResolve leaves names to the proxy where there is one, which may be the only one to know them.
func (t *Transport) SkipResolve(_ context.Context, a ma.Multiaddr) bool {
	return isWeb.Matches(a) || t.proxied(a)
}

// Protocols lists what addresses of this transport end in.
func (t *Transport) Protocols() []int { return []int{ma.P_TCP, ma.P_WS, ma.P_WSS} }

// Proxy returns false: connections go to the peer itself.
func (t *Transport) Proxy() bool { return false }

func (t *Transport) String() string { return "TCP" }

// Allowed reports whether an IP address may be dialed; nil allows all.
type Allowed func(netip.Addr) bool

// ErrNotAllowed is returned for an address that is not dialed for whoever named it.
var ErrNotAllowed = errors.New("the address is neither public nor where the peer is connected from")

// Connect opens a connection for data to an address whose IP address, after a look-up, is allowed.
func (t *Ports) Connect(ctx context.Context, a ma.Multiaddr, allowed Allowed) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	d := manet.Dialer{Dialer: *allowed.dialer()}
	return d.DialContext(ctx, a)
}

// dialer returns a dialer that connects to allowed addresses alone, whatever a name resolves to.
func (a Allowed) dialer() *net.Dialer {
	if a == nil {
		return new(net.Dialer)
	}
	return &net.Dialer{Control: func(_, at string, _ syscall.RawConn) error {
		if to, err := netip.ParseAddrPort(at); err != nil || !a(to.Addr().WithZone("").Unmap()) {
			return ErrNotAllowed
		}
		return nil
	}}
}

// Dial opens a connection of libp2p.
func (t *Transport) Dial(ctx context.Context, a ma.Multiaddr, p peer.ID) (transport.CapableConn, error) {
	return t.DialWithUpdates(ctx, a, p, nil)
}

// DialWithUpdates is Dial; it tells when the address has accepted, so that libp2p waits with others. An address of TCP is
// tried as one of a WebSocket too: where there is a proxy, and where TCP connects but libp2p's handshake fails, as
// behind a firewall that lets nothing but TLS through.
func (t *Transport) DialWithUpdates(ctx context.Context, a ma.Multiaddr, p peer.ID, updates chan<- transport.DialUpdate) (transport.CapableConn, error) {
	overWeb := func(ctx context.Context) (manet.Conn, error) { return t.dialWeb(ctx, a) }
	if !isTCP.Matches(a) {
		return t.dial(ctx, a, p, overWeb)
	}
	connected := make(chan struct{})
	raw := func(ctx context.Context) (manet.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTime)
		defer cancel()
		if punching, _, _ := network.GetSimultaneousConnect(ctx); punching {
			select {
			case <-time.After(punchDelay):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c, err := t.reuse.DialContext(ctx, a)
		if err != nil {
			return nil, err
		}
		forControl(c)
		close(connected)
		if updates != nil {
			select {
			case updates <- transport.DialUpdate{Kind: transport.UpdateKindHandshakeProgressed, Addr: a}:
			default: // libp2p is not slowed down to hear of it
			}
		}
		return c, nil
	}
	return t.race(ctx, connected, t.proxied(a),
		func(ctx context.Context) (transport.CapableConn, error) { return t.dial(ctx, a, p, raw) },
		func(ctx context.Context) (transport.CapableConn, error) { return t.dial(ctx, a, p, overWeb) })
}

type dialFunc func(context.Context) (transport.CapableConn, error)

// race dials raw, and by WebSocket after webDelay if there is a proxy, else where raw has connected and fails or stalls.
func (t *Transport) race(ctx context.Context, connected <-chan struct{}, proxied bool, raw, overWeb dialFunc) (transport.CapableConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn transport.CapableConn
		err  error
	}
	results := make(chan outcome)
	begin := func(dial dialFunc) {
		go func() {
			conn, err := dial(ctx)
			select {
			case results <- outcome{conn, err}:
			case <-ctx.Done():
				if conn != nil {
					conn.Close()
				}
			}
		}()
	}
	begin(raw)
	var web <-chan time.Time
	if proxied {
		web = time.After(webDelay)
	}
	var errs []error
	pending, webBegun, isConnected := 1, false, false
	for pending > 0 {
		select {
		case <-connected:
			connected, isConnected = nil, true
			if web == nil && !webBegun {
				web = time.After(stallTime)
			}
			continue
		case <-web:
		case r := <-results:
			pending--
			if r.err == nil {
				return r.conn, nil
			}
			errs = append(errs, r.err)
			select {
			case <-connected: // just before
				connected, isConnected = nil, true
			default:
			}
			if !isConnected && !proxied {
				continue
			}
		}
		if web = nil; !webBegun {
			webBegun = true
			pending++
			begin(overWeb)
		}
	}
	return nil, errors.Join(errs...)
}

// dial makes a connection of libp2p of what connect opens.
func (t *Transport) dial(ctx context.Context, a ma.Multiaddr, p peer.ID, connect func(context.Context) (manet.Conn, error)) (transport.CapableConn, error) {
	scope, err := t.limits.OpenConnection(network.DirOutbound, true, a)
	if err != nil {
		return nil, err
	}
	if err := scope.SetPeer(p); err != nil {
		scope.Done()
		return nil, err
	}
	raw, err := connect(ctx)
	if err != nil {
		scope.Done()
		return nil, err
	}
	direction := network.DirOutbound
	if both, client, _ := network.GetSimultaneousConnect(ctx); both && !client {
		direction = network.DirInbound
	}
	return t.upgrader.Upgrade(ctx, t, raw, direction, p, scope) // which gives the place back if it fails
}
