// Package listen reads the addresses that a node listens on, and explains why it cannot listen on one. It knows
// nothing of libp2p. It is called by host, swarm and node/config.
package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"pnode/swarm/neterr"
)

var (
	// ErrPortInUse is wrapped when another program has the port.
	ErrPortInUse = errors.New("port in use")
	// ErrElsewhere is wrapped for an address that this machine does not have.
	ErrElsewhere = errors.New("want an address of this machine")
)

// Parse reads "host:port" into the addresses to listen on: an IP address, localhost, or nothing for every interface, which
// is one address of IPv4 and one of IPv6. The error says what is accepted.
func Parse(text string) ([]netip.AddrPort, error) {
	const want = `want "host:port", such as :4001 for every interface, 0.0.0.0:4001 for IPv4 alone, or 127.0.0.1:0`
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return nil, errors.New(want)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, errors.New(want + ", with a port from 0 to 65535")
	}
	switch host {
	case "":
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(number)), netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(number))}, nil
	case "localhost":
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, errors.New(want + ", with an IP address of this machine, not a name")
	}
	return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(number))}, nil
}

// Every reports whether addresses are what Parse makes of no host.
func Every(addrs []netip.AddrPort) bool {
	unspecified := func(is4 bool) bool {
		return slices.ContainsFunc(addrs, func(at netip.AddrPort) bool { return at.Addr().IsUnspecified() && at.Addr().Is4() == is4 })
	}
	return unspecified(true) && unspecified(false)
}

// Free returns the addresses with one port in place of 0, which nobody has over UDP or TCP on any of them. Of every
// interface's two it leaves out a family that this machine does not have. An error wraps ErrPortInUse or ErrElsewhere
// where it is one of these.
func Free(addrs []netip.AddrPort) ([]netip.AddrPort, error) {
	if len(addrs) == 0 {
		return nil, nil
	}
	const tries = 16
	var err error
	for range tries {
		port, every := uint16(0), Every(addrs)
		var free []netip.AddrPort
		err = nil
		for _, at := range addrs {
			asked := at.Port()
			if asked == 0 {
				at = netip.AddrPortFrom(at.Addr(), port)
			}
			got, tried := try(at)
			if tried != nil && every && at.Addr().IsUnspecified() && errors.Is(tried, ErrElsewhere) {
				continue
			}
			if tried != nil {
				if err = tried; asked != 0 {
					return nil, err
				}
				break
			}
			if asked == 0 {
				port = got
			}
			free = append(free, netip.AddrPortFrom(at.Addr(), got))
		}
		if err == nil && len(free) == 0 {
			return nil, fmt.Errorf("%w: it has neither IPv4 nor IPv6", ErrElsewhere)
		}
		if err == nil {
			return free, nil
		}
		if !errors.Is(err, ErrPortInUse) {
			break
		}
	}
	return nil, err
}

// Network returns "udp4" or "udp6", whichever an address is of.
func Network(at netip.AddrPort) string {
	if at.Addr().Is4() {
		return "udp4"
	}
	return "udp6"
}

// UDP opens a socket. The error wraps ErrPortInUse or ErrElsewhere where it is one of these, and says what to do.
func UDP(at netip.AddrPort) (*net.UDPConn, error) {
	conn, err := net.ListenUDP(Network(at), net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, explain("UDP", err)
	}
	return conn, nil
}

// try listens for a moment, over UDP and TCP as a node does, and returns the port. Its errors are those of UDP.
func try(at netip.AddrPort) (port uint16, err error) {
	u, err := UDP(at)
	if err != nil {
		return 0, err
	}
	at = netip.AddrPortFrom(at.Addr(), u.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	t, err := net.Listen(strings.Replace(Network(at), "udp", "tcp", 1), at.String())
	if err != nil {
		return 0, errors.Join(explain("TCP", err), u.Close())
	}
	return at.Port(), errors.Join(u.Close(), t.Close())
}

// explain returns what is wrong with an address, and what to do, in one sentence.
func explain(transport string, err error) error {
	switch {
	case neterr.InUse(err):
		return fmt.Errorf("%w (%s): stop the program that has it, choose another with --listen HOST:PORT, or give port 0 for any free one", ErrPortInUse, transport)
	case neterr.NotOurs(err):
		const most = 8
		own := []string{"none, as in :4001, for every interface"}
		addrs, _ := net.InterfaceAddrs() // without them the wildcard is named alone
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() && len(own) < most {
				own = append(own, n.IP.String())
			}
		}
		return fmt.Errorf("%w: %s", ErrElsewhere, strings.Join(own, ", "))
	case neterr.Denied(err):
		return fmt.Errorf("this user may not listen on that port (%s): choose one from 1024 up, or 0 for any", transport)
	}
	return fmt.Errorf("%w; choose another address with --listen HOST:PORT", err)
}
