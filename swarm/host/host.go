package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	ma "github.com/multiformats/go-multiaddr"
	"go.uber.org/fx"

	"pnode/swarm/admission"
	"pnode/swarm/announce"
	"pnode/swarm/cert"
	"pnode/swarm/listen"
	"pnode/swarm/tasks"
	"pnode/swarm/tcp"
	"pnode/swarm/traffic"
	"pnode/swarm/transport"
)

const (
	userAgent = "pnode/1"
	// Connections above the high mark are closed down to the low one, members never.
	connsLow, connsHigh = 192, 256
)

// Config describes a host.
type Config struct {
	Identity admission.Identity
	// Listen holds the addresses to listen on, with UDP for QUIC and TCP of the same number.
	Listen []netip.AddrPort
	// Announce are addresses that others are told besides those that are found, or in their place.
	Announce announce.List
	Reach    Reach
	// Socket, if not nil, wraps every UDP socket. The host then does without TCP.
	Socket func(net.PacketConn) net.PacketConn
	// Simulated, if not nil, stands in for sockets.
	Simulated *Simulated
	// Peers decides who may use this host as a relay, who may be dialed, and who costs no more than a stranger may.
	Peers *admission.Peers
	// Known holds those for whom places are kept before they are admitted; nil for nobody.
	Known Known
	Tasks *tasks.Group
	Log   *slog.Logger
	// Reached, if not nil, is called once, when a member has shown that it can dial this node.
	Reached func()
}

// Local reports whether nothing but this machine can connect: it listens on loopback, and names no address where something
// else hands connections on.
func (c Config) Local() bool {
	return len(c.Announce.Addrs) == 0 && !slices.ContainsFunc(c.Listen, func(at netip.AddrPort) bool { return !at.Addr().IsLoopback() })
}

// Reach says how other nodes get to this one.
type Reach int

const (
	// ReachAuto finds out with other members' help (AutoNAT).
	ReachAuto Reach = iota
	// ReachPublic: reachable on the listen addresses; serves as relay for other members.
	ReachPublic
	// ReachPrivate: behind a NAT; asks public members for a relay reservation.
	ReachPrivate
)

// Simulated replaces sockets in tests: an option that builds the QUIC connection manager on a simulated
// network, and the addresses to listen on.
type Simulated struct {
	QUIC   libp2p.Option
	Listen []ma.Multiaddr
	// Direct, if not nil, makes connections in place of QUIC. libp2p's own are made by Transport then, a constructor as
	// libp2p.Transport takes it.
	Direct    Direct
	Transport any
	// NATs says that there are some: the host relays, reserves and punches holes as on real networks.
	NATs bool
	// Closed reports whether the machine at an address says that nobody listens there; nil says nothing.
	Closed func(at netip.AddrPort) bool
}

// Direct makes connections of ALPNs at a simulated host's address, without packets. Both ends know each other's peer ID.
type Direct interface {
	// Listen takes connections of an ALPN, once at a time.
	Listen(alpn string, self peer.ID) (Listener, error)
	// Dial connects to whoever listens at an address, and returns who that is.
	Dial(ctx context.Context, alpn string, self peer.ID, at ma.Multiaddr) (transport.Conn, peer.ID, error)
}

// Listener accepts connections until it is closed. Its error without a connection is its end.
type Listener interface {
	Accept(context.Context) (transport.Conn, peer.ID, error)
	Close() error
}

// Host is a running libp2p host with the QUIC connection manager that it was built with.
type Host struct {
	host.Host
	// QUIC is nil where Simulated.Direct makes connections.
	QUIC *quicreuse.ConnManager
	// TCP is nil where the host does without TCP.
	TCP *tcp.Ports
	// Simulated is nil on real networks.
	Simulated *Simulated
	// Traffic counts what goes over streams.
	Traffic   traffic.Meter
	shared    []*sharedSocket
	strangers *strangers
	own       *ownAddrs
	circuits  *relay.Relay // nil for a host that relays for nobody
	puncher   *puncher     // nil where there are no NATs
	reached   func()       // called once
}

// New starts a host that listens on all the addresses.
func New(cfg Config) (*Host, error) {
	smallWindows()
	h := &Host{Simulated: cfg.Simulated, strangers: newStrangers(cfg.Peers, cfg.Known), reached: func() {}}
	if cfg.Reached != nil && cfg.Reach != ReachPrivate {
		h.reached = sync.OnceFunc(cfg.Reached)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	opts, err := h.options(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Simulated == nil {
		// libp2p does not find out that a port is in use: it is content when one of its addresses works, and shares a
		// TCP port with any process that allows it.
		free, err := listen.Free(cfg.Listen)
		if err != nil {
			return nil, fmt.Errorf("swarm: listen on %v: %w", cfg.Listen, err)
		}
		cfg.Listen = free
	}
	addresses, want, err := h.listenOn(cfg)
	if err != nil {
		return nil, err
	}
	if h.Host, err = libp2p.New(append(opts, addresses...)...); err != nil {
		h.closeShared(false)
		return nil, fmt.Errorf("swarm: start host: %w", err)
	}
	h.strangers.watch(cfg.Tasks, h.Host)
	if err := h.traverse(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("swarm: relays: %w", err), h.Close())
	}
	// libp2p is content with some of the addresses.
	have := h.Network().ListenAddresses()
	direct := slices.DeleteFunc(slices.Clone(have), func(a ma.Multiaddr) bool {
		_, err := a.ValueForProtocol(ma.P_CIRCUIT)
		return err == nil
	})
	if len(direct) < want {
		return nil, errors.Join(fmt.Errorf("swarm: listen on %v: only %v could be opened; is another program using the port?", cfg.Listen, have), h.Close())
	}
	return h, nil
}

// options returns what the host is made of, but for its addresses.
func (h *Host) options(cfg Config) ([]libp2p.Option, error) {
	resources, err := newResources(h.strangers)
	if err != nil {
		return nil, err
	}
	manager, err := connmgr.NewConnManager(connsLow, connsHigh, connmgr.WithGracePeriod(20*time.Second))
	if err != nil {
		return nil, fmt.Errorf("swarm: connection manager: %w", err)
	}
	if h.own, err = newOwnAddrs(cfg.Announce); err != nil {
		return nil, err
	}
	opts := []libp2p.Option{
		libp2p.Identity(cfg.Identity.Key()),
		libp2p.AddrsFactory(h.own.choose),
		libp2p.UserAgent(userAgent),
		libp2p.Security(libp2ptls.ID, cert.NewTLS),
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, muxer{cfg.Peers}),
		libp2p.ResourceManager(resources),
		libp2p.DisableMetrics(),
		libp2p.BandwidthReporter(&h.Traffic),
		libp2p.Ping(false), // members measure round trips with a probe; nobody else may
		libp2p.ConnectionManager(manager),
		libp2p.ConnectionGater(gater{cfg.Peers, cfg.Known}),
		libp2p.WithFxOption(fx.Supply([]upgrader.Option{upgrader.WithAcceptTimeout(upgradeTime)})),
	}
	if cfg.Simulated != nil && cfg.Simulated.Direct != nil {
		opts = append(opts, libp2p.Transport(cfg.Simulated.Transport))
	} else {
		opts = append(opts, libp2p.Transport(libp2pquic.NewTransport, cert.QUIC()), libp2p.WithFxOption(fx.Populate(&h.QUIC)))
	}
	return opts, nil
}

// listenOn returns the options by which the host listens, and how many addresses that has to come to.
func (h *Host) listenOn(cfg Config) (opts []libp2p.Option, want int, err error) {
	if cfg.Simulated != nil {
		if cfg.Simulated.QUIC != nil {
			opts = append(opts, cfg.Simulated.QUIC)
		}
		return append(opts, libp2p.ListenAddrs(cfg.Simulated.Listen...), libp2p.DisableIdentifyAddressDiscovery()), len(cfg.Simulated.Listen), nil
	}
	if want = 2 * len(cfg.Listen); cfg.Socket != nil {
		want = len(cfg.Listen)
	}
	if opts, err = h.sockets(cfg); err != nil {
		return nil, 0, err
	}
	return append(opts, reachOptions(cfg)...), want, nil
}

// sockets returns the options that listen on the addresses: with UDP sockets of our own where libp2p can borrow
// them, elsewhere with addresses for it to open.
func (h *Host) sockets(cfg Config) ([]libp2p.Option, error) {
	var opts []libp2p.Option
	var addrs []string
	for _, at := range cfg.Listen {
		port := at.Port()
		if at.Addr().IsUnspecified() {
			t, err := openShared(at, cfg.Socket, h.strangers)
			if err != nil {
				h.closeShared(false)
				return nil, err
			}
			h.shared = append(h.shared, t)
			opts = append(opts, libp2p.WithFxOption(fx.Invoke(t.lend)))
		}
		ip := "/ip6/" + at.Addr().String()
		if at.Addr().Is4() {
			ip = "/ip4/" + at.Addr().String()
		}
		addrs = append(addrs, fmt.Sprintf("%s/udp/%d/quic-v1", ip, port))
		if cfg.Socket == nil {
			addrs = append(addrs, fmt.Sprintf("%s/tcp/%d", ip, port))
		}
	}
	opts = append(opts, libp2p.ListenAddrStrings(addrs...))
	if cfg.Socket != nil {
		return append(opts, wrappedSockets(cfg.Socket)), nil
	}
	t, err := tcp.New(cfg.Identity.Key(), cfg.Tasks) // where UDP does not get through
	if err != nil {
		h.closeShared(false)
		return nil, err
	}
	h.TCP = t
	return append(opts, libp2p.Transport(h.TCP.Transport)), nil
}

// traverse starts what gets this node's members through NATs, in both directions: relaying for others, reservations with
// members that relay, and hole punching.
func (h *Host) traverse(cfg Config) (err error) {
	if cfg.Simulated == nil && cfg.Local() || cfg.Simulated != nil && !cfg.Simulated.NATs {
		return nil
	}
	if cfg.Reach != ReachPrivate {
		if h.circuits, err = (circuits{cfg.Peers, cfg.Tasks}).serve(h.Host); err != nil {
			return err
		}
	}
	if cfg.Reach == ReachPublic {
		h.reached()
	} else {
		cfg.Tasks.Run(newReserver(h.Host, h.own, cfg.Peers, cfg.Log).run)
	}
	identified, ok := h.Host.(interface{ IDService() identify.IDService })
	if !ok {
		return nil
	}
	h.puncher = &puncher{
		host: h.Host, ids: identified.IDService(), peers: cfg.Peers, log: cfg.Log,
		seen: map[sighting]ma.Multiaddr{}, since: map[peer.ID]time.Time{},
	}
	h.puncher.watch()
	cfg.Tasks.Run(h.puncher.run)
	return nil
}

// Admitted ends the limits of a stranger for a peer that has become a member.
func (h *Host) Admitted(p peer.ID) {
	h.strangers.admitted(p)
	if h.dialedBy(p) {
		h.reached()
	}
}

// dialedBy reports whether a peer has dialed this node, not through a relay, nor through a hole that both punched.
func (h *Host) dialedBy(p peer.ID) (inbound bool) {
	for _, c := range h.Network().ConnsToPeer(p) {
		if circuit(c.RemoteMultiaddr()) {
			return false
		}
		inbound = inbound || c.Stat().Direction == network.DirInbound
	}
	return inbound
}

// Direct reports whether a peer is connected without a relay.
func (h *Host) Direct(p peer.ID) bool {
	return slices.ContainsFunc(h.Network().ConnsToPeer(p), func(c network.Conn) bool { return !circuit(c.RemoteMultiaddr()) })
}

// PunchedTCP reports whether a peer is connected through a hole over TCP, or over TCP where a relay was needed at first.
func (h *Host) PunchedTCP(p peer.ID) bool { return h.puncher != nil && h.puncher.overTCP(p) }

// Close ends the host, then the sockets that it had borrowed.
func (h *Host) Close() error {
	var err error
	if h.circuits != nil {
		err = h.circuits.Close()
	}
	err = errors.Join(err, h.Host.Close())
	h.closeShared(true)
	return err
}

// closeShared closes the sockets of our own; borrowed ones when libp2p is done with them.
func (h *Host) closeShared(borrowed bool) {
	for _, t := range h.shared {
		if borrowed && t.returned != nil {
			<-t.returned
		}
		t.quic.Close()
		t.conn.Close()
	}
}

// reachOptions returns the options for getting through NATs. On loopback there are none.
func reachOptions(cfg Config) []libp2p.Option {
	if cfg.Local() {
		return []libp2p.Option{libp2p.DisableIdentifyAddressDiscovery(), libp2p.DisableRelay()}
	}
	opts := []libp2p.Option{
		libp2p.EnableRelay(),
		libp2p.NATManager(newPortMapper),
		libp2p.EnableAutoNATv2(),
		libp2p.EnableNATService(),
	}
	switch cfg.Reach {
	case ReachPublic:
		opts = append(opts, libp2p.ForceReachabilityPublic())
	case ReachPrivate:
		opts = append(opts, libp2p.ForceReachabilityPrivate())
	}
	return opts
}
