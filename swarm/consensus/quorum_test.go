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
		{"", at(0), false},
		{"", at(0), false},
		{"a", time.Time{}, true},
		{"b", time.Time{}, true},
		{"", at(4), true},
		{"", at(4), true},
		{"b", time.Time{}, true},
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
