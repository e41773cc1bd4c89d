package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"

	"pnode/swarm/listen"
)

// sharedSocket is a UDP socket that is opened here and lent to libp2p, so that the QUIC configuration of what
// runs on it can be changed. libp2p borrows sockets on unspecified addresses only; on others (loopback,
// one interface) its own windows stay.
type sharedSocket struct {
	at   netip.AddrPort
	conn net.PacketConn
	quic *quic.Transport
	// strangers judges who gets wide windows.
	strangers *strangers
	// returned is closed when libp2p is done with the socket; nil until it is lent.
	returned <-chan struct{}
}

func openShared(at netip.AddrPort, wrap func(net.PacketConn) net.PacketConn, s *strangers) (*sharedSocket, error) {
	socket, err := listen.UDP(at)
	if err != nil {
		return nil, fmt.Errorf("swarm: listen on %s: %w", at, err)
	}
	conn := net.PacketConn(socket)
	if wrap != nil {
		conn = wrap(conn)
	}
	return &sharedSocket{at: at, conn: conn, quic: &quic.Transport{Conn: conn}, strangers: s}, nil
}

// lend hands the socket to libp2p while the host is being built, with the keys and the resource accounting that
// libp2p gives to sockets of its own.
func (t *sharedSocket) lend(m *quicreuse.ConnManager, reset quic.StatelessResetKey, token quic.TokenGeneratorKey, resources network.ResourceManager) (err error) {
	t.quic.StatelessResetKey, t.quic.TokenGeneratorKey = &reset, &token
	t.quic.VerifySourceAddress = resources.VerifySourceAddress
	t.quic.ConnContext = countedBy(resources)
	if t.returned, err = m.LendTransport(listen.Network(t.at), windowedTransport{t.quic, t.strangers}, t.conn); err != nil {
		return fmt.Errorf("swarm: lend UDP socket %s: %w", t.conn.LocalAddr(), err)
	}
	return nil
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
