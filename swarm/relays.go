package swarm

import (
	"context"
	"net"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"pnode/planner/plan"
	"pnode/swarm/alpn"
	"pnode/swarm/host"
	"pnode/swarm/probe"
	"pnode/swarm/relay"
	"pnode/swarm/transport"
)

// startRelays starts what carries data through other members, in both roles. This node relays for others once one has
// dialed it: who is not dialed by anybody is of no use to others.
func (s *Swarm) startRelays(connections alpn.Config) (err error) {
	connections.ALPN, connections.FixedWindows = relay.ALPN, true
	if s.relayed, err = alpn.New(connections); err != nil {
		return err
	}
	s.relays = relay.New(relay.Config{
		Self: s.ID(), Carrier: relayCarrier{s.relayed}, Open: s.Open, Handle: s.streams.Handle,
		Member: func(p plan.PeerID) bool {
			id, err := peer.Decode(string(p))
			return err == nil && (s.peers.Member(id) || s.peers.Pending(id))
		},
		Direct: func(p plan.PeerID) bool {
			id, err := peer.Decode(string(p))
			return err == nil && s.peers.Member(id) && s.host.Direct(id)
		},
		Relays: s.relaysTo,
		Serve: map[string]func(context.Context, net.Conn){
			dataALPN:   func(ctx context.Context, c net.Conn) { s.data.Take(ctx, c, plan.Relay) },
			probe.ALPN: func(ctx context.Context, c net.Conn) { s.probes.Take(ctx, c, plan.Relay) },
		},
		BytesPerS: s.cfg.RelayBytesPerS, Tasks: s.tasks, Log: s.cfg.Logger,
	})
	if s.cfg.RelayBytesPerS > 0 {
		s.tasks.Run(func(ctx context.Context) {
			select {
			case <-s.dialed:
				s.relays.Offer()
			case <-ctx.Done():
			}
		})
	}
	return nil
}

// through returns a function that makes streams of bytes to other members, through a third, for an ALPN.
func (s *Swarm) through(name string) func(context.Context, plan.PeerID) (net.Conn, error) {
	return func(ctx context.Context, p plan.PeerID) (net.Conn, error) { return s.relays.Dial(ctx, p, name) }
}

// relaysTo lists members that relay and that this node is connected to directly: those through which p is reached for
// control first, those that give no sign of life last.
func (s *Swarm) relaysTo(p plan.PeerID) (out []plan.PeerID) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return nil
	}
	through := map[peer.ID]bool{}
	for _, a := range append(s.store.Addrs(id), s.host.Peerstore().Addrs(id)...) {
		if r, ok := host.RelayOf(a); ok {
			through[r] = true
		}
	}
	var others, silent []plan.PeerID
	for _, c := range s.peers.Members() {
		r := c.ID()
		offered, err := s.host.Peerstore().SupportsProtocols(r, protocol.ID(relay.AskProtocol))
		switch {
		case r == id || err != nil || len(offered) == 0 || !s.host.Direct(r):
		case s.peers.Silent(r):
			silent = append(silent, c.Peer)
		case through[r]:
			out = append(out, c.Peer)
		default:
			others = append(others, c.Peer)
		}
	}
	return append(append(out, others...), silent...)
}

// relayCarrier makes and accepts the connections to relays, over what works best.
type relayCarrier struct{ *alpn.Transport }

// Dial connects to a relay that this node has chosen.
func (c relayCarrier) Dial(ctx context.Context, p plan.PeerID) (transport.Conn, error) {
	return c.Transport.Dial(ctx, p, "")
}
