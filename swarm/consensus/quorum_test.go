package consensus

import (
	"slices"
	"testing"
	"time"

	"pnode/planner/plan"
)

func TestReign(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var r reign
	for i, want := range []reign{
		{lostSince: at(0)},
		{lostSince: at(0)},
		{leader: "a", known: true, last: "a"},
		{leader: "b", known: true, last: "b", changes: 1},
		{lostSince: at(4), known: true, last: "b", changes: 1},
		{lostSince: at(4), known: true, last: "b", changes: 1},
		{leader: "b", known: true, last: "b", changes: 1},
	} {
		if r.take(want.leader, at(i)); r != want {
			t.Errorf("after %d: %v, want %v", i, r, want)
		}
	}
}

// Voters and others see the majority go, and come back.
func TestQuorum(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		l := c.leader()
		voters := l.Quorum().Voters
		if len(voters) != 3 || !slices.IsSorted(voters) {
			t.Fatalf("voters %v", voters)
		}
		var others []plan.PeerID // voters that do not lead
		var spare *Node
		for _, p := range c.peers {
			switch n := c.nodes[p]; {
			case !slices.Contains(voters, p):
				spare = n
			case n != l:
				others = append(others, p)
			}
			c.until("a leader is known at "+string(p), func() bool {
				q := c.nodes[p].Quorum()
				return q.Leader == l.self && q.LostSince.IsZero() && slices.Equal(q.Voters, voters)
			})
		}
		changed := l.Changed()
		c.crash(others[0])
		<-changed
		c.until("the silence", func() bool { return slices.Equal(l.Quorum().Silent, others[:1]) })

		seen := spare.Changed()
		c.crash(others[1])
		began := time.Now()
		<-seen
		for _, n := range []*Node{l, spare} {
			c.until("a lost majority is noticed", func() bool { return !n.Quorum().LostSince.IsZero() })
		}
		time.Sleep(time.Minute)
		for _, n := range []*Node{l, spare} {
			q := n.Quorum()
			if q.Leader != "" || q.LostSince.Before(began) || time.Since(q.LostSince) < 50*time.Second || !slices.Equal(q.Voters, voters) {
				t.Errorf("%s, a minute without a majority since %v: %+v", n.self, began, q)
			}
		}
		c.start(others[0])
		c.until("a majority again", func() bool {
			q := spare.Quorum()
			return q.Leader != "" && q.LostSince.IsZero()
		})
	})
}

// A leader whose process has ended, as those say who see it, is followed by another one at once.
func TestAnEndedLeaderIsSucceededAtOnce(t *testing.T) {
	for name, all := range map[string]bool{"all see it": true, "the last voter sees it": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *cluster) {
				l := c.leader()
				c.must(l, testRun())
				c.crash(l.self)
				var told *Node
				for _, p := range c.peers {
					if n := c.nodes[p]; n != nil {
						if told = n; all {
							n.Ended(l.self)
						}
					}
				}
				told.Ended(l.self)
				if took := c.until("another one to lead", func() bool { return c.leader() != nil }); took > succeedAfter+leaseTimeout/4 { // virtual
					t.Errorf("it took %v", took)
				}
				c.must(c.leader(), WantPause{Count: 1})
			})
		})
	}
}

// A claim that is false costs an election at most, and the same claim again nothing; of others than the leader neither does.
func TestAFalseEndOfTheLeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		l, f := c.leader(), c.follower()
		_, before, _ := l.Leader()
		f.Ended(f.self)
		l.Ended(l.self)
		l.Ended(f.self)
		f.Ended("unknown")
		time.Sleep(time.Second)
		if _, term, self := l.Leader(); !self || term != before {
			t.Fatalf("term %d, leads %v; it was term %d", term, self, before)
		}
		claims := 0
		for range 5 {
			now := c.leader()
			for _, p := range c.peers {
				if now != nil && p != now.self {
					c.nodes[p].Ended(l.self)
					claims++
				}
			}
			time.Sleep(time.Second)
		}
		c.until("a leader", func() bool { return c.leader() != nil })
		if _, term, _ := c.leader().Leader(); term > before+2 { // one for each of two who claim it
			t.Errorf("%d false claims: term %d, was %d", claims, term, before)
		}
		c.must(c.leader(), WantPause{Count: 1})
	})
}

func TestWhoSucceeds(t *testing.T) {
	voters, now := []plan.PeerID{"a", "b", "c"}, time.Unix(1000, 0)
	for _, test := range []struct {
		name                string
		ended, leader, self plan.PeerID
		before              int
		stands              bool
	}{
		{"first", "a", "a", "b", 0, true},
		{"second", "a", "a", "c", 1, true},
		{"first of others", "b", "b", "a", 0, true},
		{"another one leads", "b", "a", "c", 0, false},
		{"nobody leads", "b", "", "c", 0, false},
		{"itself", "a", "a", "a", 0, false},
		{"without a vote", "a", "a", "d", 0, false},
	} {
		var s succession
		before, stands := s.due(test.ended, test.leader, test.self, voters, now)
		if before != test.before || stands != test.stands {
			t.Errorf("%s: %d stand before, stands %v; want %d, %v", test.name, before, stands, test.before, test.stands)
		}
		if _, again := s.due(test.ended, test.leader, test.self, voters, now.Add(endedAgain-1)); again {
			t.Errorf("%s: stands for the same again", test.name)
		}
		if _, later := s.due(test.ended, test.leader, test.self, voters, now.Add(endedAgain)); later != test.stands {
			t.Errorf("%s: later: %v", test.name, later)
		}
	}
}
