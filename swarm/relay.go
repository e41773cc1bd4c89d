package swarm

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	ma "github.com/multiformats/go-multiaddr"
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

// relays gives libp2p the members to ask for a reservation, and says on the serving side
// who may have one.
type relays struct {
	door  *door
	tasks *tasks
}

var _ relay.ACLFilter = relays{}

// options are those of a node that serves as a relay, if it is public, and that looks for
// one, if it is not.
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

// source names up to n members in random order, waiting for the first. They are connected,
// so their IDs will do.
func (r relays) source(ctx context.Context, n int) <-chan peer.AddrInfo {
	out := make(chan peer.AddrInfo, n)
	if !r.tasks.enter() {
		close(out)
		return out
	}
	go func() {
		defer r.tasks.leave()
		defer close(out)
		for {
			changed := r.door.watch()
			members := r.door.members()
			if len(members) > 0 {
				rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
				for _, c := range members[:min(n, len(members))] {
					out <- peer.AddrInfo{ID: c.peer}
				}
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			case <-r.tasks.ctx.Done():
				return
			}
		}
	}()
	return out
}

// AllowReserve lets members be reached through this node.
func (r relays) AllowReserve(p peer.ID, _ ma.Multiaddr) bool {
	ctx, cancel := context.WithTimeout(r.tasks.ctx, admissionTime)
	defer cancel()
	return r.door.wait(ctx, p) == nil
}

// AllowConnect relays between members.
func (r relays) AllowConnect(src peer.ID, _ ma.Multiaddr, dest peer.ID) bool {
	return r.AllowReserve(src, nil) && r.door.isMember(dest)
}
