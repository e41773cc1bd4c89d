package admission

import (
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
	return nil
}
