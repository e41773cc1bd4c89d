package swarm

import (
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p"
	coreconn "github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
	"go.uber.org/fx"
)

const (
	userAgent = "pnode/1"
	// Connections above the high mark are closed down to the low one, members never.
	connsLow, connsHigh = 192, 256
	// Limits per address and peer: many volunteers share one NAT's address, a pair of
	// stages stripes over up to 16 connections, tests run dozens of nodes on one.
	connsPerIP     = 1024
	connsPerPeer   = 64
	newConnsPerS   = 50
	newConnsBurst  = 512
	streamsPerPeer = 1024
)

// simulated stands in for sockets in tests: an option that builds the QUIC connection
// manager on a simulated net, and the addresses to listen on.
type simulated struct {
	quic   libp2p.Option
	listen []ma.Multiaddr
}

// newHost starts the libp2p host of a member. Lent UDP sockets are added to out.
func newHost(cfg *Config, gate coreconn.ConnectionGater, r relays) (*hosted, error) {
	out := &hosted{}
	opts, err := commonOptions(cfg.Identity)
	if err != nil {
		return nil, err
	}
	manager, err := connmgr.NewConnManager(connsLow, connsHigh, connmgr.WithGracePeriod(20*time.Second))
	if err != nil {
		return nil, fmt.Errorf("swarm: connection manager: %w", err)
	}
	opts = append(opts,
		libp2p.ConnectionManager(manager),
		libp2p.ConnectionGater(gate),
		libp2p.WithFxOption(fx.Populate(&out.quic)),
	)
	if cfg.simulated != nil {
		opts = append(opts, cfg.simulated.quic, libp2p.ListenAddrs(cfg.simulated.listen...),
			libp2p.DisableIdentifyAddressDiscovery())
	} else {
		more, err := out.sockets(cfg)
		if err != nil {
			return nil, err
		}
		opts = append(append(opts, more...), reachOptions(cfg, r)...)
	}
	if out.Host, err = libp2p.New(opts...); err != nil {
		out.closeLent(false)
		return nil, fmt.Errorf("swarm: start host: %w", err)
	}
	return out, nil
}

// hosted is a running host with what it was built from.
type hosted struct {
	host.Host
	quic *quicreuse.ConnManager
	lent []*lentTransport
}

// sockets makes the options that listen on addrs: UDP sockets of our own where libp2p can
// borrow them, addresses for it to open elsewhere.
func (h *hosted) sockets(cfg *Config) ([]libp2p.Option, error) {
	if err := checkPorts(cfg.listen); err != nil {
		return nil, err
	}
	var opts []libp2p.Option
	var listen []ma.Multiaddr
	for _, l := range cfg.listen {
		port := l.port
		if l.ip.IsUnspecified() {
			t, err := openLent(l, cfg.Socket)
			if err != nil {
				h.closeLent(false)
				return nil, err
			}
			h.lent = append(h.lent, t)
			port = t.port()
			opts = append(opts, libp2p.WithFxOption(fx.Invoke(t.lend)))
		}
		listen = append(listen, l.multiaddr("udp", port, "/quic-v1"))
		if cfg.Socket == nil {
			listen = append(listen, l.multiaddr("tcp", l.port, ""))
		}
	}
	opts = append(opts, libp2p.ListenAddrs(listen...))
	if cfg.Socket != nil {
		return append(opts, wrappedSockets(cfg.Socket)), nil
	}
	// The fallback where UDP does not get through.
	return append(opts, libp2p.Transport(tcp.NewTCPTransport)), nil
}

// close ends the host, then the sockets it had borrowed.
func (h *hosted) close() error {
	err := h.Host.Close()
	h.closeLent(true)
	return err
}

func (h *hosted) closeLent(borrowed bool) {
	for _, t := range h.lent {
		t.close(borrowed)
	}
}

// commonOptions are those on every net, a simulated one too.
func commonOptions(id Identity) ([]libp2p.Option, error) {
	resources, err := newResources()
	if err != nil {
		return nil, err
	}
	return []libp2p.Option{
		libp2p.Identity(id.key),
		libp2p.UserAgent(userAgent),
		libp2p.DefaultSecurity,
		libp2p.DefaultMuxers,
		libp2p.Transport(libp2pquic.NewTransport),
		libp2p.ResourceManager(resources),
		libp2p.DisableMetrics(),
		libp2p.Ping(false), // members measure round trips over a probe; nobody else may
	}, nil
}

// newResources is libp2p's resource manager with the limits a run needs.
func newResources() (network.ResourceManager, error) {
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
	return m, nil
}

// reachOptions are for getting through NATs. On loopback there are none.
func reachOptions(cfg *Config, r relays) []libp2p.Option {
	if cfg.local() {
		return []libp2p.Option{libp2p.DisableIdentifyAddressDiscovery(), libp2p.DisableRelay()}
	}
	opts := append(r.options(cfg.Reach),
		libp2p.NATPortMap(),
		libp2p.EnableAutoNATv2(),
		libp2p.EnableNATService(),
	)
	switch cfg.Reach {
	case ReachPublic:
		opts = append(opts, libp2p.ForceReachabilityPublic())
	case ReachPrivate:
		opts = append(opts, libp2p.ForceReachabilityPrivate())
	}
	return opts
}
