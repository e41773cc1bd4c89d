package consensus

import (
	"cmp"
	"slices"
	"time"

	"pnode/planner/plan"
)

const (
	// DeadAfter is the time without a word after which a voter may be replaced, whatever the roster says of it, and no
	// longer counts as one of the nodes that the number of voters follows.
	DeadAfter = 30 * time.Second
	// StandingCheckpoints is how many checkpoints are committed while a node is active until it may vote, if a leader has
	// known it for StandingLeast as well: checkpoints may follow each other within seconds. StandingAfter is the time with
	// one leader that does without checkpoints.
	StandingCheckpoints = 2
	StandingLeast       = time.Minute
	StandingAfter       = 5 * time.Minute
	// FaultsOfNoStanding is the score that takes a node's standing: the first fault may be a lie that was believed.
	FaultsOfNoStanding = 2
)

// Server is one entry of the raft configuration. All are voters but in runs of earlier versions.
type Server struct {
	Peer  plan.PeerID
	Voter bool
}

// Servers holds what Membership decides from, as the leader Self sees it.
type Servers struct {
	Self    plan.PeerID
	Servers []Server
	Members []Member
	// Rule says who may vote. Owners are the run's.
	Rule   plan.VoterRule
	Owners []plan.PeerID
	// AllGo: the run was stopped, and nobody stays. The owners' nodes keep their votes then, to go on without the others.
	AllGo bool
	// Known is how long the leader has known a member; nil where that is for ever.
	Known func(plan.PeerID) time.Duration
	// Vacated: this leader's newest change of the votes took that of a dead voter. Who is to replace it may be a newcomer.
	Vacated bool
	// Silent is how long ago a member was last heard of; 0 when it answers, or was not asked, and for Self.
	Silent func(plan.PeerID) time.Duration
	// Ready reports whether a member without a vote has nearly the whole log. It is asked
	// only about candidates for promotion.
	Ready func(plan.PeerID) bool
}

// ActionKind is one kind of change of the raft configuration.
type ActionKind string

// Rest is no change. Promote gives a member a vote, Demote takes it away. Remove takes a server out that has none: voters
// alone are servers of raft. Transfer hands leadership to a voter, for a leader that is about to lose its vote.
const (
	Rest     ActionKind = "rest"
	Promote  ActionKind = "promote"
	Demote   ActionKind = "demote"
	Remove   ActionKind = "remove"
	Transfer ActionKind = "transfer"
)

// Action is the next change and why.
type Action struct {
	Kind   ActionKind
	Peer   plan.PeerID
	Reason string
}

// Voters returns how many voters n nodes have: 1 below 3 (of two voters the loss of either
// stops the run), 3 from 3, 5 from 5 (any two of five nodes may be lost at once), 7 from 100, which feed the others.
func Voters(n int) int {
	switch {
	case n < 3:
		return 1
	case n < 5:
		return 3
	case n < 100:
		return 5
	}
	return 7
}

// Membership decides the next change of the configuration, one at a time: the next is
// asked for when this one is committed. It never gives a change after which the voters
// that answer are no majority. A voter that is silent and gone from the roster is replaced at
// once. Where nobody can replace it, it keeps its vote for DeadAfter, as it may be back within
// seconds. Then the voters are as many as those that are left have: one of two nodes, so that the
// loss of the other stops nothing. Who is no voter is no server: earlier versions had all members there.
//
// Who votes is a matter of standing: owners' nodes before others, then those that have been active for
// StandingCheckpoints or StandingAfter, now or when they voted before, and were not left out of plans again and again. Others replace only a voter that leaves or is dead,
// where nobody else can.
func Membership(v Servers) Action {
	t := v.tally()
	if a, ok := t.grow(); ok {
		return a
	}
	if a, ok := t.swap(); ok {
		return a
	}
	if a, ok := t.shrink(); ok {
		return a
	}
	for _, s := range v.Servers {
		if !s.Voter && s.Peer != v.Self {
			return Action{Remove, s.Peer, "it has no vote"}
		}
	}
	return Action{Kind: Rest}
}

// standing orders the nodes that may vote.
type standing int

const (
	ownersNode standing = iota
	longStanding
	newcomer
)

// standing returns what a node's vote is worth by the rule.
func (v Servers) standing(p plan.PeerID) standing {
	m, _ := v.member(p)
	known := StandingAfter
	if v.Known != nil {
		known = v.Known(p)
	}
	switch {
	case v.Rule == plan.VotersAny:
		return longStanding
	case slices.Contains(v.Owners, p):
		return ownersNode
	case m.Faults < FaultsOfNoStanding && (m.Voted || known >= StandingAfter || known >= StandingLeast && m.Stood >= StandingCheckpoints):
		return longStanding
	}
	return newcomer
}

// eligible reports whether a node may be given a vote while no voter has to be replaced.
func (v Servers) eligible(p plan.PeerID) bool {
	s := v.standing(p)
	return s == ownersNode || s == longStanding && v.Rule != plan.VotersOwners
}

// tally sorts the servers by what is to become of them.
type tally struct {
	Servers
	voters     int
	answering  int           // voters that answer now
	keep       []plan.PeerID // voters that should stay: by standing, the leader, then by age
	leaving    []plan.PeerID // voters that answer but are draining or gone
	dead       []plan.PeerID // voters not heard of for DeadAfter, or silent and gone
	candidates []plan.PeerID // active members without a vote that answer and may vote, in the order of keep
	stopgaps   []plan.PeerID // those that may vote only in place of one that leaves or is dead
	returning  int           // those that fell silent a moment ago
	doubted    int           // dead voters that fell silent a moment ago
	vacated    int           // 1 where a dead voter's vote has gone, and whoever is to replace it has none yet
	// enough, tooMany: fewer voters that stay than enough are too few; more than tooMany
	// too many. They differ by the nodes that fell silent a moment ago, so that those do
	// not move votes to and fro.
	enough, tooMany int
}

func (v Servers) tally() tally {
	t, last := tally{Servers: v}, v.last()
	for _, s := range v.inOrder() {
		m, known := v.member(s.Peer)
		staying := !known || m.State == Active || m.State == Joining
		if len(last) > 0 {
			staying = slices.Contains(last, s.Peer)
		}
		silent := v.Silent(s.Peer)
		switch {
		case !s.Voter && len(last) > 0:
			if staying {
				t.candidates = append(t.candidates, s.Peer)
			}
		case !s.Voter && known && m.State == Active && silent == 0 && v.eligible(s.Peer):
			t.candidates = append(t.candidates, s.Peer)
		case !s.Voter && known && m.State == Active && silent == 0:
			if v.Rule != plan.VotersOwners {
				t.stopgaps = append(t.stopgaps, s.Peer)
			}
		case !s.Voter && known && m.State == Active && silent < DeadAfter && v.eligible(s.Peer):
			t.returning++
		case !s.Voter:
		case silent >= DeadAfter, silent > 0 && known && m.State == Gone:
			t.dead = append(t.dead, s.Peer)
			if silent < DeadAfter {
				t.doubted++
			}
		case staying:
			t.keep = append(t.keep, s.Peer)
		case silent == 0:
			t.leaving = append(t.leaving, s.Peer)
		}
		if s.Voter {
			t.voters++
		}
		if s.Voter && silent == 0 {
			t.answering++
		}
	}
	if t.Vacated && t.voters%2 == 0 {
		t.vacated = 1
	}
	nodes := len(t.keep) + t.doubted + len(t.candidates) + min(len(t.stopgaps), len(t.dead)+len(t.leaving)+t.vacated)
	if owners := t.ownersNodes(); v.Rule == plan.VotersOwners && owners > 0 {
		nodes = owners
	}
	t.enough, t.tooMany = Voters(nodes), Voters(nodes+t.returning)
	return t
}

// AllGo reports whether the run was stopped and nobody stays: its newest step is saved, it diverged, or one at
// most is active still, who said so.
func AllGo(s State) bool {
	leaves := func(m Member) bool { return !m.stays() }
	_, diverged := s.Diverged()
	return s.StopWanted && !s.Finished && (s.Ended() || diverged || len(slices.DeleteFunc(slices.Clone(s.Members), leaves)) <= 1)
}

// last returns the owners' nodes that answer where all go.
func (v Servers) last() (owners []plan.PeerID) {
	for _, m := range v.Members {
		if v.AllGo && m.State != Gone && slices.Contains(v.Owners, m.Peer) && v.Silent(m.Peer) == 0 {
			owners = append(owners, m.Peer)
		}
	}
	return owners
}

// ownersNodes counts the owners' nodes that vote or may.
func (t tally) ownersNodes() (n int) {
	for _, p := range slices.Concat(t.keep, t.dead, t.candidates) {
		if slices.Contains(t.Owners, p) {
			n++
		}
	}
	return n
}

// nodes returns the voters, and the members without a vote that are there.
func (v Servers) nodes() []Server {
	nodes := slices.DeleteFunc(slices.Clone(v.Servers), func(s Server) bool { return !s.Voter })
	votes := map[plan.PeerID]bool{}
	for _, s := range nodes {
		votes[s.Peer] = true
	}
	for _, m := range v.Members {
		if m.State != Gone && !votes[m.Peer] {
			nodes = append(nodes, Server{Peer: m.Peer})
		}
	}
	return nodes
}

// inOrder returns the nodes by standing, and then by the epoch that their member's state began with, Self first.
func (v Servers) inOrder() []Server {
	type ranked struct {
		Server
		standing standing
		since    uint64
	}
	var all []ranked
	for _, s := range v.nodes() {
		m, _ := v.member(s.Peer)
		r := ranked{s, v.standing(s.Peer), m.Since + 1}
		if s.Peer == v.Self {
			r.since = 0
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.standing, b.standing), cmp.Compare(a.since, b.since), cmp.Compare(a.Peer, b.Peer))
	})
	nodes := make([]Server, len(all))
	for i, r := range all {
		nodes[i] = r.Server
	}
	return nodes
}

func (v Servers) member(p plan.PeerID) (Member, bool) {
	return State{Members: v.Members}.Member(p)
}

// safe reports whether answering voters are a majority of voters.
func safe(answering, voters int) bool { return answering >= voters/2+1 }

// grow promotes when there are too few voters that stay, and enough candidates that have
// the log to reach the next odd number: from one voter to three it is two or none. Where the new voter's own vote would be needed at
// once, a dead voter's vote goes first: of an odd number that leaves as many needed as before, and should the new one fail, nothing is lost.
func (t tally) grow() (Action, bool) {
	if len(t.keep) >= t.enough || !safe(t.answering+1, t.voters+1) {
		return Action{}, false
	}
	need, candidates := 1, t.candidates
	if len(t.dead)+len(t.leaving)+t.vacated > 0 {
		candidates = slices.Concat(candidates, t.stopgaps)
	} else if len(t.keep)%2 == 1 {
		need = 2
	}
	var ready []plan.PeerID
	for _, p := range candidates {
		if len(ready) < need && t.Ready(p) {
			ready = append(ready, p)
		}
	}
	switch needed := t.voters > 1 && !safe(t.answering, t.voters+1); {
	case len(ready) < need:
		return Action{}, false
	case needed && len(t.dead) > 0:
		return t.demote(t.dead[0], "it is dead, and is replaced")
	case needed: // a voter is silent for the moment
		return Action{}, false
	}
	return Action{Promote, ready[0], "too few voters for the number of nodes"}, true
}

// swap promotes a node whose standing is better than that of the last voter, which then is one too many.
func (t tally) swap() (Action, bool) {
	if len(t.keep) == 0 || len(t.keep) < t.tooMany || len(t.dead)+len(t.leaving) > 0 || len(t.candidates) == 0 {
		return Action{}, false
	}
	best, last := t.candidates[0], t.keep[len(t.keep)-1]
	if t.standing(best) >= t.standing(last) || t.Silent(last) > 0 || t.voters > 1 && !safe(t.answering, t.voters+1) || !t.Ready(best) {
		return Action{}, false
	}
	return Action{Promote, best, "it votes before others"}, true
}

// shrink takes the vote of the dead when there are voters enough without them, of those
// that leave when they are replaced or nobody can replace them, and of the youngest of too
// many.
func (t tally) shrink() (Action, bool) {
	if len(t.dead) > 0 && t.voters > t.tooMany { // before the leaving: their vote may be needed for it
		if a, ok := t.demote(t.dead[0], "it is dead, and replaced or not needed"); ok {
			return a, true
		}
	}
	switch {
	case len(t.leaving) > 0 && (len(t.keep) >= t.tooMany || len(t.candidates)+len(t.stopgaps)+t.returning == 0):
		return t.demote(t.leaving[len(t.leaving)-1], "it is leaving")
	case len(t.keep) > t.tooMany:
		return t.demote(t.keep[len(t.keep)-1], t.surplus())
	}
	return Action{}, false
}

// surplus says why the last of the voters is one too many.
func (t tally) surplus() string {
	if t.standing(t.keep[len(t.keep)-1]) > t.standing(t.keep[0]) {
		return "others vote before it"
	}
	return "too many voters for the number of nodes"
}

// demote takes the vote of a voter, after leadership when it is the leader's own.
func (t tally) demote(p plan.PeerID, reason string) (Action, bool) {
	answering := t.answering
	if t.Silent(p) == 0 {
		answering--
	}
	if !safe(answering, t.voters-1) {
		return Action{}, false
	}
	if p != t.Self {
		return Action{Demote, p, reason}, true
	}
	for _, k := range t.keep {
		if t.Silent(k) == 0 && k != t.Self {
			return Action{Transfer, k, "the leader's vote goes: " + reason}, true
		}
	}
	return Action{}, false
}
