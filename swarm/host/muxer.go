package host

import (
	"net"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"

	"pnode/swarm/admission"
)

// strangersTCPBytes is how much is read from a TCP connection before its peer is admitted. yamux has windows of
// streams only, and 256 KB each at first.
const strangersTCPBytes = 112 << 10

// muxer is libp2p's yamux, but reads no more than strangersTCPBytes of a stranger.
type muxer struct{ peers *admission.Peers }

// NewConn wraps a connection whose peer is proved.
func (m muxer) NewConn(c net.Conn, isServer bool, scope network.PeerScope) (network.MuxedConn, error) {
	if scope != nil {
		c = &meteredConn{Conn: c, peers: m.peers, peer: scope.Peer(), left: strangersTCPBytes, closed: make(chan struct{})}
	}
	return yamux.DefaultTransport.NewConn(c, isServer, scope)
}

// meteredConn stops reading when a stranger has sent too much, until the peer is admitted or the connection closes.
type meteredConn struct {
	net.Conn
	peers *admission.Peers
	peer  peer.ID
	// left is what may still be read of a stranger, in bytes; admitted is set for good. yamux has one reader.
	left     int
	admitted bool
	once     sync.Once
	closed   chan struct{}
}

// Read reads at most what the peer may still send.
func (c *meteredConn) Read(b []byte) (int, error) {
	for !c.admitted {
		changed := c.peers.Changed()
		if c.admitted = c.peers.Member(c.peer); c.admitted {
			break
		}
		if c.left > 0 {
			n, err := c.Conn.Read(b[:min(len(b), c.left)])
			c.left -= n
			return n, err
		}
		select {
		case <-changed:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Read(b)
}

// Close ends a Read that waits.
func (c *meteredConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
