package listen

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Internal reports whether an interface has a name that Docker, Podman, Kubernetes, LXD, libvirt, VMware or VirtualBox give to
// networks within a machine.
func Internal(name string) bool {
	for _, prefix := range []string{
		"docker", "br-", "veth", "podman", "cni", "cbr", "flannel.", "cali", "lxcbr", "lxdbr", "virbr", "vmnet", "vboxnet",
		"vEthernet (WSL", "vEthernet (Default Switch",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// shared is the range that carriers and overlays such as Tailscale give to machines (RFC 6598). An address does not tell which of them has given it.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Local reports whether an address is of a kind that networks have for their own machines alone, and no other network leads to.
func Local(at netip.Addr) bool {
	return at.IsPrivate() || at.IsLoopback() || at.IsLinkLocalUnicast() || shared.Contains(at)
}

// LAN returns the addresses at which machines of the local networks reach this one, the likeliest first. It asks nobody.
func LAN() []netip.Addr {
	all, _ := net.Interfaces() // none, where they cannot be read
	var networks []network
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if at, err := netip.ParsePrefix(a.String()); err == nil {
				networks = append(networks, network{i.Name, at.Addr().Unmap()})
			}
		}
	}
	return lan(networks)
}

// network is an address of this machine and the name of its interface.
type network struct {
	name string
	at   netip.Addr
}

// lan returns the addresses of local networks: first those of homes and offices, then IPv6, what machines choose themselves
// where nobody gives them an address, and last what may be a carrier's network. Links of IPv6 are left out: a browser has no word for them.
func lan(networks []network) (addrs []netip.Addr) {
	rank := func(at netip.Addr) int {
		switch {
		case at.Is4() && at.IsPrivate():
			return 0
		case at.Is6():
			return 1
		case shared.Contains(at):
			return 3
		}
		return 2
	}
	for _, n := range networks {
		if !Internal(n.name) && Local(n.at) && !n.at.IsLoopback() && !(n.at.Is6() && n.at.IsLinkLocalUnicast()) {
			addrs = append(addrs, n.at)
		}
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(rank(a), rank(b)) })
	return addrs
}
