package topics

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

	"pnode/swarm/admission"
)

// membersHost shows pubsub the host with members only. It accepts and opens no streams of others. In place of
// libp2p's events, which report every connection, it has a bus of its own on which a peer appears when
// it is admitted.
type membersHost struct {
	host.Host
	cfg  Config
	bus  event.Bus
	news event.Emitter
}

func newMembersHost(cfg Config) (*membersHost, error) {
	h := &membersHost{Host: cfg.Streams.Host, cfg: cfg, bus: eventbus.NewBus()}
	var err error
	if h.news, err = h.bus.Emitter(new(event.EvtPeerIdentificationCompleted)); err != nil {
		return nil, fmt.Errorf("swarm: start gossip: %w", err)
	}
	return h, nil
}

// announce shows an admitted peer to pubsub.
func (h *membersHost) announce(p peer.ID) {
	err := h.news.Emit(event.EvtPeerIdentificationCompleted{
		Peer: p, Protocols: []protocol.ID{pubsub.GossipSubID_v13, pubsub.GossipSubID_v12, pubsub.GossipSubID_v11},
	})
	if err != nil {
		h.cfg.Log.Error("swarm: gossip", "peer", p, "err", err)
	}
}

// EventBus returns the bus of admissions.
func (h *membersHost) EventBus() event.Bus { return h.bus }

// SetStreamHandler accepts streams from members.
func (h *membersHost) SetStreamHandler(p protocol.ID, f network.StreamHandler) {
	h.Host.SetStreamHandler(p, h.cfg.Streams.MembersOnly(f))
}

// SetStreamHandlerMatch accepts streams from members.
func (h *membersHost) SetStreamHandlerMatch(p protocol.ID, match func(protocol.ID) bool, f network.StreamHandler) {
	h.Host.SetStreamHandlerMatch(p, match, h.cfg.Streams.MembersOnly(f))
}

// NewStream opens a stream to a member, waiting for a pending verdict.
func (h *membersHost) NewStream(ctx context.Context, p peer.ID, protos ...protocol.ID) (network.Stream, error) {
	wait, cancel := context.WithTimeout(ctx, admission.TimeLimit)
	defer cancel()
	if err := h.cfg.Peers.Wait(wait, p); err != nil {
		return nil, err
	}
	return h.Host.NewStream(network.WithNoDial(ctx, "gossip"), p, protos...)
}
