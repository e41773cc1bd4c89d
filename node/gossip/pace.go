package gossip

import (
	"hash/fnv"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// heartbeatsPerS bounds the heartbeats a second of those that compute, and of all others: what each member receives does not grow with the
// members beyond as many.
const heartbeatsPerS = 64

// Paces says how often members send heartbeats. The zero value has each send one every second.
type Paces struct {
	computing, others time.Duration
	placed            map[plan.PeerID]bool // in the plan, or in the place of one that is
	quick             map[plan.PeerID]bool // whoever many wait for
}

// PacesOf returns the paces of a run. Up to heartbeatsPerS members of the plan, and as many others, send one every second. Where there are more
// they share that rate. Some always do: who leads or coordinates, owners, and who is leaving.
func PacesOf(s consensus.State) Paces {
	p := Paces{placed: map[plan.PeerID]bool{}, quick: map[plan.PeerID]bool{s.Leader: true}}
	for _, peer := range s.Plan.Peers() {
		p.placed[s.Substitute.Carrier(peer)] = true
	}
	if s.Plan.Generation != 0 {
		p.quick[s.Substitute.Coordinator(s.Plan)] = true
	}
	for _, peer := range s.Owners {
		p.quick[peer] = true
	}
	others := 0
	for _, m := range s.Members {
		if m.State == consensus.Draining {
			p.quick[m.Peer] = true
		}
		if m.State != consensus.Gone && !p.placed[m.Peer] {
			others++
		}
	}
	p.computing, p.others = paceOf(len(p.placed)), paceOf(others)
	return p
}

// paceOf returns the time between two heartbeats of each of so many members.
func paceOf(members int) time.Duration {
	return max(Every, time.Duration(members)*time.Second/heartbeatsPerS)
}

// Of returns the time between two heartbeats of a member that has nothing new to tell.
func (p Paces) Of(peer plan.PeerID) time.Duration {
	switch {
	case p.quick[peer]:
		return Every
	case p.placed[peer]:
		return max(p.computing, Every)
	}
	return max(p.others, Every)
}

// tells reports whether a heartbeat says something that others may wait for, and the one before did not. What changes with each step or each
// plan is none of it.
func (b Heartbeat) tells(before Heartbeat) bool {
	return b.Phase != before.Phase || b.Stalled != before.Stalled || b.Blocked != before.Blocked || b.Finished != before.Finished || b.Extends != before.Extends ||
		b.Slower != before.Slower || b.NoReplay != before.NoReplay || b.Replayed != before.Replayed || b.NoRestore != before.NoRestore ||
		b.Copying != before.Copying || b.LeftOut != before.LeftOut || b.Wish != before.Wish || b.Spares != before.Spares || b.Hints != before.Hints ||
		(b.Whole == nil) != (before.Whole == nil) || b.Whole != nil && *b.Whole != *before.Whole || !slices.Equal(b.Retained, before.Retained)
}

// SetPaces says how often members send heartbeats.
func (t *Tracker) SetPaces(p Paces) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paces = p
}

// Due reports whether this node's heartbeat is to be sent: it tells something new, or the last one was a while ago.
func (t *Tracker) Due(b Heartbeat, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, sent := t.heard[b.Peer]
	pace := t.paces.Of(b.Peer)
	return pace <= Every || !sent || now.Sub(last.at) > pace-Every/2 || b.tells(last.beat)
}

// Slack returns how much longer a peer may be silent than one that sends a heartbeat every second, of which several may get lost: as long as
// until the one after its next. It follows the pace of when it sent its newest one: it may not have learned of another one before.
func (t *Tracker) Slack(peer plan.PeerID) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slack(peer)
}

// slack is Slack. Callers hold mu.
func (t *Tracker) slack(peer plan.PeerID) time.Duration {
	pace := max(t.heard[peer].pace, t.paces.Of(peer))
	if pace <= Every {
		return 0
	}
	return 2*pace - Every
}

// Spread returns how long a member waits between two questions that all members without a part in the plan have for the plan's: no time in
// runs of today. Of the peers that are asked first it returns another one first for each of many members.
func Spread(s consensus.State, self plan.PeerID, first []plan.PeerID) (wait time.Duration, peers []plan.PeerID) {
	pace := PacesOf(s).Of(self)
	if pace <= Every || len(first) == 0 {
		return 0, first
	}
	hash := fnv.New32a()
	hash.Write([]byte(self))
	i := int(hash.Sum32() % uint32(len(first)))
	return pace, slices.Concat(first[i:], first[:i])
}
