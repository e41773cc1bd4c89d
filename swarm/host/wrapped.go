package host

import (
	"context"
	"net"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"
)

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
