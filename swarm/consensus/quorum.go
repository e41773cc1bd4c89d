package consensus

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

const (
	// succeedAfter is by how much a voter waits longer than the one before it, to stand for election in place of a leader
	// whose process has ended: two candidates at once would split the votes. One round trip and two writes go into it. It
	// is longer where messages of that leader came at longer intervals.
	succeedAfter = 500 * time.Millisecond
	// endedAgain is how soon after one such claim about a member another one is not acted on.
	endedAgain = time.Minute
	// maxEndings bounds the claims that wait to be looked at; those that find no room are dropped.
	maxEndings = 16
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
	// Apart is a member that recovered the run and goes on with it, where this node did not have to believe that.
	Apart plan.PeerID
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
	return Quorum{Voters: voters, Silent: silent, Leader: n.reign.leader, LostSince: n.reign.lostSince, Apart: n.apartFrom()}
}

// reign holds who leads, or since when nobody is known to.
type reign struct {
	leader    plan.PeerID
	lostSince time.Time
	known     bool // a leader was known once
}

// take notes at time now who leads, "" for nobody.
func (r *reign) take(leader plan.PeerID, now time.Time) {
	switch {
	case leader != "":
		r.lostSince, r.known = time.Time{}, true
	case r.lostSince.IsZero():
		r.lostSince = now
	}
	r.leader = leader
}

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

// begun returns when the leader began to send to a server.
func (s *silence) begun(p plan.PeerID) time.Time {
	if added, ok := s.since[p]; ok {
		return added
	}
	return s.term
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

// succession lets this node stand in place of a leader whose process has ended. All but Ended belong to the node's lead.
type succession struct {
	node    *Node
	endings chan plan.PeerID // whose processes have ended; capacity maxEndings
	of      plan.PeerID      // the leader in whose place this node may be to stand
	told    map[plan.PeerID]time.Time
}

// Ended notes that the process of a member has ended, as its operating system says. If it led, a voter stands for election
// without waiting for raft's heartbeat timeout. A claim that is false costs an election.
func (s *succession) Ended(p plan.PeerID) {
	select {
	case s.endings <- p:
	default: // the heartbeat timeout tells
	}
}

// due returns how many voters stand before this node in place of a member that has ended; voters are sorted. stands is
// false where that member does not lead, this node has no vote, or the same was said a short while ago.
func (s *succession) due(ended, leader, self plan.PeerID, voters []plan.PeerID, now time.Time) (before int, stands bool) {
	if at, told := s.told[ended]; ended != leader || ended == self || !slices.Contains(voters, self) || told && now.Sub(at) < endedAgain {
		return 0, false
	}
	if s.told == nil || len(s.told) > MaxMembers {
		s.told = map[plan.PeerID]time.Time{}
	}
	s.of, s.told[ended] = ended, now
	heirs := slices.DeleteFunc(slices.Clone(voters), func(p plan.PeerID) bool { return p == ended })
	return slices.Index(heirs, self), true
}

// stand has raft stand for election in place of a leader that has ended, unless another one leads by now. Raft does that
// on the message by which a leader hands over: the others then vote though they may still take that leader for alive.
func (s *succession) stand(ctx context.Context) {
	n := s.node
	e := n.engine.Load()
	if leader, _, _ := n.Leader(); e.raft.State() != raft.Follower || leader != s.of && leader != "" {
		return
	}
	n.config.Logger.Info("consensus: the leader's process has ended: standing for election", "leader", s.of)
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.self), Addr: []byte(n.self)}
	select {
	case e.transport.messages <- raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: header}, RespChan: make(chan raft.RPCResponse, 1)}:
	case <-n.store.broken:
	case <-ctx.Done():
	}
}
