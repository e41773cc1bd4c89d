package host

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
)

// Limits of members, and of addresses that members come from: many volunteers share one NAT's address, a pair of
// stages stripes over up to 16 connections, tests run dozens of nodes on one.
const (
	connsPerIP     = 1024
	connsPerPeer   = 64
	newConnsPerS   = 50
	newConnsBurst  = 512
	streamsPerPeer = 1024
)

var loopbackUnlimited = []rate.PrefixLimit{
	{Prefix: netip.MustParsePrefix("127.0.0.0/8")},
	{Prefix: netip.MustParsePrefix("::1/128")},
}

// newResources returns libp2p's resource manager with the limits that a run needs, and those of strangers before it.
func newResources(s *strangers) (network.ResourceManager, error) {
	scaling := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&scaling)
	limits := rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{
			Conns: 4096, ConnsInbound: 4096, ConnsOutbound: 4096, FD: 2048,
			Streams: 65536, StreamsInbound: 65536, StreamsOutbound: 65536, Memory: 2 << 30,
		},
		Transient: rcmgr.ResourceLimits{
			Conns: 1024, ConnsInbound: 1024, ConnsOutbound: 1024, FD: 1024,
			Streams: 4096, StreamsInbound: 4096, StreamsOutbound: 4096, Memory: 512 << 20,
		},
		PeerDefault: rcmgr.ResourceLimits{
			Conns: connsPerPeer, ConnsInbound: connsPerPeer, ConnsOutbound: connsPerPeer, FD: connsPerPeer,
			Streams: streamsPerPeer, StreamsInbound: streamsPerPeer, StreamsOutbound: streamsPerPeer,
		},
	}.Build(scaling.AutoScale())
	perIP := rate.Limit{RPS: newConnsPerS, Burst: newConnsBurst}
	m, err := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits),
		rcmgr.WithMetricsDisabled(),
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: connsPerIP}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: connsPerIP}}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{
			NetworkPrefixLimits: loopbackUnlimited,
			SubnetRateLimiter: rate.SubnetLimiter{
				IPv4SubnetLimits: []rate.SubnetLimit{{PrefixLength: 32, Limit: perIP}},
				IPv6SubnetLimits: []rate.SubnetLimit{{PrefixLength: 56, Limit: perIP}},
				GracePeriod:      time.Minute,
			},
		}))
	if err != nil {
		return nil, fmt.Errorf("swarm: resource limits: %w", err)
	}
	return resources{m, s}, nil
}

// resources asks for a stranger's place before libp2p counts anything.
type resources struct {
	network.ResourceManager
	strangers *strangers
}

// OpenConnection takes a place for an incoming connection. Its scope gives it back.
func (r resources) OpenConnection(dir network.Direction, usefd bool, endpoint ma.Multiaddr) (network.ConnManagementScope, error) {
	c, err := r.strangers.open(dir, endpoint)
	if err != nil {
		return nil, err
	}
	if c.ConnManagementScope, err = r.ResourceManager.OpenConnection(dir, usefd, endpoint); err != nil {
		r.strangers.close(c)
		return nil, err
	}
	return c, nil
}

// OpenStream counts a stranger's streams.
func (r resources) OpenStream(p peer.ID, dir network.Direction) (network.StreamManagementScope, error) {
	if dir == network.DirInbound {
		if err := r.strangers.stream(p); err != nil {
			return nil, err
		}
	}
	return r.ResourceManager.OpenStream(p, dir)
}

// VerifySourceAddress has addresses prove themselves before they take a place, once many places are taken: a datagram's
// sender can be anybody.
func (r resources) VerifySourceAddress(addr net.Addr) bool {
	return r.strangers.doubts(addrPort(addr)) || r.ResourceManager.VerifySourceAddress(addr)
}

// SetPeer names the peer at the other end, once the handshake has proved it.
func (c *conn) SetPeer(p peer.ID) error {
	if err := c.strangers.name(c, p); err != nil {
		return err
	}
	return c.ConnManagementScope.SetPeer(p)
}

// ReserveMemory lets a member's windows grow.
func (c *conn) ReserveMemory(size int, prio uint8) error {
	if !c.strangers.mayGrow(c) {
		return errStranger
	}
	return c.ConnManagementScope.ReserveMemory(size, prio)
}

// Done gives the place back.
func (c *conn) Done() {
	c.strangers.close(c)
	c.ConnManagementScope.Done()
}
