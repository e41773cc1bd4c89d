package places

import (
	"net/netip"
	"slices"
	"strings"
)

// Networks returns the public networks that a member's addresses, which are multiaddresses, say it is in: what Block counts
// as one address. An address of a relay says nothing about who is reached through it.
func Networks(addrs []string) (all []string) {
	for _, text := range addrs {
		parts := strings.Split(text, "/")
		if len(parts) < 3 || slices.Contains(parts, "p2p-circuit") || parts[1] != "ip4" && parts[1] != "ip6" {
			continue
		}
		if at, err := netip.ParseAddr(parts[2]); err == nil && public(at.Unmap()) {
			all = append(all, Block(at).String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// carrier is the range in which providers translate addresses (RFC 6598).
var carrier = netip.MustParsePrefix("100.64.0.0/10")

func public(at netip.Addr) bool {
	return at.IsGlobalUnicast() && !at.IsPrivate() && !carrier.Contains(at)
}
