package host

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	_ "unsafe" // for the linked name below

	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/quic-go/quic-go"
)

// windows are the receive windows of a connection at first, in bytes: what the other side may send before
// anything of it is read.
type windows struct{ stream, conn uint64 }

// A window must hold what is under way, or the line idles. But what a stranger sends is under way until somebody reads it,
// which for most of it is never. Windows grow with what is read, and those of strangers not at all (strangers.go).
var (
	// A greeting and libp2p's identify have some 3 KB, at most 20. Three streams that wait for the verdict, full, leave
	// the greeting its way.
	strangersWindows = windows{32 << 10, 112 << 10}
	// From where known peers listen, and to whom this node dials: what a member sends at once, before it is one here.
	knownWindows = windows{256 << 10, 384 << 10}
	// Members' data: 1 Gbit/s over 80 ms at first.
	membersWindows = windows{3 << 20, 10 << 20}
)

// The largest windows on shared sockets: 32 MB a stream are 1 Gbit/s at 256 ms. A connection's window holds those
// of three streams that nobody reads, and room for a fourth: the data plane's classes must not wait for one
// another. libp2p's own are 10 and 15 MB.
const (
	maxStreamWindow = 32 << 20
	maxConnWindow   = 104 << 20
)

// firstPacket is the size of UDP payloads, in bytes, until larger ones are known to arrive: the least that QUIC allows.
// quic-go's own 1280 do not fit through a path of 1,280 bytes, the least that IPv6 allows, with the headers of IP and UDP.
const firstPacket = 1200

// libp2pALPN is the protocol of libp2p's own connections.
const libp2pALPN = "libp2p"

// libp2pQUIC holds how libp2p configures QUIC connections on sockets that it opens itself, those on one address. It
// has no option for it.
//
//go:linkname libp2pQUIC github.com/libp2p/go-libp2p/p2p/transport/quicreuse.quicConfig
var libp2pQUIC *quic.Config

// smallWindows gives every QUIC connection of libp2p's own sockets a stranger's windows at first.
var smallWindows = sync.OnceFunc(func() {
	*libp2pQUIC = *strangersWindows.set(libp2pQUIC)
})

// set returns a copy of a configuration with these windows at first, and packets for any path. Datagrams, which nobody here sends, are not taken:
// they wait for a reader outside of every window.
func (w windows) set(conf *quic.Config) *quic.Config {
	c := conf.Clone()
	c.InitialStreamReceiveWindow, c.InitialConnectionReceiveWindow = w.stream, w.conn
	c.InitialPacketSize = firstPacket
	c.EnableDatagrams = false
	return c
}

// widest lets the windows of a configuration grow to the largest.
func widest(conf *quic.Config) *quic.Config {
	c := conf.Clone()
	c.MaxStreamReceiveWindow, c.MaxConnectionReceiveWindow = maxStreamWindow, maxConnWindow
	return c
}

// windowedTransport chooses the windows of all connections it makes and accepts by who is at the other end.
type windowedTransport struct {
	*quic.Transport
	strangers *strangers
}

// Listen accepts with windows for a member where a member is connected from, and for a stranger where nobody known is.
func (t windowedTransport) Listen(tlsConf *tls.Config, conf *quic.Config) (quicreuse.QUICListener, error) {
	c := strangersWindows.set(widest(conf))
	c.GetConfigForClient = func(client *quic.ClientInfo) (*quic.Config, error) {
		at := addrPort(client.RemoteAddr)
		if t.strangers.turnsAway(at.Addr()) { // for less than the resource manager would take to say so
			return nil, errNoPlace
		}
		return t.strangers.windowsFor(at).set(c), nil
	}
	return t.Transport.Listen(tlsConf, c)
}

// Dial connects with windows for data, unless the connection is libp2p's own.
func (t windowedTransport) Dial(ctx context.Context, addr net.Addr, tlsConf *tls.Config, conf *quic.Config) (*quic.Conn, error) {
	w := membersWindows
	if slices.Contains(tlsConf.NextProtos, libp2pALPN) {
		w = knownWindows
	}
	return t.Transport.Dial(ctx, addr, tlsConf, w.set(widest(conf)))
}
