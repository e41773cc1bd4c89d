package swarm

import (
	"context"
	"errors"
	"net"
	"syscall"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Deserted tells whether the machine at every one of the addresses, each with /p2p/, says that
// nobody listens there. A machine that is silent, as one that is off or behind a firewall,
// leaves false, as does an address that leads through another node.
func Deserted(ctx context.Context, addrs ...string) bool {
	infos, err := parseAddrs(addrs)
	if err != nil {
		return false
	}
	for _, info := range infos {
		for _, a := range info.Addrs {
			if !abandoned(ctx, a) {
				return false
			}
		}
	}
	return len(infos) > 0
}

// abandoned tells whether the machine at an address says that nobody listens there.
func abandoned(ctx context.Context, a ma.Multiaddr) bool {
	if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err == nil {
		return false
	}
	if port, err := manet.ToNetAddr(a.Decapsulate(ma.StringCast("/quic-v1"))); err == nil && port.Network() == "udp" {
		return refuses(ctx, addrPort(port))
	}
	port, err := manet.ToNetAddr(a)
	if err != nil || port.Network() != "tcp" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", port.String())
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
