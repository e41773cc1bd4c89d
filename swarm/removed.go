package swarm

import (
	"slices"
	"sync"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/peerstore"
)

// aloneTime is how long no member is reached before those are believed that are no owners.
const aloneTime = 30 * time.Second

// alone is the time since which no member is connected. Its methods may be called from any goroutine.
type alone struct {
	// mu guards since, which is zero while a member is connected.
	mu    sync.Mutex
	since time.Time
}

// end notes that a member is connected.
func (a *alone) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = time.Time{}
}

// begin notes that none is, unless that is known, and returns since when.
func (a *alone) begin(now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = now
	}
	return a.since
}

// Removed returns what members say when they refuse this node as one that was removed from the run; nil while any other
// is connected, or none says so who is believed. An owner is believed, and so are two of the other peers that belong to
// the run, or the only one, once nobody else was reached for half a minute: one member alone ends no node. It counts from
// the first call on, and is called every second or so.
func (s *Swarm) Removed(owners, peers []plan.PeerID) error {
	if s.peers.Count() > 0 {
		s.alone.end()
		return nil
	}
	now := time.Now()
	since := s.alone.begin(now)
	said := slices.DeleteFunc(s.store.Refusals(admission.ErrBlocked), func(r peerstore.Refusal) bool { return s.peers.Blocked(r.Peer) })
	others := slices.DeleteFunc(slices.Clone(peers), func(p plan.PeerID) bool { return p == s.ID() })
	return believed(said, owners, others, since, now)
}

// believed returns the verdict of an owner, or of enough others who gave it since no member is connected.
func believed(said []peerstore.Refusal, owners, others []plan.PeerID, since, now time.Time) (why error) {
	count := 0
	for _, r := range said {
		switch p := plan.PeerID(r.Peer.String()); {
		case slices.Contains(owners, p):
			return r.Err
		case slices.Contains(others, p) && !r.At.Before(since):
			why = r.Err
			count++
		}
	}
	if count < min(2, len(others)) || now.Sub(since) < aloneTime {
		return nil
	}
	return why
}
