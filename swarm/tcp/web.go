package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"

	ma "github.com/multiformats/go-multiaddr"
	mafmt "github.com/multiformats/go-multiaddr-fmt"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/websocket"
)

const (
	// webPath is where WebSockets are served.
	webPath = "/pnode"
	// maxHeader bounds the header of a request, in bytes.
	maxHeader = 4 << 10
)

var (
	isWeb = mafmt.And(mafmt.Or(mafmt.IP, mafmt.DNS), mafmt.Base(ma.P_TCP), mafmt.Or(
		mafmt.Base(ma.P_WS), mafmt.Base(ma.P_WSS), mafmt.And(mafmt.Base(ma.P_TLS), mafmt.Base(ma.P_WS)),
		mafmt.And(mafmt.Base(ma.P_TLS), mafmt.Base(ma.P_SNI), mafmt.Base(ma.P_WS))))
	webSuffix = ma.StringCast("/tls/ws")
)

// web answers HTTP on a port: requests for a WebSocket, and nothing else.
type web struct {
	port   *port
	conns  chan net.Conn
	server http.Server
}

func newWeb(p *port) *web {
	w := &web{port: p, conns: make(chan net.Conn)}
	w.server = http.Server{
		Handler: w, ReadHeaderTimeout: sortTime, ReadTimeout: sortTime, WriteTimeout: sortTime, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0), // strangers' mistakes
	}
	w.server.SetKeepAlivesEnabled(false)
	return w
}

// take has the server answer a connection.
func (w *web) take(c net.Conn) {
	select {
	case w.conns <- c:
	case <-w.port.closed:
		c.Close()
	}
}

// Accept, Close and Addr make web the listener of its server.
func (w *web) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.port.closed:
		return nil, net.ErrClosed
	}
}

func (w *web) Close() error   { return nil }
func (w *web) Addr() net.Addr { return w.port.Addr() }

// ServeHTTP makes a WebSocket of a request at webPath, and sorts what it carries.
func (w *web) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if r.URL.Path != webPath {
		http.NotFound(out, r)
		return
	}
	ws, err := websocket.Accept(out, r)
	if err != nil {
		return
	}
	under := placeOf(ws)
	if under == nil {
		ws.Close()
		return
	}
	c := &Conn{Conn: ws, local: under.local, remote: under.remote.Encapsulate(webSuffix), scope: under.scope}
	if !w.port.owner.Tasks.Run(func(ctx context.Context) { w.port.sortUntil(ctx, c, plan.WebSocket) }) {
		c.Close()
	}
}

// placeOf returns the accepted connection that carries a WebSocket, nil if it is another one.
func placeOf(c net.Conn) *Conn {
	for {
		switch inner := c.(type) {
		case *Conn:
			return inner
		case interface{ NetConn() net.Conn }:
			c = inner.NetConn()
		default:
			return nil
		}
	}
}

// site is where a WebSocket is asked for.
type site struct {
	at, port string // "host:port", and the port alone
	name     string // for TLS and in the request
	secure   bool
}

// siteOf reads an address of a WebSocket, or one of TCP, where one is served over TLS.
func siteOf(a ma.Multiaddr) (site, error) {
	s := site{secure: isTCP.Matches(a)}
	ma.ForEach(a, func(c ma.Component) bool {
		switch c.Protocol().Code {
		case ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6:
			s.name = c.Value()
		case ma.P_TCP:
			s.port = c.Value()
			s.at = net.JoinHostPort(s.name, s.port)
		case ma.P_TLS, ma.P_WSS:
			s.secure = true
		case ma.P_SNI:
			s.name = c.Value()
		}
		return true
	})
	if s.name == "" || s.port == "" {
		return site{}, fmt.Errorf("%s: no address of a WebSocket", a)
	}
	return s, nil
}

// CanConnectWeb reports whether ConnectWeb takes an address.
func (t *Ports) CanConnectWeb(a ma.Multiaddr) bool { return isTCP.Matches(a) || isWeb.Matches(a) }

// ConnectWeb opens a stream of bytes over a WebSocket to an address, through the environment's proxy if it names one.
// The IP address has to be allowed after a look-up; a name that a proxy looks up, only where all is. Certificates are not
// checked: networks that look into TLS have their own, and who is there is proved inside.
func (t *Ports) ConnectWeb(ctx context.Context, a ma.Multiaddr, allowed Allowed) (net.Conn, error) {
	s, err := siteOf(a)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	via, err := t.ProxyFor(s.at)
	if err != nil {
		return nil, err
	}
	var raw net.Conn
	switch {
	case via == nil:
		raw, err = allowed.dialer().DialContext(ctx, "tcp", s.at)
	case !allowed.target(s.at):
		err = ErrNotAllowed
	default:
		raw, _, err = Through(ctx, via, s.at)
	}
	if err != nil {
		return nil, err
	}
	if s.secure {
		secured := tls.Client(raw, &tls.Config{ServerName: s.name, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err := secured.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		raw = secured
	}
	return websocket.Client(ctx, raw, net.JoinHostPort(s.name, s.port), webPath)
}

// target reports whether a proxy may be asked for a "host:port": where not all is allowed, not for a name, which means what
// the proxy makes of it.
func (a Allowed) target(at string) bool {
	if a == nil {
		return true
	}
	to, err := netip.ParseAddrPort(at)
	return err == nil && a(to.Addr().WithZone("").Unmap())
}

// proxied reports whether the environment has a proxy for an address.
func (t *Ports) proxied(a ma.Multiaddr) bool {
	s, err := siteOf(a)
	if err != nil {
		return false
	}
	via, err := t.ProxyFor(s.at)
	return via != nil && err == nil
}

// webConn is a WebSocket that this node asked for, with the addresses that libp2p wants.
type webConn struct {
	net.Conn
	local, remote ma.Multiaddr
}

var _ manet.Conn = webConn{}

func (c webConn) LocalMultiaddr() ma.Multiaddr  { return c.local }
func (c webConn) RemoteMultiaddr() ma.Multiaddr { return c.remote }

// dialWeb opens a WebSocket for libp2p.
func (t *Ports) dialWeb(ctx context.Context, a ma.Multiaddr) (manet.Conn, error) {
	c, err := t.ConnectWeb(ctx, a, nil)
	if err != nil {
		return nil, err
	}
	local, err := manet.FromNetAddr(c.LocalAddr())
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if isTCP.Matches(a) {
		a = a.Encapsulate(webSuffix)
	}
	return webConn{c, local, a}, nil
}
