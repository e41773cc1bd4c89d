package consensus

import (
	"time"

	"pnode/planner/plan"
)

// silence holds who does not answer the leader's heartbeats. Raft reports that a server answers again only where it
// reported before, in the same term and since the server was last added, that it did not. The heartbeats of an earlier
// term, or to a server that was removed meanwhile, may fail long after their time: their last contact is from before
// the time that counts, and they are ignored.
type silence struct {
	// last is the last contact with each server that does not answer.
	last map[plan.PeerID]time.Time
	// since is when the leader began to send to the servers added in this term; to all
	// others it began at term.
	since map[plan.PeerID]time.Time
	term  time.Time
}

// begin forgets everything: raft's role changed at time now.
func (s *silence) begin(now time.Time) {
	*s = silence{last: map[plan.PeerID]time.Time{}, since: map[plan.PeerID]time.Time{}, term: now}
}

// added forgets a server that is about to be added.
func (s *silence) added(p plan.PeerID, now time.Time) {
	delete(s.last, p)
	s.since[p] = now
}

// removed forgets a server that is none any more.
func (s *silence) removed(p plan.PeerID) { delete(s.last, p) }

// failed notes a heartbeat without an answer, and reports whether that is news.
func (s *silence) failed(p plan.PeerID, lastContact time.Time) bool {
	if lastContact.Before(s.term) || lastContact.Before(s.since[p]) {
		return false
	}
	_, known := s.last[p]
	s.last[p] = lastContact
	return !known
}

// resumed notes an answer after failures, and reports whether that is news.
func (s *silence) resumed(p plan.PeerID) bool {
	_, known := s.last[p]
	delete(s.last, p)
	return known
}

// of returns how long ago a server was last heard of, 0 when it answers.
func (s *silence) of(p plan.PeerID, now time.Time) time.Duration {
	last, silent := s.last[p]
	if !silent {
		return 0
	}
	return max(now.Sub(last), 1)
}
