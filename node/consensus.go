package node

import (
	"context"
	"errors"
	"net"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/consensus"
	"pnode/swarm/streams"
)

const (
	// protocolRaft carries the consensus between members.
	protocolRaft = "/pnode/raft/1"
	// incomingStreams bounds the consensus streams that wait to be accepted.
	incomingStreams = 64
)

// raftTransport gives the consensus the swarm's streams of admitted members. It implements
// consensus.Transport.
type raftTransport struct {
	swarm    *swarm.Swarm
	incoming chan incoming
}

type incoming struct {
	stream *heldStream
	from   plan.PeerID
}

// heldStream reports when the consensus is through with a stream. The swarm closes it when the
// handler that brought it returns.
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

// raftStore keeps the consensus log in a bucket of the checkpoint store. It implements
// consensus.KV.
type raftStore struct{ *checkpoint.Bucket }

func (s raftStore) Write(changes []consensus.Change) error {
	batch := make([]checkpoint.Op, len(changes))
	for i, c := range changes {
		batch[i] = checkpoint.Op(c)
	}
	return s.Bucket.Write(batch)
}

// errEnough ends a scan early.
var errEnough = errors.New("enough")

func (s raftStore) Scan(from []byte, reverse bool, visit func(key, value []byte) bool) error {
	err := s.Bucket.Scan(checkpoint.ScanOptions{From: from, Reverse: reverse}, func(key, value []byte) error {
		if !visit(key, value) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
