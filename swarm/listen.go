package swarm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	ma "github.com/multiformats/go-multiaddr"
)

// listenAddr is one parsed HOST:PORT.
type listenAddr struct {
	ip   netip.Addr
	port uint16
}

func (l listenAddr) String() string { return netip.AddrPortFrom(l.ip, l.port).String() }

// udp names the address for the net package.
func (l listenAddr) udp() (network string, addr *net.UDPAddr) {
	network = "udp6"
	if l.ip.Is4() {
		network = "udp4"
	}
	return network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.ip, l.port))
}

// multiaddr is the address with what follows the IP address.
func (l listenAddr) multiaddr(transport string, port uint16, rest string) ma.Multiaddr {
	family := "ip6"
	if l.ip.Is4() {
		family = "ip4"
	}
	return ma.StringCast(fmt.Sprintf("/%s/%s/%s/%d%s", family, l.ip, transport, port, rest))
}

// parseListen reads "HOST:PORT"; an empty HOST is 0.0.0.0.
func parseListen(s string) (listenAddr, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return listenAddr{}, fmt.Errorf("swarm: listen address %q: want HOST:PORT, such as 127.0.0.1:4001 or 0.0.0.0:4001", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return listenAddr{}, fmt.Errorf("swarm: listen address %q: port %q is not a number from 0 to 65535", s, port)
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return listenAddr{}, fmt.Errorf("swarm: listen address %q: host %q is not an IP address", s, host)
	}
	return listenAddr{ip: ip.Unmap(), port: uint16(n)}, nil
}

// checkPorts finds a port in use before libp2p tries it: libp2p is content when one of its
// addresses works, and shares a TCP port with any other process that allows it.
func checkPorts(addrs []listenAddr) error {
	for _, l := range addrs {
		if l.port == 0 {
			continue
		}
		network, addr := l.udp()
		if u, err := net.ListenUDP(network, addr); err != nil {
			return listenError(l, "UDP", err)
		} else if err := u.Close(); err != nil {
			return listenError(l, "UDP", err)
		}
		if t, err := net.Listen("tcp", l.String()); err != nil {
			return listenError(l, "TCP", err)
		} else if err := t.Close(); err != nil {
			return listenError(l, "TCP", err)
		}
	}
	return nil
}

// listenError says in one sentence what is wrong with an address and what to do.
func listenError(l listenAddr, transport string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, wsaeAddrInUse) {
		return fmt.Errorf("swarm: listen on %s (%s): %w", l, transport, ErrPortInUse)
	}
	return fmt.Errorf("swarm: listen on %s (%s): %w", l, transport, err)
}

// wsaeAddrInUse is Windows' number for an address in use, WSAEADDRINUSE.
const wsaeAddrInUse = syscall.Errno(10048)
