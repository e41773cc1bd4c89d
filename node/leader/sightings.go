package leader

import (
	"slices"
	"sync"
	"time"

	"pnode/node/gossip"
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
	// entered is since when members are entering, without a break; zero: nobody is.
	entered time.Time
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
	// steady is when it was last silent for longer than steadyGap.
	steady time.Time
	// slack of its silence comes from its pace.
	slack time.Duration
	times silence.Times
}

const (
	// lookCounts is how much of the time between two looks counts as silence of others. In the rest of it this node slept, or
	// was starved of its processor, and heard nobody.
	lookCounts = 2 * decideEvery
	// mostBusy bounds the time that a member's answer and its host's are waited for.
	mostBusy = 3 * time.Second
	// unheardFor bounds the wait for a member that the log has, and of which nothing was heard since this node was started: who was
	// started with it speaks by then.
	unheardFor = 3 * time.Second
	// steadyGap is how long a member that lives may be silent: one of its heartbeats may get lost.
	steadyGap = 2*gossip.Every + gossip.Every/2
)

// look takes in the processes in the roster at time now. heard returns when a member gave its newest sign of life, slackOf for how
// long more than a second it may be silent before the next one.
func (s *sightings) look(members []consensus.Member, heard func(plan.PeerID) time.Time, slackOf func(plan.PeerID) time.Duration, now time.Time) {
	slept := time.Duration(0)
	if !s.last.IsZero() {
		slept = max(0, now.Sub(s.last)-lookCounts-min(s.busy, mostBusy))
	}
	before := s.of
	s.of, s.last, s.busy = map[process]*sighting{}, now, 0
	entering := false
	for _, m := range members {
		id, at := process{m.Peer, m.ProcessEpoch}, heard(m.Peer)
		seen := before[id]
		if seen == nil {
			seen = &sighting{heard: at, since: now, steady: now}
		}
		slack := seen.slack // of the silence that ends now
		seen.slack = slackOf(m.Peer)
		seen.since = seen.since.Add(slept)
		quiet := now.Sub(seen.since)
		if at.After(seen.since) {
			quiet = at.Sub(seen.since)
		}
		quiet = beyond(quiet, max(seen.slack, slack))
		if quiet > steadyGap {
			seen.steady = now
		}
		if at.After(seen.heard) {
			if at.After(seen.since) {
				seen.times.Note(quiet)
				seen.since = at
			}
			seen.heard = at
		}
		s.of[id] = seen
		entering = entering || m.State == consensus.Joining && beyond(now.Sub(seen.since), seen.slack) <= DeadAfter
	}
	if !entering {
		s.entered = time.Time{}
	} else if s.entered.IsZero() {
		s.entered = now
	}
}

// beyond returns a silence as that of a member which sends a heartbeat every second.
func beyond(silent, slack time.Duration) time.Duration {
	return max(0, silent-slack, min(silent, gossip.Every, slack))
}

// entering returns for how long members have been entering that are heard of; 0: nobody is.
func (s *sightings) entering() time.Duration {
	if s.entered.IsZero() {
		return 0
	}
	return max(1, s.last.Sub(s.entered))
}

// silent returns for how long a process has given no sign of life, after how long that is suspicious, and after how long it
// counts as lost.
func (s *sightings) silent(m consensus.Member) (silent, suspicious, lost time.Duration) {
	seen := s.of[process{m.Peer, m.ProcessEpoch}]
	silent, suspicious, lost = beyond(s.last.Sub(seen.since), seen.slack), seen.times.Suspicion(), seen.times.Bound()
	if s.unheard(m) {
		suspicious = unheardFor
	}
	return silent, suspicious, lost
}

// slack returns how much longer than a member that speaks every second a process may be silent.
func (s *sightings) slack(m consensus.Member) time.Duration {
	return s.of[process{m.Peer, m.ProcessEpoch}].slack
}

// unheard reports whether this node has never heard of a member: it was started again, perhaps with all others, and knows the member
// from the log alone.
func (s *sightings) unheard(m consensus.Member) bool {
	return s.of[process{m.Peer, m.ProcessEpoch}].heard.IsZero()
}

// missed is silent for a member that others may have given up for want of its links: then the silence here is suspicious from
// DeadAfter on.
func (s *sightings) missed(m consensus.Member, stall gossip.Stall) (silent, suspicious, lost time.Duration) {
	silent, suspicious, lost = s.silent(m)
	if slices.ContainsFunc(stall.Accusations, func(a accusation) bool { return a.Accused == m.Peer && a.Kind == plan.LostLink }) {
		suspicious = min(suspicious, DeadAfter)
	}
	return silent, suspicious, lost
}

// steady reports whether a process has given signs of life since a moment, never more than steadyGap apart, and one after
// another moment.
func (s *sightings) steady(m consensus.Member, since, after time.Time) bool {
	seen := s.of[process{m.Peer, m.ProcessEpoch}]
	return seen != nil && seen.steady.Before(since) && seen.heard.After(after)
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
