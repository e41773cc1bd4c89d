package node

import (
	"context"
	"net"

	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/consensus"
	"pnode/swarm/streams"
)

// protocolRaft carries the consensus between members.
const protocolRaft = "/pnode/raft/1"

// incomingStreams bounds the consensus streams that wait to be accepted.
const incomingStreams = 64

// raftTransport gives the consensus its streams: the swarm's, of admitted members
// (consensus.Transport).
type raftTransport struct {
	swarm    *swarm.Swarm
	incoming chan incoming
}

type incoming struct {
	stream *heldStream
	from   plan.PeerID
}

// heldStream tells when the consensus is through with a stream: the swarm closes it when
// the handler that brought it returns.
type heldStream struct {
	streams.Stream
	closed context.CancelFunc
}

func (s *heldStream) Close() error {
	defer s.closed()
	return s.Stream.Close()
}

func newRaftTransport(s *swarm.Swarm) *raftTransport {
	t := &raftTransport{swarm: s, incoming: make(chan incoming, incomingStreams)}
	s.Handle(protocolRaft, t.hand)
	return t
}

// hand gives a stream to Accept and stays until it is closed.
func (t *raftTransport) hand(ctx context.Context, from plan.PeerID, stream streams.Stream) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case t.incoming <- incoming{&heldStream{stream, cancel}, from}:
	case <-ctx.Done():
		return
	}
	<-ctx.Done()
}

func (t *raftTransport) Self() plan.PeerID { return t.swarm.ID() }

func (t *raftTransport) Open(ctx context.Context, peer plan.PeerID) (consensus.Stream, error) {
	return t.swarm.Open(ctx, peer, protocolRaft)
}

func (t *raftTransport) Accept(ctx context.Context) (consensus.Stream, plan.PeerID, error) {
	select {
	case in := <-t.incoming:
		return in.stream, in.from, nil
	case <-ctx.Done():
		return nil, "", net.ErrClosed
	}
}
