package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// reviewTimeout bounds the question about one member that came in before the log was here.
const reviewTimeout = 10 * time.Second

// followRemovals cuts off the peers that owners have removed, as the log tells, until ctx ends. Once the log has come it
// asks it about the members that came in by their signatures before. Others' word of a peer counts where the log admits it.
func (n *Node) followRemovals(ctx context.Context) {
	n.swarm.Follow(func(p plan.PeerID) (belongs, told bool) {
		leader, _, _ := n.raft.Leader()
		return belongsTo(n.raft.State(), leader != "", n.self, n.kept, p)
	})
	blocked, reviewed, roster := 0, false, 0
	for ctx.Err() == nil {
		changed, state := n.raft.Changed(), n.raft.State()
		for _, r := range state.Revoked[min(blocked, len(state.Revoked)):] {
			if r.Peer != n.self {
				n.log.Warn("a node was removed from the run", "peer", r.Peer, "by", r.By, "reason", r.Reason)
				n.swarm.Block(r.Peer, admission.Removed(state.Removal(r)))
			}
		}
		blocked = len(state.Revoked)
		if me, ok := state.Member(n.self); !reviewed && ok && state.Run != nil && me.State != consensus.Gone {
			reviewed = true
			n.review(ctx)
		}
		if reviewed && roster != len(state.Members) {
			roster = len(state.Members)
			n.swarm.Review()
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// belongsTo reports whether a peer belongs to the run, and whether that can be told here: by the log, once this node has
// entered its roster there, or by the peers known from before. They count, too, where nobody leads: the state of a node that was
// started again is older than they are until it is led.
func belongsTo(s consensus.State, led bool, self plan.PeerID, kept []plan.PeerID, p plan.PeerID) (belongs, told bool) {
	if _, entered := s.Member(self); s.Run != nil && entered {
		if belongs := s.Admitted(p) || s.Owner(p); belongs || led {
			return belongs, true
		}
	}
	return slices.Contains(kept, p), len(kept) > 0
}

// review ends the connections to members that the log does not know and does not let in.
func (n *Node) review(ctx context.Context) {
	for _, c := range n.swarm.Members() {
		asking, cancel := context.WithTimeout(ctx, reviewTimeout)
		err := n.door.Admit(asking, c)
		cancel()
		if err != nil && !errors.Is(err, admission.ErrNoMajority) {
			n.log.Warn("a peer does not belong to the run", "peer", c.Peer, "cause", err)
			n.swarm.Disconnect(c.Peer)
		}
	}
}

// checkRemoved returns why this node has to end: an owner has removed it from the run. The log says so, or the members
// that refuse it: an owner, or several.
func (n *Node) checkRemoved(state consensus.State) error {
	owners := n.keptOwners
	if state.Run != nil {
		owners = state.Owners
	}
	err := n.swarm.Removed(owners, admittedOf(state, n.kept))
	if r, revoked := state.Revocation(n.self); revoked {
		err = admission.Removed(state.Removal(r))
	}
	if err == nil {
		return nil
	}
	return marked{fmt.Errorf("node: %w", err), ErrRefused}
}

// awaitRemoved blocks until this node turns out to be removed from the run, and returns why; nil when ctx ends first.
func (n *Node) awaitRemoved(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if err := n.checkRemoved(n.raft.State()); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// admittedOf returns the peers of the roster that belong to the run, and its owners; those known before while there is
// no log.
func admittedOf(s consensus.State, before []plan.PeerID) []plan.PeerID {
	if s.Run == nil {
		return before
	}
	peers := slices.Clone(s.Owners)
	for _, m := range s.Members {
		if s.Admitted(m.Peer) && !slices.Contains(peers, m.Peer) {
			peers = append(peers, m.Peer)
		}
	}
	return peers
}
