package swarm

import (
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
)

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

// Config is all a swarm needs to know. Identity, Run, OwnerKey and Capability are required.
type Config struct {
	Identity Identity
	Run      plan.RunID
	// OwnerKey is the public key of the run's owner: what capabilities are checked with.
	OwnerKey ed25519.PublicKey
	// Owner, if not zero, lets this node make invites.
	Owner Owner
	// Capability is this node's own, as Invite.Redeem or Owner.Capability gave it.
	Capability []byte

	// Listen holds "HOST:PORT" addresses; HOST is an IP address or localhost, port 0 means
	// any. Empty means 127.0.0.1:0. UDP carries QUIC and the data plane, TCP of the same
	// number is the fallback for control traffic.
	Listen []string
	Reach  Reach
	// Bootstrap are multiaddrs with /p2p/ that are dialed, and dialed again, from the start.
	Bootstrap []string
	// MDNS looks for members of the run in the local network; without effect when only
	// loopback addresses are listened on.
	MDNS bool
	// MaxMesh is how many members are dialed to form a full mesh; 0 means 64.
	MaxMesh int

	// Admit decides, after its signatures were found good, whether a capability's peer may
	// come in. It is where one-time use is enforced: the signatures prove that the owner
	// allowed Uses peers, not which ones came first. A run with a roster binds each serial
	// to the first Uses peers in it and refuses others with ErrInviteUsed. Nil means a
	// Ledger: counted by each member alone and forgotten when it stops. Neither tells when a
	// peer redeemed its invite: unless Admit asks Redeemable of a peer that is new to it, the
	// end of an invite is enforced by Redeem, and so by honest nodes only. Admit runs on the
	// network's goroutines.
	Admit func(Capability) error

	// Socket, if not nil, is put round every UDP socket, to emulate links. The node then
	// does without TCP, which would go past them.
	Socket func(net.PacketConn) net.PacketConn

	Logger *slog.Logger

	// simulated replaces sockets; only tests in this package set it.
	simulated *simulated

	capability Capability
	bootstrap  []peer.AddrInfo
	listen     []listenAddr
}

// fill checks the configuration and completes it with defaults.
func (c *Config) fill(now time.Time) (err error) {
	if c.Identity.key == nil {
		return fmt.Errorf("swarm: config: no identity")
	}
	if err := checkRun(c.Run); err != nil {
		return fmt.Errorf("swarm: config: %w", err)
	}
	if c.capability, err = DecodeCapability(c.Capability); err != nil {
		return fmt.Errorf("swarm: config: own capability: %w", err)
	}
	if err := c.capability.Verify(c.OwnerKey, c.Run, now); err != nil {
		return fmt.Errorf("swarm: config: own capability: %w", err)
	}
	if c.capability.peer != c.Identity.id {
		return fmt.Errorf("swarm: config: %w: the capability is for peer %s, this is %s", ErrSignature, c.capability.Peer, c.Identity.Peer())
	}
	if len(c.Listen) == 0 {
		c.Listen = []string{"127.0.0.1:0"}
	}
	for _, l := range c.Listen {
		a, err := parseListen(l)
		if err != nil {
			return err
		}
		c.listen = append(c.listen, a)
	}
	if c.bootstrap, err = parseAddrs(c.Bootstrap); err != nil {
		return fmt.Errorf("swarm: config: bootstrap: %w", err)
	}
	if c.MaxMesh == 0 {
		c.MaxMesh = 64
	}
	if c.Admit == nil {
		c.Admit = NewLedger().Admit
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// local tells whether nothing but this machine can connect.
func (c *Config) local() bool {
	for _, l := range c.listen {
		if !l.ip.IsLoopback() {
			return false
		}
	}
	return true
}

// parseAddrs reads multiaddrs with /p2p/ and puts those of one peer together.
func parseAddrs(addrs []string) ([]peer.AddrInfo, error) {
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
