package consensus

import (
	"slices"
	"time"

	"pnode/planner/plan"
)

// Quorum holds what a node knows of the majority that a run needs: without one there is soon no leader, and nothing is
// committed.
type Quorum struct {
	// Voters are those of the newest configuration that came here, sorted.
	Voters []plan.PeerID
	// Silent are the voters that do not answer the leader; only the leader knows.
	Silent []plan.PeerID
	// Leader is who leads, "" when nobody is known to.
	Leader plan.PeerID
	// LostSince is since when no leader is known; zero while one is. A second or two are
	// an election, more are a lost majority, or a node that is cut off from it.
	LostSince time.Time
}

// Quorum returns what this node knows of the majority; see Changed for when that changes.
func (n *Node) Quorum() Quorum {
	var voters, silent []plan.PeerID
	for _, s := range n.Servers() {
		if s.Voter {
			voters = append(voters, s.Peer)
		}
	}
	slices.Sort(voters)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range voters {
		if n.silence.of(p, time.Now()) > 0 {
			silent = append(silent, p)
		}
	}
	return Quorum{Voters: voters, Silent: silent, Leader: n.reign.leader, LostSince: n.reign.lostSince}
}

// reign holds who leads, or since when nobody is known to.
type reign struct {
	leader    plan.PeerID
	lostSince time.Time
}

// take notes at time now who leads, "" for nobody.
func (r *reign) take(leader plan.PeerID, now time.Time) {
	switch {
	case leader != "":
		r.lostSince = time.Time{}
	case r.lostSince.IsZero():
		r.lostSince = now
	}
	r.leader = leader
}
