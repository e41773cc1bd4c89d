package node

import (
	"context"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/consensus"
	"pnode/swarm/streams"
)

// protocolRaft carries the consensus between members.
const protocolRaft = "/pnode/raft/1"

// raftTransport gives the consensus the swarm's streams of admitted members. It implements
// consensus.Transport.
type raftTransport struct{ swarm *swarm.Swarm }

func (t raftTransport) Self() plan.PeerID { return t.swarm.ID() }

func (t raftTransport) Open(ctx context.Context, peer plan.PeerID) (consensus.Stream, error) {
	return t.swarm.Open(ctx, peer, protocolRaft)
}

func (t raftTransport) Handle(f func(plan.PeerID, consensus.Stream)) {
	t.swarm.Handle(protocolRaft, func(_ context.Context, from plan.PeerID, s streams.Stream) { f(from, s) })
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
