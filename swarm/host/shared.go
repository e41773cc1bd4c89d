package host

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/x/rate"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"

	"pnode/swarm/listen"
)

// Receive windows of connections on a shared socket, in bytes. A window must hold what is under way: 32 MB a
// stream are 1 Gbit/s at 256 ms. A connection's window holds those of three streams that nobody
// reads, and room for a fourth: the data plane's classes must not wait for one another. libp2p's own are 10
// and 15 MB, from 512 KB.
const (
	initialStreamWindow = 3 << 20
	initialConnWindow   = 10 << 20
	maxStreamWindow     = 32 << 20
	maxConnWindow       = 104 << 20
)

var loopbackUnlimited = []rate.PrefixLimit{
	{Prefix: netip.MustParsePrefix("127.0.0.0/8")},
	{Prefix: netip.MustParsePrefix("::1/128")},
}

// sharedSocket is a UDP socket that is opened here and lent to libp2p, so that the QUIC configuration of what
// runs on it can be changed. libp2p borrows sockets on unspecified addresses only; on others (loopback,
// one interface) its own windows stay.
type sharedSocket struct {
	at   netip.AddrPort
	conn net.PacketConn
	quic *quic.Transport
	// returned is closed when libp2p is done with the socket; nil until it is lent.
	returned <-chan struct{}
}

func openShared(at netip.AddrPort, wrap func(net.PacketConn) net.PacketConn) (*sharedSocket, error) {
	socket, err := listen.UDP(at)
	if err != nil {
		return nil, fmt.Errorf("swarm: listen on %s: %w", at, err)
	}
	conn := net.PacketConn(socket)
	if wrap != nil {
		conn = wrap(conn)
	}
	return &sharedSocket{at: at, conn: conn, quic: &quic.Transport{Conn: conn}}, nil
}

// lend hands the socket to libp2p while the host is being built, with the keys and the resource accounting that
// libp2p gives to sockets of its own.
func (t *sharedSocket) lend(m *quicreuse.ConnManager, reset quic.StatelessResetKey, token quic.TokenGeneratorKey, resources network.ResourceManager) (err error) {
	t.quic.StatelessResetKey, t.quic.TokenGeneratorKey = &reset, &token
	t.quic.VerifySourceAddress = resources.VerifySourceAddress
	t.quic.ConnContext = countedBy(resources)
	if t.returned, err = m.LendTransport(listen.Network(t.at), wideTransport{t.quic}, t.conn); err != nil {
		return fmt.Errorf("swarm: lend UDP socket %s: %w", t.conn.LocalAddr(), err)
	}
	return nil
}

// wideTransport raises the windows of all connections it makes and accepts.
type wideTransport struct{ *quic.Transport }

func (t wideTransport) Listen(tlsConf *tls.Config, conf *quic.Config) (quicreuse.QUICListener, error) {
	return t.Transport.Listen(tlsConf, widen(conf))
}

func (t wideTransport) Dial(ctx context.Context, addr net.Addr, tlsConf *tls.Config, conf *quic.Config) (*quic.Conn, error) {
	return t.Transport.Dial(ctx, addr, tlsConf, widen(conf))
}

func widen(conf *quic.Config) *quic.Config {
	c := conf.Clone()
	c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = initialStreamWindow, maxStreamWindow
	c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = initialConnWindow, maxConnWindow
	return c
}

// wrappedSockets returns an option with which libp2p passes every UDP socket that it opens through wrap.
func wrappedSockets(wrap func(net.PacketConn) net.PacketConn) libp2p.Option {
	listen := func(udp string, addr *net.UDPAddr) (net.PacketConn, error) {
		conn, err := net.ListenUDP(udp, addr)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	return libp2p.QUICReuse(func(life fx.Lifecycle, reset quic.StatelessResetKey, token quic.TokenGeneratorKey, resources network.ResourceManager) (*quicreuse.ConnManager, error) {
		m, err := quicreuse.NewConnManager(reset, token,
			quicreuse.OverrideListenUDP(listen),
			quicreuse.ConnContext(countedBy(resources)),
			quicreuse.VerifySourceAddress(resources.VerifySourceAddress))
		if err == nil {
			life.Append(fx.StopHook(m.Close))
		}
		return m, err
	})
}

// countedBy returns a function with which the resource manager judges and counts incoming connections.
func countedBy(resources network.ResourceManager) func(context.Context, *quic.ClientInfo) (context.Context, error) {
	return func(ctx context.Context, client *quic.ClientInfo) (context.Context, error) {
		addr, err := quicreuse.ToQuicMultiaddr(client.RemoteAddr, quic.Version1)
		if err != nil {
			addr = nil // the resource manager judges a connection without an address
		}
		scope, err := resources.OpenConnection(network.DirInbound, false, addr)
		if err != nil {
			return ctx, err
		}
		context.AfterFunc(ctx, scope.Done)
		return network.WithConnManagementScope(ctx, scope), nil
	}
}
