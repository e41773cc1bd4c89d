package link

import (
	"context"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
)

// Network makes connections with the identity of the peer verified on both ends.
type Network interface {
	// Self is this node's own identity.
	Self() plan.PeerID
	// Dial connects to an admitted peer under ALPN.
	Dial(ctx context.Context, peer plan.PeerID) (*quic.Conn, error)
	// Accept waits for the next connection of an admitted peer. An error ends
	// Endpoint.Run: what concerns one connection only is not an error.
	Accept(ctx context.Context) (*quic.Conn, plan.PeerID, error)
}
