package consensus

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	// Changes counts how often another leader became known than the one before, since this process began.
	Changes uint64
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
	return Quorum{Voters: voters, Silent: silent, Leader: n.reign.leader, LostSince: n.reign.lostSince, Changes: n.reign.changes, Apart: n.apartFrom()}
}

// reign holds who leads, or since when nobody is known to.
type reign struct {
	leader    plan.PeerID
	lostSince time.Time
	known     bool        // a leader was known once
	last      plan.PeerID // that was known
	changes   uint64      // from one known leader to another
}

// take notes at time now who leads, "" for nobody.
func (r *reign) take(leader plan.PeerID, now time.Time) {
	switch {
	case leader != "":
		if r.last != "" && r.last != leader {
			r.changes++
		}
		r.lostSince, r.known, r.last = time.Time{}, true, leader
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
	// since is when the leader began to send to the voters added in this term; to all
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

const (
	// rollEvery is how often the leader asks members without a vote whether they answer.
	rollEvery = 5 * time.Second
	// rollOf bounds those that are asked because they may vote next, and those that did not answer.
	rollOf = 8
)

// roll knows of members without a vote, while this node leads, for how long it has known them and which do not answer. Raft
// knows that of voters alone. It asks those that may vote next, so that one of them can be given a vote at once: as many
// however many members there are.
type roll struct {
	node *Node

	mu   sync.Mutex // guards the rest
	term uint64     // in which this node leads
	met  map[plan.PeerID]time.Time
	deaf map[plan.PeerID]time.Time // since when
	turn int                       // of the deaf
	// promoting is who is about to be given a vote; what is said of it meanwhile is put into the log after that. promoted is closed then.
	promoting plan.PeerID
	promoted  chan struct{}
}

// promotes has what is said of a member wait, until the function that it returns is called.
func (y *roll) promotes(p plan.PeerID) (end func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	done := make(chan struct{})
	y.promoting, y.promoted = p, done
	return func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.promoting = ""
		close(done)
	}
}

// await blocks until an entry may be put into the log, or ctx ends: a member that leaves must see the vote that it was given
// before the log has that it is gone.
func (y *roll) await(ctx context.Context, e Entry) {
	set, ok := e.(SetMemberState)
	y.mu.Lock()
	promoted := y.promoted
	waits := ok && set.Peer == y.promoting
	y.mu.Unlock()
	if waits {
		select {
		case <-promoted:
		case <-ctx.Done():
		}
	}
}

// meet takes in who is in the roster.
func (y *roll) meet(members []Member) {
	term, now := y.node.engine.Load().raft.CurrentTerm(), time.Now()
	y.node.mu.Lock()
	began := y.node.silence.term
	y.node.mu.Unlock()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.term == term {
		began = now
	} else {
		y.term, y.met, y.deaf = term, map[plan.PeerID]time.Time{}, map[plan.PeerID]time.Time{}
	}
	for _, m := range members {
		if m.State == Gone {
			delete(y.met, m.Peer)
			delete(y.deaf, m.Peer)
		} else if _, known := y.met[m.Peer]; !known {
			y.met[m.Peer] = began
		}
	}
}

// known returns for how long this leader has known a member.
func (y *roll) known(p plan.PeerID) time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	if at, ok := y.met[p]; ok {
		return time.Since(at)
	}
	return 0
}

// silent returns for how long a member has not answered that was asked; 0 for all others.
func (y *roll) silent(p plan.PeerID) time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	if at, ok := y.deaf[p]; ok {
		return max(time.Since(at), 1)
	}
	return 0
}

// note takes in whether a member has answered that was asked at a time, and reports whether that is news.
func (y *roll) note(p plan.PeerID, answers bool, asked time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	_, deaf := y.deaf[p]
	switch _, met := y.met[p]; {
	case answers:
		delete(y.deaf, p)
	case !deaf && met:
		y.deaf[p] = asked
	}
	return deaf == answers
}

// whom returns the members to ask next: those that may vote before others, and some that did not answer.
func (y *roll) whom(v Servers) (asked []plan.PeerID) {
	y.mu.Lock()
	deaf := slices.Collect(maps.Keys(y.deaf))
	y.mu.Unlock()
	slices.Sort(deaf)
	for range min(rollOf, len(deaf)) {
		y.turn++
		asked = append(asked, deaf[y.turn%len(deaf)])
	}
	left := rollOf
	for _, s := range v.inOrder() {
		if m, _ := v.member(s.Peer); !s.Voter && m.State == Active && s.Peer != v.Self && left > 0 && !slices.Contains(asked, s.Peer) {
			asked = append(asked, s.Peer)
			left--
		}
	}
	return asked
}

// run asks while this node leads, until ctx ends.
func (y *roll) run(ctx context.Context) {
	tick := time.NewTicker(rollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, _, leads := y.node.Leader(); !leads {
			continue
		}
		var asking sync.WaitGroup
		var news atomic.Bool
		for _, p := range y.whom(y.servers(ctx)) {
			asking.Go(func() {
				began := time.Now()
				if y.note(p, y.node.Answers(ctx, p), began) && ctx.Err() == nil {
					news.Store(true)
				}
			})
		}
		if asking.Wait(); news.Load() {
			y.node.broadcast()
		}
	}
}

// servers returns what the next change of the servers is decided from.
func (y *roll) servers(ctx context.Context) Servers {
	n, s := y.node, y.node.State()
	v := Servers{
		AllGo: AllGo(s), Self: n.self, Servers: n.Servers(), Members: s.Members, Rule: plan.VotersAny, Owners: s.Owners, Known: y.known, Vacated: n.vacancy.stands(n.engine.Load().raft.CurrentTerm()),
		Silent: n.Silence, Ready: func(p plan.PeerID) bool {
			began := time.Now()
			applied, ok := n.applied(ctx, p)
			if ctx.Err() == nil {
				y.note(p, ok, began)
			}
			return ok && applied+readyLag >= n.engine.Load().raft.CommitIndex()
		},
	}
	if s.Run != nil {
		v.Rule = s.Run.Train.Voters
	}
	return v
}
