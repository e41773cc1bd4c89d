package swarm

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/announce"
	"pnode/swarm/clock"
	"pnode/swarm/host"
	"pnode/swarm/listen"
)

// Simulated stands in for sockets: see host.Simulated.
type Simulated = host.Simulated

// Config describes this node and its run. Identity, Run, OwnerKey and Capability are required.
type Config struct {
	Identity admission.Identity
	Run      plan.RunID
	// OwnerKey is the public key of the run's owner: what capabilities are checked with.
	OwnerKey ed25519.PublicKey
	// Capability is this node's own, as Invite.Redeem or Owner.Capability gave it.
	Capability []byte

	// Epoch is a number that is larger at each start of this node, by more than the messages that one start sends: theirs
	// follow it. 0 means the clock, in microseconds.
	Epoch uint64

	// Listen holds "HOST:PORT" addresses; HOST is an IP address, localhost, or nothing for every interface, port 0
	// means any. Empty means 127.0.0.1:0. UDP and TCP have the same port.
	Listen []string
	// Announce are addresses that others are told besides those that are found, or in their place.
	Announce announce.List
	Reach    host.Reach
	// RelayBytesPerS bounds what this node relays between members that cannot reach each other; 0 relays no data.
	RelayBytesPerS int64
	// Bootstrap are multiaddrs with /p2p/ that are dialed, and dialed again, from the start.
	Bootstrap []string
	// MDNS looks for members of the run in the local network; without effect when only
	// loopback addresses are listened on.
	MDNS bool
	// MaxMesh is how many members a run may have for all of them to be connected; 0 means 64. In a larger one each dials a few.
	MaxMesh int

	// Admit decides, after its signatures were found good, whether a capability's peer may come in, and
	// may ask the other members about it. It is where the uses and the end of an invite are enforced:
	// the signatures prove that an owner allowed Uses peers, not which ones came first, nor when.
	// Nil believes the signatures. It runs on the network's goroutines.
	Admit func(context.Context, admission.Capability) error
	// Offer answers newcomers that know the secret of an invite; nil answers none. See handshake.Config.
	Offer func(newcomer plan.PeerID, bearer []byte) (admission.Offer, bool)

	// Socket, if not nil, is put round every UDP socket, to emulate links. The node then
	// does without TCP, which would go past them.
	Socket func(net.PacketConn) net.PacketConn

	// Clock says what time it is: memberships end by it. Nil is this machine's own.
	Clock *clock.Clock

	Logger *slog.Logger

	// Simulated, if not nil, replaces sockets, in tests.
	Simulated *Simulated

	bootstrap []peer.AddrInfo
	listen    []netip.AddrPort
}

// fill checks the configuration and completes it with defaults.
func (c *Config) fill(now time.Time) (err error) {
	if c.Clock == nil {
		c.Clock = clock.New(nil, false)
	}
	if c.Identity.Key() == nil {
		return fmt.Errorf("swarm: config: no identity")
	}
	if err := admission.CheckRun(c.Run); err != nil {
		return fmt.Errorf("swarm: config: %w", err)
	}
	_, err = admission.Decide(admission.Question{
		Run: admission.Run{ID: c.Run, OwnerKey: c.OwnerKey}, Peer: c.Identity.ID(), Capability: c.Capability, Now: c.Clock.Earliest(),
		Admit: func(admission.Capability) error { return nil },
	})
	if err != nil {
		return fmt.Errorf("swarm: config: own capability: %w", err)
	}
	if len(c.Listen) == 0 {
		c.Listen = []string{"127.0.0.1:0"}
	}
	for _, l := range c.Listen {
		at, err := listen.Parse(l)
		if err != nil {
			return fmt.Errorf("swarm: listen address %q: %w", l, err)
		}
		c.listen = append(c.listen, at...)
	}
	if c.bootstrap, err = admission.ParseAddrs(c.Bootstrap); err != nil {
		return fmt.Errorf("swarm: config: bootstrap: %w", err)
	}
	if c.Epoch == 0 {
		c.Epoch = uint64(now.UnixMicro())
	}
	if c.MaxMesh == 0 {
		c.MaxMesh = 64
	}
	if c.Admit == nil {
		c.Admit = func(context.Context, admission.Capability) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
