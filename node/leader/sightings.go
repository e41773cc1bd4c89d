package leader

import (
	"sync"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// sightings holds since when this node has been listening for each process of the roster: who
// begins to listen, or slept, cannot blame others for what it missed.
type sightings struct {
	since map[process]time.Time
	last  time.Time
}

// process is one start of a node.
type process struct {
	peer  plan.PeerID
	epoch uint64 // of the process
}

// maxNap is how late a look may come before this node counts as having slept.
const maxNap = 2 * time.Second

// look notes the processes in the roster now.
func (s *sightings) look(members []consensus.Member, now time.Time) {
	before := s.since
	if now.Sub(s.last) > maxNap {
		before = nil
	}
	s.since, s.last = map[process]time.Time{}, now
	for _, m := range members {
		id := process{m.Peer, m.ProcessEpoch}
		since, seen := before[id]
		if !seen {
			since = now
		}
		s.since[id] = since
	}
}

// ended holds the processes of members that have ended, the newest of each member.
type ended struct {
	mu   sync.Mutex // guards seen
	seen map[plan.PeerID]uint64
}

func (e *ended) note(p process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil {
		e.seen = map[plan.PeerID]uint64{}
	}
	e.seen[p.peer] = p.epoch
}

func (e *ended) has(p process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	epoch, ok := e.seen[p.peer]
	return ok && epoch == p.epoch
}
