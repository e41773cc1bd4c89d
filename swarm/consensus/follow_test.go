package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
	"pnode/swarm/consensus/feed"
)

// crowd runs a test with a cluster of so many members, of which the first so many are active. All but one come when the
// roster is complete, far behind.
func crowd(t *testing.T, members, active int, test func(*testing.T, *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			t: t, net: newMemoryNet(20 * time.Millisecond), kv: map[plan.PeerID]*memoryKV{},
			nodes: map[plan.PeerID]*Node{}, wires: map[plan.PeerID]*memoryTransport{}, lastHeard: map[[2]plan.PeerID]time.Time{},
		}
		defer func() {
			for _, p := range c.peers {
				c.stop(p)
			}
		}()
		a := c.join("a")
		c.until("that it leads", func() bool { return c.leader() == a })
		name := func(i int) plan.PeerID { return plan.PeerID(fmt.Sprintf("m%04d", i)) }
		says := func(p plan.PeerID, e Entry) {
			as := &author{Signer: keyOf(p), self: p, run: "run"}
			b, err := as.sign(a.State(), e)
			if err == nil {
				err = c.leader().commit(t.Context(), b.encode())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := 1; i < members; i++ {
			says(name(i), Join{Peer: name(i), ProcessEpoch: 1})
		}
		run := testRun()
		run.Spec.Train.Voters = plan.VotersAny
		c.must(a, run)
		for i := range uint64(trailingLogs) {
			c.must(a, WantPause{Count: i + 1})
		}
		if err := a.engine.Load().raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < members; i++ {
			c.start(name(i))
		}
		for i := 1; i < active; i++ {
			c.must(c.nodes[name(i)], SetMemberState{Peer: name(i), ProcessEpoch: 1, State: Active})
		}
		c.until("the voters", func() bool {
			l := c.leader()
			return l != nil && len(l.Servers()) == Voters(active)
		})
		c.everywhere("the roster", func(s State) bool { return s.present() == members })
		test(t, c)
	})
}

// size returns a number of members, less where time is short.
func size(short, long int) int {
	if testing.Short() {
		return short
	}
	return long
}

// all returns how many live nodes have what ok wants.
func (c *cluster) all(ok func(State) bool) (n int) {
	for _, node := range c.nodes {
		if ok(node.State()) {
			n++
		}
	}
	return n
}

// feeders returns how many followers each live voter feeds.
func (c *cluster) feeders() map[plan.PeerID]int {
	fed := map[plan.PeerID]int{}
	for p, n := range c.nodes {
		if f := n.engine.Load().giver.Fed(); f > 0 {
			fed[p] = f
		}
	}
	return fed
}

// TestFollowers: members without a vote have the log from voters other than the leader, and go on with it when a voter that
// feeds them, or the leader, is killed.
func TestFollowers(t *testing.T) {
	crowd(t, size(40, 160), 10, func(t *testing.T, c *cluster) {
		l := c.leader()
		time.Sleep(time.Minute)
		fed := c.feeders()
		t.Logf("fed: %v, %s leads", fed, l.self)
		if fed[l.self] > 0 || len(fed) != Voters(10)-1 {
			t.Errorf("%s leads, and voters feed %v", l.self, fed)
		}
		if head, err := (&snapshotStore{kv: c.kv["m0030"]}).head(); err != nil || head.Number == 0 {
			t.Errorf("a follower far behind came without a snapshot: %v", err)
		}
		pauses := uint64(trailingLogs)
		reaches := func(what string) time.Duration {
			pauses++
			c.must(c.leader(), WantPause{Count: pauses})
			return c.until(what, func() bool { return c.all(func(s State) bool { return s.PauseWanted == pauses }) == len(c.nodes) })
		}
		t.Logf("an entry is everywhere %v after it was committed", reaches("an entry everywhere"))
		var feeder plan.PeerID
		for p := range fed {
			feeder = max(feeder, p)
		}
		c.crash(feeder)
		if took := reaches("an entry everywhere without a feeder"); took > 5*time.Second {
			t.Errorf("after a feeder's end an entry took %v", took)
		} else {
			t.Logf("after a feeder's end an entry took %v", took)
		}
		c.crash(l.self)
		t.Logf("a new leader after %v", c.until("a new leader", func() bool { return c.leader() != nil }))
		t.Logf("an entry after the leader's end is everywhere after %v", reaches("an entry of the next leader everywhere"))
		second := c.leader()
		c.until("followers know who leads", func() bool {
			return c.all(func(s State) bool { return s.Leader == second.self }) == len(c.nodes)
		})
		time.Sleep(time.Minute)
		if fed := c.feeders(); fed[second.self] > 0 {
			t.Errorf("%s leads, and voters feed %v", second.self, fed)
		}
	})
}

// TestFollowersOfASilentFeeder: a feeder that is cut off from its followers and the others is left within feed.Patience, and known for it.
func TestFollowersOfASilentFeeder(t *testing.T) {
	crowd(t, 24, 10, func(t *testing.T, c *cluster) {
		l := c.leader()
		var feeder plan.PeerID
		c.until("that voters feed all others in the leader's place", func() bool {
			fed, followers := c.feeders(), 0
			for p, n := range fed {
				followers += n
				if fed[feeder] < n {
					feeder = p
				}
			}
			return fed[l.self] == 0 && followers == len(c.nodes)-Voters(10)
		})
		c.net.partition(feeder)
		c.must(l, WantPause{Count: trailingLogs + 1})
		took := c.until("the entry at all others", func() bool {
			return c.all(func(s State) bool { return s.PauseWanted == trailingLogs+1 }) == len(c.nodes)-1
		})
		t.Logf("all others have an entry after %v", took)
		if took > feed.Patience(24)+time.Second {
			t.Errorf("all others have an entry after %v", took)
		}
		c.net.partition()
		c.everywhere("the entry", func(s State) bool { return s.PauseWanted == trailingLogs+1 })
	})
}

// takesAVote gives the vote of one that was sent away to the spare node. It returns the leader, and who has lost its vote.
func (c *cluster) takesAVote(away func(plan.PeerID)) (leader *Node, victim plan.PeerID) {
	c.t.Helper()
	c.must(c.leader(), testRun())
	spare := c.spare().self
	leader = c.leader()
	for _, s := range leader.Servers() {
		if s.Peer != leader.self && s.Peer != "a" {
			victim = s.Peer
		}
	}
	away(victim)
	time.Sleep(DeadAfter)
	c.until("the spare's vote", func() bool { return slices.Contains(leader.Servers(), Server{spare, true}) })
	c.until("the loss of the vote", func() bool { return !slices.Contains(leader.Servers(), Server{victim, true}) })
	return leader, victim
}

// TestAVoterThatLostItsVoteUnheard: a voter is cut off while its vote is taken, and hears of that from other voters.
func TestAVoterThatLostItsVoteUnheard(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		l, victim := c.takesAVote(func(p plan.PeerID) { c.net.partition(p) })
		_, term, _ := l.Leader()
		c.net.partition()
		c.until("that it hears of it", func() bool { return !slices.Contains(c.nodes[victim].Servers(), Server{victim, true}) })
		c.goesOn(c.nodes[victim])
		if _, now, self := l.Leader(); !self || now != term {
			t.Errorf("it cost an election: term %d, it was %d", now, term)
		}
	})
}

// TestAVoterThatLostItsVoteWhileItWasAway: a voter is killed, and its vote is taken. When it is started again its log says that it votes,
// and no leader's message comes: other voters bring it the log at once, before it asks for votes.
func TestAVoterThatLostItsVoteWhileItWasAway(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		_, victim := c.takesAVote(c.crash)
		c.start(victim)
		if !slices.Contains(c.nodes[victim].Servers(), Server{victim, true}) {
			t.Fatal("its log does not say that it votes")
		}
		took := c.until("that it hears of it", func() bool { return !slices.Contains(c.nodes[victim].Servers(), Server{victim, true}) })
		if took >= heartbeatTimeout {
			t.Errorf("it hears after %v that it has no vote", took)
		}
		c.goesOn(c.nodes[victim])
	})
}

// TestVotersDoNotFeedEachOther: of three voters the leader dies for good, and the others are killed and come back one after the other. Each
// heard of the leader from the other one alone: neither goes on to tell of it, and one of them is elected.
func TestVotersDoNotFeedEachOther(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		l := c.leader().self
		others := slices.DeleteFunc(votersOf(c.leader().Servers()), func(p plan.PeerID) bool { return p == l })
		c.crash(l)
		for _, p := range others {
			c.crash(p)
			c.start(p)
			time.Sleep(time.Second)
		}
		c.until("a leader", func() bool { return c.leader() != nil })
		c.goesOn(c.nodes[others[0]])
	})
}

// TestAFollowerInALaterTerm: a member without a vote was a candidate before it lost that, in a term of which nobody heard. It has the log again
// after an election, and costs no other.
func TestAFollowerInALaterTerm(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		spare := c.spare().self
		c.crash(spare)
		_, term, _ := c.leader().Leader()
		if err := (logStore{c.kv[spare]}).Set([]byte("CurrentTerm"), binary.BigEndian.AppendUint64(nil, uint64(term)+3)); err != nil {
			t.Fatal(err)
		}
		c.must(c.leader(), WantPause{Count: 1})
		c.start(spare)
		c.until("the entry", func() bool { return c.nodes[spare].State().PauseWanted == 1 })
		c.until("a leader", func() bool { return c.leader() != nil })
		_, newest, _ := c.leader().Leader()
		c.goesOn(c.nodes[spare])
		time.Sleep(time.Minute)
		if _, now, self := c.leader().Leader(); !self || now != newest || now > term+4 {
			t.Errorf("term %d, it was %d, and %d before", now, newest, term)
		}
	})
}

// TestPatienceGrowsWithTheMembers: a follower waits as long for its feeder as the run's members now ask for, however many they were when it began
// to follow.
func TestPatienceGrowsWithTheMembers(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		l, spare := c.leader(), c.spare()
		for i := range 300 {
			p := plan.PeerID(fmt.Sprintf("m%04d", i))
			as := &author{Signer: keyOf(p), self: p, run: "run"}
			b, err := as.sign(l.State(), Join{Peer: p, ProcessEpoch: 1})
			if err == nil {
				err = l.commit(t.Context(), b.encode())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		c.everywhere("the roster", func(s State) bool { return s.present() == 304 })
		time.Sleep(time.Minute)
		spare.timing.mu.Lock()
		defer spare.timing.mu.Unlock()
		if waits, _ := spare.timing.timeouts(); waits < feed.Patience(304) {
			t.Errorf("it waits %v for a feeder that may be silent for %v", waits, feed.Patience(304))
		}
	})
}

// warnings collects what a node warns of.
type warnings struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	w.lines = append(w.lines, line)
	return nil
}

// TestAFeederWithoutAVote: a member that does not vote says that it feeds, and shows the run's own vouchers: nothing of it is
// taken, and it is named.
func TestAFeederWithoutAVote(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		liar := c.join("x")
		victim := c.join("y")
		c.until("the run at both", func() bool { return liar.State().Run != nil && victim.State().Run != nil })
		if slices.Contains(votersOf(c.leader().Servers()), "x") || slices.Contains(votersOf(c.leader().Servers()), "y") {
			t.Fatal("they vote")
		}
		var told warnings
		victim.config.Logger = slog.New(&told)
		lie := liar.engine.Load()
		lie.giver = feed.NewGiver(pretender{source{liar, lie}}, nil)
		liar.engine.Store(lie)
		if _, _, err := victim.follower.Open(t.Context(), "x", false); !errors.Is(err, ErrForbidden) {
			t.Errorf("a feed from a member without a vote: %v", err)
		}
		if !slices.ContainsFunc(told.lines, func(l string) bool { return strings.Contains(l, "are not taken") && strings.Contains(l, "peer=x") }) {
			t.Errorf("nobody is named: %v", told.lines)
		}
	})
}

// pretender says that it votes.
type pretender struct{ source }

func (p pretender) View() feed.View {
	v := p.source.View()
	v.Votes, v.Leader = true, p.node.self
	return v
}

// TestCheckFeed: what a feed may bring, and in whose name.
func TestCheckFeed(t *testing.T) {
	votes := func(p plan.PeerID) error {
		if p == "v" {
			return nil
		}
		return ErrForbidden
	}
	as := func(id, addr string) raft.RPCHeader { return raft.RPCHeader{ID: []byte(id), Addr: []byte(addr)} }
	for name, test := range map[string]struct {
		message any
		taken   bool
	}{
		"entries":                {&raft.AppendEntriesRequest{RPCHeader: as("v", "v"), Term: 9}, true},
		"a snapshot":             {&raft.InstallSnapshotRequest{RPCHeader: as("v", "v"), Term: 9}, true},
		"in no voter's name":     {&raft.AppendEntriesRequest{RPCHeader: as("m", "m"), Term: 9}, false},
		"in nobody's name":       {&raft.AppendEntriesRequest{Term: 9}, false},
		"in two names":           {&raft.AppendEntriesRequest{RPCHeader: as("v", "m"), Term: 9}, false},
		"in this node's name":    {&raft.AppendEntriesRequest{RPCHeader: as("s", "s"), Term: 9}, false},
		"a term far ahead":       {&raft.AppendEntriesRequest{RPCHeader: as("v", "v"), Term: 10 + maxTermRaise}, false},
		"a question for a vote":  {&raft.RequestVoteRequest{RPCHeader: as("v", "v"), Term: 9}, false},
		"one before that":        {&raft.RequestPreVoteRequest{RPCHeader: as("v", "v"), Term: 9}, false},
		"a request to stand now": {&raft.TimeoutNowRequest{RPCHeader: as("v", "v")}, false},
	} {
		if err := checkFeed("f", "s", test.message, votes, 9); (err == nil) != test.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCostOfFollowers measures what members send while nothing happens: the leader's part does not grow with them.
func TestCostOfFollowers(t *testing.T) {
	sizes := []int{8, 40}
	if !testing.Short() {
		sizes = append(sizes, 64, 256, MaxMembers)
	}
	for _, members := range sizes {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			crowd(t, members, min(members, 120), func(t *testing.T, c *cluster) {
				time.Sleep(2 * time.Minute)
				before := map[plan.PeerID]int64{}
				for p, w := range c.wires {
					before[p] = w.sent.Load()
				}
				time.Sleep(time.Minute)
				l, voters := c.leader().self, votersOf(c.leader().Servers())
				var leader, voter, follower float64
				for p, w := range c.wires {
					rate := float64(w.sent.Load()-before[p]) / 60
					switch {
					case p == l:
						leader = rate
					case slices.Contains(voters, p):
						voter += rate / float64(len(voters)-1)
					default:
						follower += rate / float64(max(1, members-len(voters)))
					}
				}
				t.Logf("%d members, %d voters: writes a second: leader %.1f, another voter %.1f, a follower %.2f; fed: %v", members, len(voters), leader, voter, follower, c.feeders())
				if leader > 16*float64(len(voters)) {
					t.Errorf("the leader sends %.1f messages and answers a second", leader)
				}
			})
		})
	}
}
