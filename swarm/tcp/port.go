package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/transport/tcpreuse"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
)

// port is one listening socket. To libp2p it is a listener of the connections that begin as libp2p's do.
type port struct {
	transport.GatedMaListener
	owner  *Transport
	libp2p chan *Conn
	web    *web
	once   sync.Once
	closed chan struct{}
	close  func() error // of the socket, once: libp2p closes a listener again that accepts no more, perhaps first
}

func newPort(socket transport.GatedMaListener, owner *Transport) *port {
	p := &port{GatedMaListener: socket, owner: owner, libp2p: make(chan *Conn), closed: make(chan struct{}), close: sync.OnceValue(socket.Close)}
	p.web = newWeb(p)
	return p
}

// run accepts connections until the socket closes.
func (p *port) run() {
	for {
		raw, scope, err := p.GatedMaListener.Accept()
		if errors.Is(err, net.ErrClosed) {
			p.stop()
			return
		}
		if err != nil { // such as too many open files
			select {
			case <-time.After(acceptPause):
			case <-p.closed:
			}
			continue
		}
		c := &Conn{Conn: raw, local: raw.LocalMultiaddr(), remote: raw.RemoteMultiaddr(), scope: scope}
		begun := p.owner.Tasks.Run(func(ctx context.Context) {
			p.sortUntil(ctx, c, plan.TCP)
		})
		if !begun {
			c.Close()
		}
	}
}

// sortUntil is sort, cut short when ctx ends.
func (p *port) sortUntil(ctx context.Context, c *Conn, over plan.Transport) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	p.sort(c, over)
}

// sort hands a connection to whoever serves what it carries, and closes one that nobody serves. Its deadline is for
// both directions: a Read of a WebSocket writes the answers to pings.
func (p *port) sort(c *Conn, over plan.Transport) {
	c.SetDeadline(time.Now().Add(sortTime))
	head := make([]byte, 3)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		c.Close()
		return
	}
	c.head = head
	switch first := tcpreuse.Prefix(head); {
	case tcpreuse.IsMultistreamSelect(first):
		c.SetDeadline(time.Time{})
		forControl(c.Conn)
		select {
		case p.libp2p <- c:
		case <-p.closed:
			c.Close()
		}
	case tcpreuse.IsTLS(first):
		protocols, hello, err := clientHello(c)
		c.head = hello
		c.SetDeadline(time.Time{})
		switch {
		case err == nil && p.owner.serve(c, protocols, over):
			return
		case err == nil && over == plan.TCP && (len(protocols) == 0 || slices.Contains(protocols, httpALPN)):
			p.web.take(tls.Server(c, p.owner.webTLS))
			return
		case err == nil:
			c.SetWriteDeadline(time.Now().Add(sortTime))
			_, _ = c.Write(noProtocol) // who does not hear it sees the end
		}
		c.Close()
	case over == plan.TCP && tcpreuse.IsHTTP(first): // of somebody else's proxy that ends TLS
		c.SetDeadline(time.Time{})
		p.web.take(c)
	default:
		c.Close()
	}
}

// noProtocol is the TLS alert no_application_protocol (RFC 7301, 3.2).
var noProtocol = []byte{21, 3, 3, 0, 2, 2, 120}

// Accept returns the next connection for libp2p.
func (p *port) Accept() (manet.Conn, network.ConnManagementScope, error) {
	select {
	case c := <-p.libp2p:
		return c, c.scope, nil
	case <-p.closed:
		return nil, nil, transport.ErrListenerClosed
	}
}

// Close stops listening. Each call returns how the socket was closed.
func (p *port) Close() error {
	p.stop()
	return p.close()
}

func (p *port) stop() { p.once.Do(func() { close(p.closed) }) }
