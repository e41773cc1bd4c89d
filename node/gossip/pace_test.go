package gossip

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// crowd returns a run of so many members, the first ones of which have a place in the plan. The last one is its owner.
func crowd(members, placed int) (s consensus.State) {
	for i := range members {
		s.Members = append(s.Members, consensus.Member{Peer: crowdPeer(i), State: consensus.Active})
	}
	s.Owners, s.Leader = []plan.PeerID{crowdPeer(members - 1)}, crowdPeer(members-2)
	if placed > 0 {
		s.Plan.Generation = 1
		s.Plan.Replicas = []plan.Pipeline{{}}
		for i := range placed {
			s.Plan.Replicas[0].Stages = append(s.Plan.Replicas[0].Stages, plan.Placement{Peer: crowdPeer(i)})
		}
	}
	return s
}

func crowdPeer(i int) plan.PeerID { return plan.PeerID(fmt.Sprintf("p%04d", i)) }

// TestHeartbeatsStayFlat: however many members there are, each receives a bounded number of heartbeats a second. In runs of today nothing
// changes.
func TestHeartbeatsStayFlat(t *testing.T) {
	for _, c := range []struct {
		members, placed    int
		computing, another time.Duration
	}{
		{3, 0, time.Second, time.Second},
		{16, 16, time.Second, time.Second},
		{64, 8, time.Second, time.Second},
		{72, 8, time.Second, time.Second},
		{1000, 40, time.Second, 15 * time.Second},
		{1000, 640, 10 * time.Second, 5625 * time.Millisecond},
	} {
		s := crowd(c.members, c.placed)
		p := PacesOf(s)
		if got := p.Of(crowdPeer(1)); got != c.computing {
			t.Errorf("%d members, %d in the plan: one of these every %v, want %v", c.members, c.placed, got, c.computing)
		}
		if got := p.Of(crowdPeer(c.members - 3)); c.placed < c.members && got != c.another {
			t.Errorf("%d members, %d in the plan: another one every %v, want %v", c.members, c.placed, got, c.another)
		}
		rate := 0.0
		for _, m := range s.Members {
			rate += 1 / p.Of(m.Peer).Seconds()
		}
		if rate > 2*heartbeatsPerS+3 {
			t.Errorf("%d members, %d in the plan: %.0f heartbeats a second", c.members, c.placed, rate)
		}
		for _, quick := range []plan.PeerID{s.Leader, s.Owners[0]} {
			if got := p.Of(quick); got != time.Second {
				t.Errorf("%d members: the leader or an owner every %v", c.members, got)
			}
		}
	}
}

// TestManyAskDifferentMembers: in a large run members without a part in the plan ask rarely, and not all of them the same one first. In runs of
// today nothing changes.
func TestManyAskDifferentMembers(t *testing.T) {
	small, large := crowd(64, 8), crowd(1000, 8)
	if wait, first := Spread(small, crowdPeer(30), small.Plan.Peers()); wait != 0 || !slices.Equal(first, small.Plan.Peers()) {
		t.Errorf("of 64 members one waits %v and asks %v", wait, first)
	}
	asked := map[plan.PeerID]int{}
	for i := 8; i < 990; i++ {
		wait, first := Spread(large, crowdPeer(i), large.Plan.Peers())
		if wait < 15*time.Second || len(first) != 8 {
			t.Fatalf("one of 1,000 waits %v and asks %v", wait, first)
		}
		asked[first[0]]++
	}
	for p, n := range asked {
		if n > 3*982/8 {
			t.Errorf("%d of 982 ask %s first", n, p)
		}
	}
}

// TestANewPlaceIsToldAtOnce: who gets a part in the plan sends its heartbeat at once, and is not late before others have it.
func TestANewPlaceIsToldAtOnce(t *testing.T) {
	self, now := crowdPeer(500), time.Unix(1000, 0)
	sender, hears := NewTracker(), NewTracker()
	both := func(s consensus.State) { sender.SetPaces(PacesOf(s)); hears.SetPaces(PacesOf(s)) }
	both(crowd(1000, 40))
	beat := Heartbeat{Peer: self, Phase: "waiting"}
	if !sender.Due(beat, now) {
		t.Fatal("the first heartbeat is not due")
	}
	sender.Note(beat, now)
	hears.Note(beat, now)
	now = now.Add(5 * time.Second)
	if sender.Due(beat, now) {
		t.Error("a heartbeat that says nothing new is due after 5 s of 15")
	}
	if got := hears.Silent(self, time.Time{}, now); got != 0 {
		t.Errorf("silent for %v", got)
	}
	if says := (Heartbeat{Peer: self, Phase: "stopped"}); !sender.Due(says, now) {
		t.Error("news have to wait")
	}
	both(crowd(1000, 501))
	if got := hears.Slack(self); got != 29*time.Second {
		t.Errorf("slack of %v before its next heartbeat, want 29 s", got)
	}
	now = now.Add(4 * time.Second)
	if !sender.Due(beat, now) {
		t.Error("its new pace does not count")
	}
	hears.Note(beat, now)
	if got := hears.Slack(self); got >= 16*time.Second {
		t.Errorf("slack of %v after it", got)
	}
}
