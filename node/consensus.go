package node

import (
	"context"
	"fmt"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
	"pnode/swarm/streams"
)

// protocolRaft carries the consensus between members.
const protocolRaft = "/pnode/raft/4"

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

// ownerOf returns a function that reports why a capability does not show that a peer is an owner of the run. It does not
// ask whether the capability has expired: every node must say the same of the same bytes, whenever it looks.
func ownerOf(run admission.Run) func(plan.PeerID, []byte) error {
	return func(peer plan.PeerID, capability []byte) error {
		c, err := admission.DecodeCapability(capability)
		if err == nil {
			err = c.Verify(run, time.Time{})
		}
		if err == nil && (c.Peer != peer || c.Role != admission.RoleOwner) {
			err = fmt.Errorf("node: the capability makes %s a %s", c.Peer, c.Role)
		}
		return err
	}
}

// raftStore keeps the consensus log in a bucket of the checkpoint store, and learns how long that takes. It implements
// consensus.KV.
type raftStore struct {
	*checkpoint.Bucket
	pace *diskPace
	slow func() // called before each write, in a simulation; may be nil
}

func (s raftStore) Write(changes []consensus.Change) error {
	batch := make([]checkpoint.Op, len(changes))
	for i, c := range changes {
		batch[i] = checkpoint.Op(c)
	}
	s.pace.begin(time.Now())
	defer func() { s.pace.end(time.Now()) }()
	if s.slow != nil {
		s.slow()
	}
	return s.Bucket.Write(batch)
}
