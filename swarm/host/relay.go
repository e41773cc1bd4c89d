package host

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/admission"
	"pnode/swarm/tasks"
)

// Members relay control traffic for members that cannot be dialed. Bulk never goes that
// way: the data plane needs a UDP path.
const (
	relayedBytes     = 64 << 20
	relayedTime      = time.Hour
	relayRetry       = 30 * time.Second
	relaySearch      = 5 * time.Second
	relaysWanted     = 2
	reservationsByIP = 64
)

// relays gives libp2p the members to ask for a reservation, and decides on the serving side who may have one.
type relays struct {
	peers *admission.Peers
	tasks *tasks.Group
}

var _ relay.ACLFilter = relays{}

// options returns the options of a node that serves as a relay, if it is public, and that looks for relays, if
// it is not.
func (r relays) options(reach Reach) []libp2p.Option {
	resources := relay.DefaultResources()
	resources.Limit = &relay.RelayLimit{Duration: relayedTime, Data: relayedBytes}
	resources.MaxReservationsPerIP = reservationsByIP
	opts := []libp2p.Option{
		libp2p.EnableRelay(),
		libp2p.EnableHolePunching(),
		libp2p.EnableRelayService(relay.WithResources(resources), relay.WithACL(r)),
	}
	if reach == ReachPublic {
		return opts
	}
	return append(opts, libp2p.EnableAutoRelayWithPeerSource(r.source,
		autorelay.WithBackoff(relayRetry), autorelay.WithMinInterval(relaySearch),
		autorelay.WithNumRelays(relaysWanted), autorelay.WithBootDelay(0)))
}

// source sends up to n members in random order, waiting for the first. They are connected, so that their IDs
// are enough.
func (r relays) source(ctx context.Context, n int) <-chan peer.AddrInfo {
	out := make(chan peer.AddrInfo, n)
	begun := r.tasks.Run(func(swarm context.Context) {
		defer close(out)
		for {
			changed := r.peers.Changed()
			members := r.peers.Members()
			if len(members) > 0 {
				rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
				for _, c := range members[:min(n, len(members))] {
					out <- peer.AddrInfo{ID: c.ID()}
				}
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			case <-swarm.Done():
				return
			}
		}
	})
	if !begun {
		close(out)
	}
	return out
}

// AllowReserve reports whether a peer may be reached through this node: a member may.
func (r relays) AllowReserve(p peer.ID, _ ma.Multiaddr) bool {
	ctx, cancel := context.WithTimeout(r.tasks.Context, admission.TimeLimit)
	defer cancel()
	return r.peers.Wait(ctx, p) == nil
}

// AllowConnect reports whether one peer may reach another through this node: a member may reach a member.
func (r relays) AllowConnect(src peer.ID, _ ma.Multiaddr, dest peer.ID) bool {
	return r.AllowReserve(src, nil) && r.peers.Member(dest)
}
