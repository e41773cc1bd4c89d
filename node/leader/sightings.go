package leader

import (
	"sync"
	"time"

	"pnode/pipeline/link/silence"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// sightings follows the signs of life of each process of the roster. Who begins to listen, or slept, cannot blame
// others for what it missed.
type sightings struct {
	of   map[process]*sighting
	last time.Time
	// busy is how long this node was at work since then, waiting for answers: that is no sleep.
	busy time.Duration
}

// process is one start of a node.
type process struct {
	peer  plan.PeerID
	epoch uint64 // of the process
}

// sighting holds the signs of life of one process.
type sighting struct {
	heard time.Time // its newest sign of life
	since time.Time // its silence counts from here
	times silence.Times
}

const (
	// lookCounts is how much of the time between two looks counts as silence of others. In the rest of it this node slept, or
	// was starved of its processor, and heard nobody.
	lookCounts = 2 * decideEvery
	// mostBusy bounds the time that a member's answer and its host's are waited for.
	mostBusy = 3 * time.Second
)

// look takes in the processes in the roster at time now. heard returns when a member gave its newest sign of life.
func (s *sightings) look(members []consensus.Member, heard func(plan.PeerID) time.Time, now time.Time) {
	slept := time.Duration(0)
	if !s.last.IsZero() {
		slept = max(0, now.Sub(s.last)-lookCounts-min(s.busy, mostBusy))
	}
	before := s.of
	s.of, s.last, s.busy = map[process]*sighting{}, now, 0
	for _, m := range members {
		id, at := process{m.Peer, m.ProcessEpoch}, heard(m.Peer)
		seen := before[id]
		if seen == nil {
			seen = &sighting{heard: at, since: now}
		}
		seen.since = seen.since.Add(slept)
		if at.After(seen.heard) {
			if at.After(seen.since) {
				seen.times.Note(at.Sub(seen.since))
				seen.since = at
			}
			seen.heard = at
		}
		s.of[id] = seen
	}
}

// silent returns for how long a process has given no sign of life, after how long that is suspicious, and after how long it
// counts as lost.
func (s *sightings) silent(m consensus.Member) (silent, suspicious, lost time.Duration) {
	seen := s.of[process{m.Peer, m.ProcessEpoch}]
	return max(0, s.last.Sub(seen.since)), seen.times.Suspicion(), seen.times.Bound()
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
