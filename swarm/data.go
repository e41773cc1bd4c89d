package swarm

import (
	"context"
	"fmt"
	"net"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
)

const dataALPN = "pnode-data/1"

// Data is the data plane's network: QUIC connections with members on ALPN pnode-data/1,
// apart from libp2p's own, so that bulk never holds up control. It only makes and accepts
// connections; what runs on them is pipeline/link's.
type Data struct{ lane *lane }

func newData(s *Swarm) (*Data, error) {
	l, err := newLane(s, dataALPN)
	if err != nil {
		return nil, err
	}
	return &Data{lane: l}, nil
}

// Data is the swarm's data plane.
func (s *Swarm) Data() *Data { return s.data }

// Self is this node's peer ID.
func (d *Data) Self() plan.PeerID { return d.lane.swarm.ID() }

// Dial opens a connection to a member, whose peer ID the handshake proves. Without a UDP
// path the error is ErrNoUDP.
func (d *Data) Dial(ctx context.Context, p plan.PeerID) (*quic.Conn, error) {
	conn, err := d.lane.dial(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("swarm: dial %s on %s: %w", p, dataALPN, err)
	}
	return conn, nil
}

// Accept waits for the next connection that a member opened. When the swarm is closed the
// error is net.ErrClosed.
func (d *Data) Accept(ctx context.Context) (*quic.Conn, plan.PeerID, error) {
	select {
	case c := <-d.lane.queue:
		return c.conn, plan.PeerID(c.peer.String()), nil
	case <-ctx.Done():
		return nil, "", fmt.Errorf("swarm: accept on %s: %w", dataALPN, ctx.Err())
	case <-d.lane.swarm.tasks.ctx.Done():
		return nil, "", fmt.Errorf("swarm: accept on %s: %w", dataALPN, net.ErrClosed)
	}
}
