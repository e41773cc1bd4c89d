package host

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/swarm/announce"
	"pnode/swarm/listen"
)

const (
	// maxOwnAddrs bounds the addresses that a node tells of itself: others keep as many of one.
	maxOwnAddrs = 16
	// sameSubnet bounds those of one IPv6 subnet: an interface has a new temporary one every day beside the old ones.
	sameSubnet = 2
	// bridgesFor is how long the interfaces of containers are remembered.
	bridgesFor = 2 * time.Second
)

// ownAddrs decides which addresses of this node others are told.
type ownAddrs struct {
	announced []ma.Multiaddr
	only      bool
	// mu guards bridges, the addresses of interfaces that lead to containers of this machine alone, and when they were read,
	// and relayed, this node's addresses through relays.
	mu        sync.Mutex
	relayed   []ma.Multiaddr
	bridges   map[netip.Addr]bool
	bridgesAt time.Time
}

func newOwnAddrs(l announce.List) (*ownAddrs, error) {
	o := &ownAddrs{only: l.Only}
	for _, a := range l.Addrs {
		for _, text := range a.Multiaddrs() {
			addr, err := ma.NewMultiaddr(text)
			if err != nil {
				return nil, fmt.Errorf("swarm: announce %s: %w", a, err)
			}
			o.announced = append(o.announced, addr)
		}
	}
	return o, nil
}

// Announced reports whether the user or the provider gave an address.
func (h *Host) Announced(a ma.Multiaddr) bool { return slices.ContainsFunc(h.own.announced, a.Equal) }

// Addrs returns the addresses that others are told, the likeliest to be reached from elsewhere first: announced ones,
// public ones, private ones, relays', loopback.
func (h *Host) Addrs() []ma.Multiaddr { return h.own.choose(h.Host.Addrs()) }

// choose returns the addresses to tell of those that are found. It is libp2p's AddrsFactory, and what it returned may come
// again.
func (o *ownAddrs) choose(found []ma.Multiaddr) []ma.Multiaddr {
	if o.only {
		return o.announced
	}
	bridges := o.readBridges()
	var local []ma.Multiaddr
	subnets := map[string]int{}
	chosen := slices.Clone(o.announced)
	found = append(slices.Clone(found), o.throughRelays()...)
	slices.SortStableFunc(found, func(a, b ma.Multiaddr) int { return rankOf(a) - rankOf(b) })
	for _, a := range found {
		at := remote(a)
		switch ip := at.Addr(); {
		case slices.ContainsFunc(chosen, a.Equal), ip.IsLinkLocalUnicast():
		case ip.IsValid() && bridges[ip.WithZone("")]:
			local = append(local, a)
		case ip.Is6() && !ip.IsLoopback():
			prefix, _ := ip.Prefix(64)
			key := prefix.String() + a.Protocols()[1].Name
			if subnets[key]++; subnets[key] <= sameSubnet {
				chosen = append(chosen, a)
			}
		default:
			chosen = append(chosen, a)
		}
	}
	if !slices.ContainsFunc(chosen, func(a ma.Multiaddr) bool { return !manet.IsIPLoopback(a) }) {
		chosen = append(local, chosen...) // a machine that has nothing else
	}
	return chosen[:min(len(chosen), maxOwnAddrs)]
}

// reachedThrough has others told these addresses through relays from now on.
func (o *ownAddrs) reachedThrough(relayed []ma.Multiaddr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.relayed = slices.Clone(relayed)
}

func (o *ownAddrs) throughRelays() []ma.Multiaddr {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.relayed
}

// rankOf sorts addresses that are found.
func rankOf(a ma.Multiaddr) int {
	_, relayed := a.ValueForProtocol(ma.P_CIRCUIT)
	switch {
	case relayed == nil:
		return 2
	case manet.IsIPLoopback(a):
		return 3
	case manet.IsPublicAddr(a):
		return 0
	}
	return 1
}

// readBridges returns the addresses of this machine on networks that its containers and virtual machines have for
// themselves. Other machines that dial one reach their own.
func (o *ownAddrs) readBridges() map[netip.Addr]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); o.bridges == nil || now.Sub(o.bridgesAt) >= bridgesFor {
		o.bridges, o.bridgesAt = map[netip.Addr]bool{}, now
		all, _ := net.Interfaces() // without them all addresses are told
		for _, i := range all {
			if !listen.Internal(i.Name) {
				continue
			}
			addrs, _ := i.Addrs()
			for _, a := range addrs {
				if n, ok := a.(*net.IPNet); ok {
					ip, _ := netip.AddrFromSlice(n.IP)
					o.bridges[ip.Unmap()] = true
				}
			}
		}
	}
	return o.bridges
}
