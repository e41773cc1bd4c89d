package topics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// repairEvery is the time between two looks for members that GossipSub has lost.
const repairEvery = 2 * time.Second

// subscriptions remembers to which of the run's topics peers have said that they subscribe, and adds it to whatever they send.
// GossipSub learns it from the first message of a stream, and forgets it when any stream of the peer ends: where one
// connection takes another's place, the end of the old one may be noticed after the first message over the new one. Its
// methods run on GossipSub's own goroutine.
type subscriptions map[string]map[peer.ID]*pb.RPC_SubOpts

// subscriptionsTo returns what nobody has said yet of some topics.
func subscriptionsTo(names []string) subscriptions {
	s := subscriptions{}
	for _, name := range names {
		s[name] = map[peer.ID]*pb.RPC_SubOpts{}
	}
	return s
}

// restate notes the subscriptions in what a member sends, or adds those that it has.
func (s subscriptions) restate(from peer.ID, rpc *pubsub.RPC) error {
	if len(rpc.Subscriptions) == 0 {
		for _, peers := range s {
			if o := peers[from]; o != nil {
				rpc.Subscriptions = append(rpc.Subscriptions, o)
			}
		}
		return nil
	}
	for _, o := range rpc.Subscriptions {
		if peers := s[o.GetTopicid()]; peers != nil && o.GetSubscribe() {
			peers[from] = o
		} else {
			delete(peers, from)
		}
	}
	return nil
}

// repair looks every repairEvery for connected members that messages do not go to, until ctx ends. GossipSub opens a broken
// stream four times in ten minutes, and then no more; here it is asked to do so again. Where that does not help, all streams
// of gossip with the member are ended, so that both ends begin anew.
func (g *Topics) repair(ctx context.Context) {
	tick := time.NewTicker(repairEvery)
	defer tick.Stop()
	missed := map[peer.ID]int{} // at how many looks, one after the other
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		lost := g.lost()
		maps.DeleteFunc(missed, func(p peer.ID, _ int) bool { return !slices.Contains(lost, p) })
		for _, p := range lost {
			missed[p]++
			if n := missed[p]; n > 1 && n&(n-1) == 0 { // after 2, 4, 8, ... looks
				g.Log.Info("swarm: gossip begins anew with a member", "peer", p, "lost_for", time.Duration(n)*repairEvery)
				g.endStreams(p)
			}
			g.Admitted(p)
		}
	}
}

// lost returns the connected members to whom the messages of a topic do not go.
func (g *Topics) lost() (lost []peer.ID) {
	reached := map[peer.ID]int{} // by so many topics
	for _, t := range g.topics {
		for _, p := range t.ListPeers() {
			reached[p]++
		}
	}
	net := g.host.Network()
	for _, p := range net.Peers() {
		if !g.Peers.Member(p) || net.Connectedness(p) != network.Connected {
			continue
		}
		if reached[p] < len(g.topics) {
			lost = append(lost, p)
		}
	}
	return lost
}

// endStreams ends all streams of gossip with a peer.
func (g *Topics) endStreams(p peer.ID) {
	for _, c := range g.host.Network().ConnsToPeer(p) {
		for _, s := range c.GetStreams() {
			if strings.HasPrefix(string(s.Protocol()), ProtocolPrefix) {
				s.Reset()
			}
		}
	}
}
