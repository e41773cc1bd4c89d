package relay

import (
	"net"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// lingerTime is how long a connection stays open after its end was sent, for what is under way.
const lingerTime = 2 * time.Second

// pathConn is one end of a relayed connection as a net.Conn: the only stream of a connection to the relay, at the
// relay the one that the end opened.
type pathConn struct {
	transport.Stream
	conn transport.Conn
	via  plan.PeerID
}

var _ net.Conn = (*pathConn)(nil)

// Close ends both directions, after what was written, and unblocks Read and Write.
func (c *pathConn) Close() error {
	_ = c.SetDeadline(time.Unix(1, 0))
	err := c.Stream.Close()
	time.AfterFunc(lingerTime, c.abort)
	return err
}

// abort ends the connection at once.
func (c *pathConn) abort() { c.conn.Close(0, "") }

// LocalAddr returns the relay.
func (c *pathConn) LocalAddr() net.Addr { return addr{c.via} }

// RemoteAddr returns the relay: where the other end is, nobody says.
func (c *pathConn) RemoteAddr() net.Addr { return addr{c.via} }

// addr names the relay of a connection.
type addr struct{ relay plan.PeerID }

func (addr) Network() string  { return "relay" }
func (a addr) String() string { return "relay " + string(a.relay) }
