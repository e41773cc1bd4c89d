package config

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

// listenForm describes what --listen accepts.
const listenForm = `"host:port", such as 0.0.0.0:4001 or 127.0.0.1:0`

// ErrPortInUse: another program has the port that this node is to listen on.
var ErrPortInUse = errors.New("port in use")

// parseListen reads "host:port": an IP address, localhost, or nothing for every interface.
func parseListen(listen string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return netip.AddrPort{}, invalid("listen", listen, listenForm)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, invalid("listen", listen, listenForm+", with a port from 0 to 65535")
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, invalid("listen", listen, listenForm+", with an IP address of this machine, not a name")
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), nil
}

// TryListen listens on "host:port" for a moment, over UDP and TCP as a node does, to
// explain before anything is made what cannot work. The error wraps ErrInvalid for an
// address that is not this machine's and ErrPortInUse for a port that is taken.
func TryListen(listen string) error {
	if listen == "" {
		return nil
	}
	at, err := parseListen(listen)
	if err != nil {
		return err
	}
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return explainListen(listen, "UDP", err)
	}
	t, err := net.Listen("tcp", at.String())
	if err != nil {
		return errors.Join(explainListen(listen, "TCP", err), u.Close())
	}
	return errors.Join(u.Close(), t.Close())
}

// Windows' numbers for what Unix calls EADDRINUSE, EADDRNOTAVAIL and EAFNOSUPPORT.
const (
	wsaeAddrInUse    = syscall.Errno(10048)
	wsaeAddrNotAvail = syscall.Errno(10049)
	wsaeAFNoSupport  = syscall.Errno(10047)
)

// explainListen returns what is wrong with an address, and what to do, in one sentence.
func explainListen(listen, transport string, err error) error {
	is := func(errnos ...error) bool {
		return slices.ContainsFunc(errnos, func(e error) bool { return errors.Is(err, e) })
	}
	switch {
	case is(syscall.EADDRINUSE, wsaeAddrInUse):
		return fmt.Errorf("config: listen is %s: %w (%s): stop the program that has it, choose another with --listen HOST:PORT, or give port 0 for any free one", listen, ErrPortInUse, transport)
	case is(syscall.EADDRNOTAVAIL, wsaeAddrNotAvail, syscall.EAFNOSUPPORT, wsaeAFNoSupport):
		const most = 8
		own := []string{"0.0.0.0 for every interface"}
		addrs, _ := net.InterfaceAddrs() // without them the wildcard is named alone
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() && len(own) < most {
				own = append(own, n.IP.String())
			}
		}
		return invalid("listen", listen, "an address of this machine: "+strings.Join(own, ", "))
	case is(os.ErrPermission):
		return fmt.Errorf("config: listen is %s: this user may not listen on that port (%s): choose one from 1024 up, or 0 for any", listen, transport)
	}
	return fmt.Errorf("config: listen is %s: %w; choose another address with --listen HOST:PORT", listen, err)
}
