package node

import (
	"context"
	"fmt"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// An invite lets in as many peers as it says, whichever member they knock at and whoever has
// been started again since: the planner binds each member to the invite that its verified
// capability came of, the replicated state remembers, and every node's door counts from there.

// learnGrants has this node's door count what the run knows.
func (n *Node) learnGrants(state consensus.State) {
	for _, g := range state.Grants {
		n.grants.Bind(admission.Serial(g.Serial), g.Peers...)
	}
}

// bindGrants is the planner's part: it binds the members that are not bound yet, and turns out
// those whose invite had been used up when two doors were asked at once.
func (n *Node) bindGrants(ctx context.Context, state consensus.State) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	for _, m := range state.Members {
		if m.State == consensus.Gone {
			continue
		}
		c, known := n.capability(m.Peer)
		if !known {
			continue // not met yet
		}
		entry, ok := binding(state, m, c)
		if !ok {
			continue
		}
		if err := n.raft.Propose(ctx, entry); err != nil {
			return fmt.Errorf("node: bind %s to its invite: %w", m.Peer, err)
		}
		if _, turnedOut := entry.(consensus.SetMemberState); turnedOut {
			n.log.Warn("a node came by an invite that was used up", "peer", m.Peer, "uses", c.Uses)
			n.swarm.Block(m.Peer)
		}
		return nil // the next look sees the new state
	}
	return nil
}

// binding is what is to be proposed for a member, if anything.
func binding(state consensus.State, m consensus.Member, c admission.Capability) (consensus.Entry, bool) {
	peers := state.GrantPeers(uint64(c.Serial))
	for _, p := range peers {
		if p == m.Peer {
			return nil, false
		}
	}
	if len(peers) >= c.Uses {
		return consensus.SetMemberState{
			Peer: m.Peer, Boot: m.Boot, State: consensus.Gone,
			Reason: fmt.Sprintf("its invite was for %d nodes, which others have been", c.Uses),
		}, true
	}
	return consensus.BindGrant{Serial: uint64(c.Serial), Peer: m.Peer}, true
}

// capability is the verified capability of a member, this node included.
func (n *Node) capability(p plan.PeerID) (admission.Capability, bool) {
	if p != n.self {
		return n.swarm.Capability(p)
	}
	c, err := admission.DecodeCapability(n.seat.Capability)
	return c, err == nil
}
