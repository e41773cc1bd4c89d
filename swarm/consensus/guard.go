package consensus

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

const (
	// strangersAfter is how long no leader may be known until a node that is no voter here is listened to: the
	// voters may have changed while this node was away. Elections take less.
	strangersAfter = 10 * time.Second
	// maxTermRaise bounds by how much a node without a vote may be ahead of the leader's term.
	maxTermRaise = 1 << 16
)

// checkRaft returns why a peer's messages of raft are not taken; nil if they are. Only leaders and candidates open
// streams of raft, and both are voters. A node that has no configuration, has heard no leader since its start, or
// none for strangersAfter, cannot know the voters.
func checkRaft(peer plan.PeerID, servers []Server, r reign, now time.Time) error {
	voter := slices.Contains(servers, Server{Peer: peer, Voter: true})
	lost := r.leader == "" && now.Sub(r.lostSince) >= strangersAfter
	if voter || len(servers) == 0 || !r.known || lost {
		return nil
	}
	return fmt.Errorf("%w: %s is no voter and sends messages of raft", ErrForbidden, peer.Short())
}

// takesRaft returns why a peer's messages of raft are not taken now.
func (n *Node) takesRaft(peer plan.PeerID) error {
	n.mu.Lock()
	r := n.reign
	n.mu.Unlock()
	return checkRaft(peer, n.Servers(), r, time.Now())
}

// guarded is raft's transport, on which a node without a vote cannot depose the leader by the term that it answers
// with: it may raise the term once, as one must that was a candidate before it lost its vote.
type guarded struct {
	*raft.NetworkTransport
	node *Node

	mu     sync.Mutex                 // guards raised
	raised map[raft.ServerID]struct{} // nodes without a vote that have raised the term
}

// AppendEntriesPipeline says that there is none: every answer is looked at. The log is small.
func (*guarded) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (g *guarded) AppendEntries(id raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) error {
	if err := g.NetworkTransport.AppendEntries(id, to, q, r); err != nil {
		return err
	}
	return g.checkTerm(id, q.Term, r.Term)
}

func (g *guarded) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, q *raft.InstallSnapshotRequest, r *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := g.NetworkTransport.InstallSnapshot(id, to, q, r, data); err != nil {
		return err
	}
	return g.checkTerm(id, q.Term, r.Term)
}

// checkTerm returns an error for an answer whose term must not count.
func (g *guarded) checkTerm(id raft.ServerID, asked, answered uint64) error {
	if answered <= asked || slices.Contains(g.node.Servers(), Server{Peer: plan.PeerID(id), Voter: true}) {
		return nil
	}
	g.mu.Lock()
	_, again := g.raised[id]
	g.raised[id] = struct{}{}
	g.mu.Unlock()
	if !again && answered-asked <= maxTermRaise {
		return nil
	}
	err := fmt.Errorf("%w: %s, which is no voter, answers with term %d in term %d", ErrForbidden, plan.PeerID(id).Short(), answered, asked)
	g.node.config.Logger.Warn("consensus: the answer of a node without a vote is not taken", "peer", id, "cause", err)
	return err
}
