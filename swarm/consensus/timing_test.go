package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

// TestElectionsFollowRoundTrips kills the leader of runs on lines of several lengths without a word to the others. Their
// patience grows with the line, and a new leader plans in proportion.
func TestElectionsFollowRoundTrips(t *testing.T) {
	for _, test := range []struct {
		nodes     int
		oneWay    time.Duration
		least     time.Duration // that followers wait for the leader's next message
		most      time.Duration
		newLeader time.Duration // in the time that an election takes at most, and two that fail
	}{
		{3, 100 * time.Microsecond, heartbeatTimeout, heartbeatTimeout, 3 * 2 * heartbeatTimeout},
		{9, 50 * time.Millisecond, heartbeatTimeout, 2 * heartbeatTimeout, 3 * 3 * heartbeatTimeout},
		{9, 200 * time.Millisecond, heartbeatTimeout, 2 * heartbeatTimeout, 3 * 3 * heartbeatTimeout},
		{9, 400 * time.Millisecond, heartbeatTimeout + timingGrain, 3 * heartbeatTimeout, 3 * 4 * heartbeatTimeout},
	} {
		t.Run(fmt.Sprintf("%d nodes %v", test.nodes, test.oneWay), func(t *testing.T) {
			inBubbleOf(t, newMemoryNet(test.oneWay), test.nodes, func(t *testing.T, c *cluster) {
				c.must(c.leader(), testRun())
				time.Sleep(time.Minute)
				l := c.leader()
				if l == nil {
					t.Fatal("nobody leads after a quiet minute")
				}
				_, before, _ := l.Leader()
				if got := l.engine.Load().raft.ReloadableConfig(); got.HeartbeatTimeout != heartbeatTimeout {
					t.Errorf("the leader sends in proportion to %v", got.HeartbeatTimeout)
				}
				for _, p := range votersOf(l.Servers()) {
					got := c.nodes[p].engine.Load().raft.ReloadableConfig().HeartbeatTimeout
					if p != l.self && (got < test.least || got > test.most) {
						t.Errorf("%s waits for %v, want %v to %v", p, got, test.least, test.most)
					}
				}
				c.crash(l.self)
				took := c.until("another one to lead", func() bool { return c.leader() != nil })
				if took > test.newLeader { // virtual
					t.Errorf("a new leader took %v, at most %v", took, test.newLeader)
				}
				_, term, _ := c.leader().Leader()
				t.Logf("a new leader after %v, %d terms later", took, term-before)
				c.must(c.leader(), WantPause{Count: 1})
			})
		})
	}
}

// TestVotesThatComeLate has every new stream take six seconds, as on machines that are busy with other things: longer than
// raft waits for a stream at first, and than a candidate waits for votes.
func TestVotesThatComeLate(t *testing.T) {
	net, slow := newMemoryNet(50*time.Millisecond), atomic.Bool{}
	net.opening = func() time.Duration {
		if slow.Load() {
			return 6 * time.Second
		}
		return 0
	}
	inBubbleOf(t, net, 9, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		slow.Store(true)
		c.crash(c.leader().self)
		began := time.Now()
		for c.leader() == nil {
			if time.Since(began) > time.Minute {
				t.Fatal("nobody leads after a minute")
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("a new leader after %v", time.Since(began))
	})
}

// TestTimingIsBounded: whatever is measured, timeouts are in order, and within their bounds.
func TestTimingIsBounded(t *testing.T) {
	for _, test := range []struct {
		name                string
		gap, vote           time.Duration
		heartbeat, election time.Duration
	}{
		{"nothing measured", 0, 0, heartbeatTimeout, heartbeatTimeout},
		{"loopback", 400 * time.Millisecond, time.Millisecond, heartbeatTimeout, heartbeatTimeout},
		{"a long line", 800 * time.Millisecond, time.Second, 3250 * time.Millisecond, 3250 * time.Millisecond},
		{"votes of busy machines", 400 * time.Millisecond, 3 * time.Second, heartbeatTimeout, 6 * time.Second},
		{"a leader that is late", 9 * time.Second, time.Second, maxHeartbeatTimeout, maxHeartbeatTimeout},
		{"a cut", time.Minute, time.Second, heartbeatTimeout, heartbeatTimeout},
		{"votes after a cut", 0, time.Minute, heartbeatTimeout, maxElectionTimeout},
	} {
		m, at := newTiming(), time.Unix(1000, 0)
		m.heard("a", at)
		m.heard("a", at.Add(test.gap))
		m.voted(test.vote)
		heartbeat, election := m.timeouts()
		if heartbeat != test.heartbeat || election != test.election {
			t.Errorf("%s: %v for the leader's messages, %v for votes; want %v and %v", test.name, heartbeat, election, test.heartbeat, test.election)
		}
		conf := raft.DefaultConfig()
		conf.LocalID, conf.LeaderLeaseTimeout = "a", leaseTimeout
		conf.HeartbeatTimeout, conf.ElectionTimeout = heartbeat, election
		if err := raft.ValidateConfig(conf); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		m.leads = true
		if heartbeat, election = m.timeouts(); heartbeat != heartbeatTimeout || election != test.election {
			t.Errorf("%s, leading: %v and %v", test.name, heartbeat, election)
		}
	}
	m := newTiming()
	for range gapsRemembered + 1 {
		m.heard("a", m.last.Add(time.Second))
	}
	for range gapsRemembered {
		m.heard("a", m.last.Add(time.Millisecond))
	}
	if heartbeat, _ := m.timeouts(); heartbeat != heartbeatTimeout {
		t.Errorf("%v, by gaps of long ago", heartbeat)
	}
	m.heard("b", m.last.Add(5*time.Second))
	if heartbeat, _ := m.timeouts(); heartbeat != heartbeatTimeout {
		t.Errorf("%v, by the time between two leaders", heartbeat)
	}
}

// TestDialsThatRunOutOfTime get twice the time with each try, up to a bound, and as much as they took once they succeed.
func TestDialsThatRunOutOfTime(t *testing.T) {
	m := newTiming()
	for _, want := range []time.Duration{rpcTimeout, 2 * rpcTimeout, maxDialTimeout, maxDialTimeout} {
		got := m.dialTimeout("b")
		if got != want {
			t.Errorf("a stream may take %v, want %v", got, want)
		}
		m.dialed("b", got, fmt.Errorf("opened late: %w", context.DeadlineExceeded))
	}
	if got := m.dialTimeout("c"); got != rpcTimeout {
		t.Errorf("another peer's may take %v", got)
	}
	m.dialed("b", time.Second, nil)
	if got := m.dialTimeout("b"); got != rpcTimeout {
		t.Errorf("after one that took a second: %v", got)
	}
}

// TestAnIdleLeaderIsQuiet: while nothing is written, members hear from the leader some times a second and no more.
func TestAnIdleLeaderIsQuiet(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		time.Sleep(10 * time.Second)
		before := c.net.sent.Load()
		time.Sleep(time.Minute)
		perMember := float64(c.net.sent.Load()-before) / 60 / 4
		t.Logf("%.1f messages and answers a second for each member", perMember)
		if perMember > 16 {
			t.Errorf("%.1f messages and answers a second for each member", perMember)
		}
		old := c.leader()
		c.net.partition(old.self)
		c.until("another one leads", func() bool { l := c.leader(); return l != nil && l != old })
	})
}

// TestRepeats: only what a server has answered a moment ago is not sent again.
func TestRepeats(t *testing.T) {
	type request = raft.AppendEntriesRequest
	at, answer := time.Unix(1000, 0), raft.AppendEntriesResponse{Term: 3, Success: true}
	message := func(change func(*request)) *request {
		q := &request{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, LeaderCommitIndex: 6}
		change(q)
		return q
	}
	same := message(func(*request) {})
	heartbeat, entries := &request{Term: 3}, message(func(q *request) { q.Entries = []*raft.Log{{}} })
	for _, test := range []struct {
		name     string
		answered []*request
		now      *request
		after    time.Duration
		want     bool
	}{
		{"nothing yet", nil, same, 0, false},
		{"the same", []*request{same}, same, repeatAfter - 1, true},
		{"the same, later", []*request{same}, same, repeatAfter, false},
		{"another term", []*request{same}, message(func(q *request) { q.Term++ }), 0, false},
		{"a longer log", []*request{same}, message(func(q *request) { q.PrevLogEntry++ }), 0, false},
		{"another log", []*request{same}, message(func(q *request) { q.PrevLogTerm++ }), 0, false},
		{"more is committed", []*request{same}, message(func(q *request) { q.LeaderCommitIndex++ }), 0, false},
		{"entries", []*request{same}, entries, 0, false},
		{"after entries", []*request{same, entries}, same, 0, false},
		{"a heartbeat", []*request{same}, heartbeat, 0, false},
		{"after a heartbeat alone", []*request{heartbeat}, same, 0, false},
	} {
		g := &guarded{told: map[raft.ServerID]told{}}
		for _, q := range test.answered {
			g.tell("b", q, &answer, at)
		}
		var r raft.AppendEntriesResponse
		if got := g.repeats("b", test.now, &r, at.Add(test.after)); got != test.want || got && r.Term != answer.Term {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if g.repeats("c", test.now, &r, at) {
			t.Errorf("%s: another server's answer counts", test.name)
		}
	}
	g := &guarded{told: map[raft.ServerID]told{}}
	g.tell("b", same, &answer, at)
	g.tell("b", heartbeat, &answer, at.Add(time.Second))
	if !g.repeats("b", same, new(raft.AppendEntriesResponse), at.Add(time.Second+repeatAfter-1)) {
		t.Error("a heartbeat that was answered is no sign of life")
	}
	g.tell("b", same, &raft.AppendEntriesResponse{Term: 3}, at.Add(time.Second))
	if g.repeats("b", same, new(raft.AppendEntriesResponse), at.Add(time.Second)) {
		t.Error("a refusal counts")
	}
	if repeatAfter+leaseTimeout >= heartbeatTimeout {
		t.Error("a leader may lead for longer than followers wait")
	}
}

// TestWhatStepsWaitForIsToldAtOnce: followers know of an entry for which steps stand still within a round trip and a half after it
// is committed, and not with raft's next look at how far they are.
func TestWhatStepsWaitForIsToldAtOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		time.Sleep(time.Second)
		follower := c.follower()
		m, _ := follower.State().Member(follower.self)
		c.must(follower, SetMemberState{Peer: follower.self, ProcessEpoch: m.ProcessEpoch, State: Draining})
		// It was committed 20 ms before. A message of before may be on its way and back.
		time.Sleep(40 * time.Millisecond)
		synctest.Wait()
		for p, n := range c.nodes {
			if m, _ := n.State().Member(follower.self); m.State != Draining {
				t.Errorf("%s does not know", p)
			}
		}
	})
}

// TestASlowDiskWritesNothingTwice: the leader's disk takes 8 s for each write, and who proposes waits 10 s at first. What is proposed again
// meanwhile is the entry that is on its way, and patience grows with the disk's times.
func TestASlowDiskWritesNothingTwice(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		time.Sleep(time.Minute)
		l, f := c.leader(), c.follower()
		if got := l.Patience(); got != proposeTimeout {
			t.Errorf("on a quick disk proposals may take %v, want %v", got, proposeTimeout)
		}
		before := l.engine.Load().raft.LastIndex()
		c.kv[l.self].slowDown(8 * time.Second)
		propose := func(n *Node, e Entry, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return n.Propose(ctx, e)
		}
		again := func(n *Node, e Entry) {
			err := ErrNoLeader
			for errors.Is(err, ErrNoLeader) {
				err = propose(n, e, 3*time.Second)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		again(l, WantPause{Count: l.State().PauseWanted + 1})
		m, _ := f.State().Member(f.self)
		again(f, Update{Peer: f.self, ProcessEpoch: m.ProcessEpoch})
		time.Sleep(time.Minute)
		if wrote := l.engine.Load().raft.LastIndex() - before; wrote != 2 || c.leader() != l {
			t.Errorf("two proposals, each made again and again, are %d entries of the log; %s led and %s leads", wrote, l.self, c.leader().self)
		}
		if got := l.Patience(); got < 5*8*time.Second || got > maxProposeTimeout {
			t.Errorf("proposals may take %v where a write takes 8 s", got)
		}
		c.kv[l.self].slowDown(0)
		for range 2 * commitsRemembered {
			c.must(l, WantPause{Count: l.State().PauseWanted + 1})
		}
		if got := l.Patience(); got != proposeTimeout {
			t.Errorf("once the disk is quick again proposals may take %v, want %v", got, proposeTimeout)
		}
	})
}

// TestWhatWasSaidOtherwiseMeanwhileIsProposedAnew: the same again is on its way only until its author has said something else.
func TestWhatWasSaidOtherwiseMeanwhileIsProposedAnew(t *testing.T) {
	c, now := newCommits(newTiming()), time.Now()
	of := func(author plan.PeerID, incarnation uint64, e Entry) (*commit, bool) {
		body, err := EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		return c.begin(proposal{author: author, incarnation: incarnation, entry: e, body: body}, now)
	}
	first, again := of("a", 1, WantPause{Count: 1})
	if same, on := of("a", 1, WantPause{Count: 1}); again || !on || same != first {
		t.Errorf("again: %v, %v", same == first, on)
	}
	for what, is := range map[string]func() (*commit, bool){
		"another author":      func() (*commit, bool) { return of("b", 1, WantPause{Count: 1}) },
		"another incarnation": func() (*commit, bool) { return of("a", 2, WantPause{Count: 1}) },
		"another type":        func() (*commit, bool) { return of("a", 1, WantStop{}) },
	} {
		if other, on := is(); on || other == first {
			t.Errorf("%s: it is on its way", what)
		}
	}
	second, on := of("a", 1, WantPause{Count: 2})
	if third, back := of("a", 1, WantPause{Count: 1}); on || back || second == first || third == first {
		t.Error("what came before something else counts for what comes after it")
	}
	c.end(first, nil, now)
	<-first.done
	last, on := of("a", 1, WantPause{Count: 1})
	if !on {
		t.Error("the end of the first ends the third")
	}
	stage, other := StageSaved{Step: 3, Layers: []LayerRef{{Layer: 1}}}, StageSaved{Step: 3, Layers: []LayerRef{{Layer: 2}}}
	saved, _ := of("a", 1, stage)
	if _, on := of("a", 1, other); on {
		t.Error("another stage's save is on its way")
	}
	if same, on := of("a", 1, stage); !on || same != saved {
		t.Error("a save is proposed anew after another stage's")
	}
	c.end(last, ErrRejected, now)
	if _, on := of("a", 1, WantPause{Count: 1}); on || !errors.Is(last.err, ErrRejected) {
		t.Errorf("after its outcome %v it is on its way", last.err)
	}
}

// TestProposalsOfASlowDiskKeepTheirOrder: those that wait for raft go together, in the order in which they came: after a linger, or at once
// where steps stand still for one of them.
func TestProposalsOfASlowDiskKeepTheirOrder(t *testing.T) {
	for name, c := range map[string]struct {
		urgent int32
		waits  time.Duration
	}{"none is urgent": {-1, linger}, "one is": {7, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				on := newCommits(newTiming())
				on.timing.writes.add(slowWrite)
				on.turn(false, func() {}) // raft has one
				const proposals = 20
				var went atomic.Int32
				for i := range int32(proposals) {
					go func() {
						on.turn(i == c.urgent, func() {
							if n := went.Add(1) - 1; n != i {
								t.Errorf("proposal %d goes as number %d", i, n)
							}
						})
						on.leave()
					}()
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				if n := went.Load(); n != 0 {
					t.Fatalf("%d go while raft writes", n)
				}
				on.leave()
				time.Sleep(c.waits)
				synctest.Wait()
				if n := went.Load(); n != proposals {
					t.Errorf("%d of %d have gone after %v", n, proposals, c.waits)
				}
				time.Sleep(linger)
			})
		})
	}
}

// TestWhoAsksTheLeaderKnowsItsDisk: a proposal of a follower takes as long as the leader's disk, and the next one may. A new leader has another
// disk.
func TestWhoAsksTheLeaderKnowsItsDisk(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		time.Sleep(time.Minute)
		l, f := c.leader(), c.follower()
		c.kv[l.self].slowDown(8 * time.Second)
		m, _ := f.State().Member(f.self)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), f.Patience())
		defer cancel()
		_ = f.Propose(ctx, Update{Peer: f.self, ProcessEpoch: m.ProcessEpoch})
		if took := time.Since(began); f.Patience() < 2*took || took < 8*time.Second {
			t.Errorf("after a proposal of %v the next one may take %v", took, f.Patience())
		}
		f.commits.forget()
		if got := f.Patience(); got != proposeTimeout {
			t.Errorf("proposals to another leader may take %v", got)
		}
	})
}
