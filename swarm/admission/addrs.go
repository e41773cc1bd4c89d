package admission

import (
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// maxAddrBytes bounds one address, as text or encoded.
const maxAddrBytes = 256

// ParseAddrs reads multiaddrs that end in /p2p/PEER and groups them by peer.
func ParseAddrs(addrs []string) ([]peer.AddrInfo, error) {
	parsed := make([]ma.Multiaddr, 0, len(addrs))
	for _, s := range addrs {
		if err := checkAddr(s); err != nil {
			return nil, err
		}
		parsed = append(parsed, ma.StringCast(s))
	}
	infos, err := peer.AddrInfosFromP2pAddrs(parsed...)
	if err != nil {
		return nil, malformed("%v", err)
	}
	return infos, nil
}

// Acceptable returns those of a peer's addresses that messages carry and that ParseAddrs reads with the peer at the end.
// Others would keep the nodes that hear of them from reading what they were told, or what they kept of it.
func Acceptable(p peer.ID, addrs []ma.Multiaddr) (out []ma.Multiaddr) {
	for _, a := range addrs {
		read, err := ParseAddrs([]string{a.String() + "/p2p/" + p.String()})
		if err == nil && read[0].ID == p && slices.EqualFunc(read[0].Addrs, []ma.Multiaddr{a}, ma.Multiaddr.Equal) {
			out = append(out, a)
		}
	}
	return out
}

// checkAddr accepts a multiaddr that names its peer.
func checkAddr(s string) error {
	if len(s) > maxAddrBytes {
		return malformed("address of %d bytes, at most %d are accepted", len(s), maxAddrBytes)
	}
	a, err := ma.NewMultiaddr(s)
	if err != nil {
		return malformed("address %q: %v", s, err)
	}
	if _, err := a.ValueForProtocol(ma.P_P2P); err != nil {
		return malformed("address %q lacks the peer: want .../p2p/PEER at the end", s)
	}
	return checkNames(a)
}

// checkNames accepts an address whose DNS names hold letters, digits, dots, hyphens and underscores alone, and nothing
// that a terminal obeys elsewhere: people read what others say that their address is, and resolvers and proxies do.
func checkNames(a ma.Multiaddr) error {
	for _, c := range a {
		switch c.Protocol().Code {
		case ma.P_DNS, ma.P_DNS4, ma.P_DNS6, ma.P_DNSADDR, ma.P_SNI:
			wrong := func(r rune) bool {
				return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-", r))
			}
			if strings.ContainsFunc(c.Value(), wrong) {
				return malformed("name %q of an address: want letters, digits, dots, hyphens and underscores", c.Value())
			}
		default:
			if strings.ContainsFunc(c.Value(), func(r rune) bool { return r <= ' ' || r > '~' }) {
				return malformed("%s %q of an address: want printable ASCII", c.Protocol().Name, c.Value())
			}
		}
	}
	return nil
}
