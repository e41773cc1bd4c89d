package announce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxAddrs bounds the addresses of a List: others take 16 of a node, found ones included.
const maxAddrs = 8

// Transport says how an address is connected to.
type Transport string

const (
	// Both is UDP and TCP on the same port.
	Both Transport = ""
	UDP  Transport = "udp"
	TCP  Transport = "tcp"
	// HTTPS is a WebSocket over TLS, which a proxy may end.
	HTTPS Transport = "https"
)

// Addr is an address that others reach a node at.
type Addr struct {
	Transport Transport
	Host      string // an IP address or a DNS name
	Port      uint16
}

// List says what a node is to tell. The zero value adds nothing to what is found.
type List struct {
	// Addrs are told first.
	Addrs []Addr
	// Only leaves out the addresses that the node finds by itself.
	Only bool
	// Bare leaves out those of the provider's variables.
	Bare bool
}

// Parse reads items separated by commas: HOST:PORT, udp/HOST:PORT, tcp/HOST:PORT, https://HOST[:PORT], and "only" in
// front of them, or "found" alone. Empty text is the zero List. The error says what is accepted.
func Parse(text string) (List, error) {
	if text == "" {
		return List{}, nil
	}
	if text == "found" {
		return List{Bare: true}, nil
	}
	l := List{Bare: true}
	for i, item := range strings.Split(text, ",") {
		item = strings.TrimSpace(item)
		switch {
		case item == "only" && i == 0:
			l.Only = true
			continue
		case item == "only", item == "found":
			return List{}, fmt.Errorf("want %q alone or in front", item)
		}
		a, err := parseAddr(item)
		if err != nil {
			return List{}, fmt.Errorf("%q: %w", item, err)
		}
		if !slices.Contains(l.Addrs, a) {
			l.Addrs = append(l.Addrs, a)
		}
	}
	switch {
	case len(l.Addrs) == 0:
		return List{}, errors.New(`"only" wants addresses after it, such as only,203.0.113.7:4001`)
	case len(l.Addrs) > maxAddrs:
		return List{}, fmt.Errorf("%d addresses: want at most %d", len(l.Addrs), maxAddrs)
	}
	return l, nil
}

func parseAddr(item string) (Addr, error) {
	const want = "want HOST:PORT, udp/HOST:PORT, tcp/HOST:PORT or https://HOST[:PORT], such as 203.0.113.7:4001"
	a := Addr{}
	if strings.HasPrefix(item, "https://") {
		u, err := url.Parse(item)
		if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
			return a, errors.New("want https://HOST or https://HOST:PORT, without a path")
		}
		item = net.JoinHostPort(u.Hostname(), "443")
		if u.Port() != "" {
			item = u.Host
		}
		a.Transport = HTTPS
	}
	for _, t := range []Transport{UDP, TCP} {
		if rest, ok := strings.CutPrefix(item, string(t)+"/"); ok && a.Transport == Both {
			a.Transport, item = t, rest
		}
	}
	host, port, err := net.SplitHostPort(item)
	if err != nil {
		return a, errors.New(want)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return a, errors.New("want a port from 1 to 65535 after the last colon")
	}
	a.Port = uint16(number)
	a.Host, err = parseHost(host)
	return a, err
}

// parseHost accepts an IP address that others can dial, or a DNS name.
func parseHost(host string) (string, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		if ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() {
			return "", fmt.Errorf("others cannot dial %s: want the IP address or DNS name at which they reach this machine", host)
		}
		return ip.String(), nil
	}
	const maxName, maxLabel = 200, 63 // an address with its peer has to fit 256 bytes
	named := false
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		bad := strings.ContainsFunc(label, func(r rune) bool {
			letter := r == '-' || r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
			named = named || letter
			return !letter && (r < '0' || r > '9')
		})
		if bad || label == "" || len(label) > maxLabel {
			return "", errors.New("want an IP address (IPv6 in brackets) or a DNS name before the port")
		}
	}
	if !named || len(host) > maxName {
		return "", errors.New("want an IP address (IPv6 in brackets) or a DNS name before the port")
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), nil
}

// String returns the form that Parse reads.
func (a Addr) String() string {
	at := net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
	switch a.Transport {
	case Both:
		return at
	case HTTPS:
		return "https://" + at
	}
	return string(a.Transport) + "/" + at
}

// Multiaddrs returns the addresses as libp2p writes them, without the peer.
func (a Addr) Multiaddrs() []string {
	host := "/dns/" + a.Host
	if ip, err := netip.ParseAddr(a.Host); err == nil {
		host = "/ip6/" + a.Host
		if ip.Is4() {
			host = "/ip4/" + a.Host
		}
	}
	udp, tcp := fmt.Sprintf("%s/udp/%d/quic-v1", host, a.Port), fmt.Sprintf("%s/tcp/%d", host, a.Port)
	switch a.Transport {
	case UDP:
		return []string{udp}
	case TCP:
		return []string{tcp}
	case HTTPS:
		return []string{tcp + "/tls/ws"}
	}
	return []string{udp, tcp}
}

// Port returns the port that all addresses but HTTPS have in common, 0 for none.
func (l List) Port() (port uint16) {
	for _, a := range l.Addrs {
		switch {
		case a.Transport == HTTPS:
		case port != 0 && port != a.Port:
			return 0
		default:
			port = a.Port
		}
	}
	return port
}
