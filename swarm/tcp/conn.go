package tcp

import (
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Conn is an accepted connection with its place in the resource manager, which Close gives back.
type Conn struct {
	net.Conn
	local, remote ma.Multiaddr
	// head was read already and is read again first. Read has one caller at a time.
	head  []byte
	scope network.ConnManagementScope
	once  sync.Once
}

var _ manet.Conn = (*Conn)(nil)

// Read reads what was looked at before, then from the connection.
func (c *Conn) Read(b []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.head)
	if c.head = c.head[n:]; len(c.head) == 0 {
		c.head = nil
	}
	return n, nil
}

// SetPeer counts the connection as a peer's, which has proved its ID. The error says that the peer has too many.
func (c *Conn) SetPeer(p peer.ID) error { return c.scope.SetPeer(p) }

// Close gives the place back too.
func (c *Conn) Close() error {
	c.once.Do(c.scope.Done)
	return c.Conn.Close()
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// LocalMultiaddr returns this end's address.
func (c *Conn) LocalMultiaddr() ma.Multiaddr { return c.local }

// RemoteMultiaddr returns the other end's address.
func (c *Conn) RemoteMultiaddr() ma.Multiaddr { return c.remote }

// forControl sets a socket up for libp2p's own connections: a process that ends leaves nothing in TIME-WAIT, so that the
// same two ports can be connected again at once.
func forControl(c net.Conn) {
	type socket interface {
		SetLinger(int) error
		SetKeepAlivePeriod(time.Duration) error
	}
	if s, ok := c.(socket); ok {
		// A socket without these options is slower, no more.
		_ = s.SetLinger(0)
		_ = s.SetKeepAlivePeriod(keepAlive)
	}
}
