package topics

import (
	"context"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

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
	return h.Host.NewStream(network.WithAllowLimitedConn(network.WithNoDial(ctx, "gossip"), "gossip"), p, protos...)
}
