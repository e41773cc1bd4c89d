// Package listen reads the addresses that a node listens on, and explains why it cannot listen on one. It knows
// nothing of libp2p and imports nothing of the project. It is called by host, swarm and node/config.
package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

var (
	// ErrPortInUse is wrapped when another program has the port.
	ErrPortInUse = errors.New("port in use")
	// ErrElsewhere is wrapped for an address that this machine does not have.
	ErrElsewhere = errors.New("want an address of this machine")
)

// Parse reads "host:port": an IP address, localhost, or nothing for every interface. The error says what is accepted.
func Parse(text string) (netip.AddrPort, error) {
	const want = `want "host:port", such as 0.0.0.0:4001 or 127.0.0.1:0`
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, errors.New(want)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, errors.New(want + ", with a port from 0 to 65535")
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, errors.New(want + ", with an IP address of this machine, not a name")
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), nil
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

// Try listens for a moment, over UDP and TCP as a node does. Its errors are those of UDP.
func Try(at netip.AddrPort) error {
	u, err := UDP(at)
	if err != nil {
		return err
	}
	t, err := net.Listen("tcp", at.String())
	if err != nil {
		return errors.Join(explain("TCP", err), u.Close())
	}
	return errors.Join(u.Close(), t.Close())
}

// Windows' numbers for what Unix calls EADDRINUSE, EADDRNOTAVAIL and EAFNOSUPPORT.
const (
	wsaeAddrInUse    = syscall.Errno(10048)
	wsaeAddrNotAvail = syscall.Errno(10049)
	wsaeAFNoSupport  = syscall.Errno(10047)
)

// explain returns what is wrong with an address, and what to do, in one sentence.
func explain(transport string, err error) error {
	is := func(errnos ...error) bool {
		return slices.ContainsFunc(errnos, func(e error) bool { return errors.Is(err, e) })
	}
	switch {
	case is(syscall.EADDRINUSE, wsaeAddrInUse):
		return fmt.Errorf("%w (%s): stop the program that has it, choose another with --listen HOST:PORT, or give port 0 for any free one", ErrPortInUse, transport)
	case is(syscall.EADDRNOTAVAIL, wsaeAddrNotAvail, syscall.EAFNOSUPPORT, wsaeAFNoSupport):
		const most = 8
		own := []string{"0.0.0.0 for every interface"}
		addrs, _ := net.InterfaceAddrs() // without them the wildcard is named alone
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() && len(own) < most {
				own = append(own, n.IP.String())
			}
		}
		return fmt.Errorf("%w: %s", ErrElsewhere, strings.Join(own, ", "))
	case is(os.ErrPermission):
		return fmt.Errorf("this user may not listen on that port (%s): choose one from 1024 up, or 0 for any", transport)
	}
	return fmt.Errorf("%w; choose another address with --listen HOST:PORT", err)
}
