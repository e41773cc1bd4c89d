package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	ma "github.com/multiformats/go-multiaddr"
)

// Addr is one parsed HOST:PORT to listen on.
type Addr struct {
	IP   netip.Addr
	Port uint16
}

// String returns HOST:PORT.
func (l Addr) String() string { return netip.AddrPortFrom(l.IP, l.Port).String() }

// udp returns the address as the net package wants it.
func (l Addr) udp() (network string, addr *net.UDPAddr) {
	network = "udp6"
	if l.IP.Is4() {
		network = "udp4"
	}
	return network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.IP, l.Port))
}

// multiaddr returns the address with a transport, another port, and the rest of the multiaddr.
func (l Addr) multiaddr(transport string, port uint16, rest string) ma.Multiaddr {
	family := "ip6"
	if l.IP.Is4() {
		family = "ip4"
	}
	return ma.StringCast(fmt.Sprintf("/%s/%s/%s/%d%s", family, l.IP, transport, port, rest))
}

// ParseListen reads "HOST:PORT"; an empty HOST is 0.0.0.0.
func ParseListen(s string) (Addr, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Addr{}, fmt.Errorf("swarm: listen address %q: want HOST:PORT, such as 127.0.0.1:4001 or 0.0.0.0:4001", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Addr{}, fmt.Errorf("swarm: listen address %q: port %q is not a number from 0 to 65535", s, port)
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return Addr{}, fmt.Errorf("swarm: listen address %q: host %q is not an IP address", s, host)
	}
	return Addr{IP: ip.Unmap(), Port: uint16(n)}, nil
}

// checkPorts returns an error when a port is in use. libp2p does not find out: it is content when one of its
// addresses works, and shares a TCP port with any process that allows it.
func checkPorts(addrs []Addr) error {
	for _, l := range addrs {
		if l.Port == 0 {
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

// listenError returns what is wrong with an address, and what to do, in one sentence.
func listenError(l Addr, transport string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, wsaeAddrInUse) {
		return fmt.Errorf("swarm: listen on %s (%s): %w", l, transport, ErrPortInUse)
	}
	return fmt.Errorf("swarm: listen on %s (%s): %w", l, transport, err)
}

// ErrPortInUse is wrapped when another program listens at an address.
var ErrPortInUse = errors.New("another program uses this port; stop it, choose another with --listen HOST:PORT, or give port 0 for any free one")

// wsaeAddrInUse is Windows' number for an address in use, WSAEADDRINUSE.
const wsaeAddrInUse = syscall.Errno(10048)
