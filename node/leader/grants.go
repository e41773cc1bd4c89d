package leader

import (
	"context"
	"fmt"
	"slices"

	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// An invite lets in as many peers as it says, whichever member they come to and whoever has been
// started again since. The leader binds each member to the invite of its verified capability,
// the replicated state remembers, and the admission of every node counts from there.

// bindGrants binds a member that is not bound yet. It turns out one whose invite had been used up
// when two nodes admitted members at once.
func (l *Leader) bindGrants(ctx context.Context, state consensus.State) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	for _, m := range state.Members {
		if m.State == consensus.Gone {
			continue
		}
		c, known := l.Peers.Capability(m.Peer)
		if !known {
			continue // not met yet
		}
		entry, ok := binding(state, m, c)
		if !ok {
			continue
		}
		if err := l.Consensus.Propose(ctx, entry); err != nil {
			return fmt.Errorf("leader: bind %s to its invite: %w", m.Peer, err)
		}
		if _, turnedOut := entry.(consensus.SetMemberState); turnedOut {
			l.Log.Warn("a node came by an invite that was used up", "peer", m.Peer, "uses", c.Uses)
			l.Peers.Block(m.Peer)
		}
		return nil // the next look sees the new state
	}
	return nil
}

// binding returns the entry to propose for a member, if any.
func binding(state consensus.State, m consensus.Member, c admission.Capability) (consensus.Entry, bool) {
	peers := state.GrantPeers(uint64(c.Serial))
	if slices.Contains(peers, m.Peer) {
		return nil, false
	}
	if len(peers) >= c.Uses {
		return consensus.SetMemberState{
			Peer: m.Peer, ProcessEpoch: m.ProcessEpoch, State: consensus.Gone,
			Reason: fmt.Sprintf("its invite was for %d nodes, which others have been", c.Uses),
		}, true
	}
	return consensus.BindGrant{Serial: uint64(c.Serial), Peer: m.Peer}, true
}
