package pairing

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corehost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	"github.com/libp2p/zeroconf/v2"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// serviceName is what nodes announce that answer newcomers, and domain where.
	serviceName = "_pnode-lan._udp"
	domain      = "local"
	// addrPrefix begins the records that hold an address, as libp2p's specification of mDNS says.
	addrPrefix = "dnsaddr="
	// maxFound bounds the nodes that a search returns, maxAddrs the addresses of each.
	maxFound = 16
	maxAddrs = 16
	// searchTime bounds a search, settleTime how long others are waited for once there is one.
	searchTime = 8 * time.Second
	settleTime = time.Second
	// askEvery is the time between two questions to all: wireless networks lose such packets, and nobody sends them again.
	askEvery = 2 * time.Second
)

// Announce tells the local network where this node is, and no more, until Close.
func Announce(h corehost.Host) (io.Closer, error) {
	service := mdns.NewMdnsService(h, serviceName, deaf{})
	if err := service.Start(); err != nil {
		return nil, fmt.Errorf("swarm: announce in the local network: %w", err)
	}
	return service, nil
}

// deaf has no use for others that announce themselves.
type deaf struct{}

// HandlePeerFound is called by mDNS.
func (deaf) HandlePeerFound(peer.AddrInfo) {}

// Find calls found for each node that announces itself in the local network, once, until ctx ends. What it finds is proved by nothing yet. Only
// addresses of the local network are taken.
func Find(ctx context.Context, local func(netip.Addr) bool, found func(peer.AddrInfo)) error {
	known := map[peer.ID]bool{}
	for {
		err := findOnce(ctx, func(records []string) {
			for _, at := range announced(records, local) {
				if !known[at.ID] && len(known) < maxFound {
					known[at.ID] = true
					found(at)
				}
			}
		})
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// findOnce asks once, and calls found with the records of each that answers within askEvery.
func findOnce(ctx context.Context, found func(records []string)) error {
	ctx, end := context.WithTimeout(ctx, askEvery)
	defer end()
	entries, failed := make(chan *zeroconf.ServiceEntry, maxFound), make(chan error, 1)
	go func() { failed <- zeroconf.Browse(ctx, serviceName, domain, entries) }()
	for {
		select {
		case e, more := <-entries: // closed at the end of a search that began
			if !more {
				entries = nil
				continue
			}
			found(e.Text)
		case err := <-failed:
			if err != nil {
				err = fmt.Errorf("swarm: search the local network: %w", err)
			}
			return err
		}
	}
}

// Search returns the runs that nodes offer in the local network, by their own word. It takes searchTime, or settleTime after the first one. The error
// is why there is none.
func Search(ctx context.Context, h corehost.Host, local func(netip.Addr) bool) ([]Run, error) {
	ctx, end := context.WithTimeout(ctx, searchTime)
	defer end()
	var asking sync.WaitGroup
	var mu sync.Mutex // guards runs
	var runs []Run
	err := Find(ctx, local, func(at peer.AddrInfo) {
		asking.Go(func() {
			run, err := Who(ctx, h, at)
			if err != nil {
				return // it is no node of pnode, or does not answer newcomers
			}
			mu.Lock()
			defer mu.Unlock()
			if runs = append(runs, run); len(runs) == 1 {
				time.AfterFunc(settleTime, end)
			}
		})
	})
	asking.Wait()
	if len(runs) > 0 {
		err = nil
	}
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.ID), string(b.ID)), strings.Compare(string(a.At.ID), string(b.At.ID)))
	})
	return runs, err
}

// announced returns the nodes in an announcement's records, at addresses of the local network.
func announced(records []string, local func(netip.Addr) bool) []peer.AddrInfo {
	var addrs []ma.Multiaddr
	for _, r := range records[:min(len(records), maxAddrs)] {
		text, ok := strings.CutPrefix(r, addrPrefix)
		if !ok {
			continue
		}
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			continue
		}
		ip, err := manet.ToIP(a)
		if err != nil {
			continue
		}
		if _, relayed := a.ValueForProtocol(ma.P_CIRCUIT); relayed == nil {
			continue
		}
		if at, ok := netip.AddrFromSlice(ip); ok && local(at.Unmap()) {
			addrs = append(addrs, a)
		}
	}
	infos, err := peer.AddrInfosFromP2pAddrs(addrs...)
	if err != nil {
		return nil
	}
	return infos
}

// Local reports whether an address is in a network to which this machine is attached.
func Local(at netip.Addr) bool {
	addrs, _ := net.InterfaceAddrs() // none, where they cannot be read
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		own, err := netip.ParsePrefix(a.String())
		return err == nil && own.Contains(at.WithZone(""))
	})
}
