package swarm

import (
	"context"
	"fmt"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
)

// gossipHost is the host as pubsub sees it: with members only. Streams of others are not
// accepted and not opened, and instead of libp2p's events, which tell of every connection,
// it has its own bus, on which a peer appears when it is admitted.
type gossipHost struct {
	host.Host
	swarm *Swarm
	bus   event.Bus
	news  event.Emitter
}

func newGossipHost(s *Swarm) (*gossipHost, error) {
	h := &gossipHost{Host: s.host, swarm: s, bus: eventbus.NewBus()}
	var err error
	if h.news, err = h.bus.Emitter(new(event.EvtPeerIdentificationCompleted)); err != nil {
		return nil, fmt.Errorf("swarm: start gossip: %w", err)
	}
	return h, nil
}

// announce shows an admitted peer to pubsub.
func (h *gossipHost) announce(p peer.ID) {
	err := h.news.Emit(event.EvtPeerIdentificationCompleted{
		Peer: p, Protocols: []protocol.ID{pubsub.GossipSubID_v13, pubsub.GossipSubID_v12, pubsub.GossipSubID_v11},
	})
	if err != nil {
		h.swarm.log.Error("swarm: gossip", "peer", p, "err", err)
	}
}

// EventBus is the bus of admissions.
func (h *gossipHost) EventBus() event.Bus { return h.bus }

// SetStreamHandler accepts streams from members.
func (h *gossipHost) SetStreamHandler(p protocol.ID, f network.StreamHandler) {
	h.Host.SetStreamHandler(p, h.swarm.membersOnly(f))
}

// SetStreamHandlerMatch accepts streams from members.
func (h *gossipHost) SetStreamHandlerMatch(p protocol.ID, match func(protocol.ID) bool, f network.StreamHandler) {
	h.Host.SetStreamHandlerMatch(p, match, h.swarm.membersOnly(f))
}

// NewStream opens a stream to a member, waiting for a pending verdict.
func (h *gossipHost) NewStream(ctx context.Context, p peer.ID, protos ...protocol.ID) (network.Stream, error) {
	wait, cancel := context.WithTimeout(ctx, admissionTime)
	defer cancel()
	if err := h.swarm.door.wait(wait, p); err != nil {
		return nil, err
	}
	return h.Host.NewStream(network.WithNoDial(ctx, "gossip"), p, protos...)
}
