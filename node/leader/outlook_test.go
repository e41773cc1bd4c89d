package leader

import (
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAPlanLastsAsLongAsItWasBetweenDepartures, which restarts are too; arrivals are none.
func TestAPlanLastsAsLongAsItWasBetweenDepartures(t *testing.T) {
	var d departures
	now := time.Unix(1000, 0)
	roster := map[plan.PeerID]consensus.Member{}
	look := func(after time.Duration, changed ...consensus.Member) {
		now = now.Add(after)
		var all []consensus.Member
		for _, m := range changed {
			roster[m.Peer] = m
		}
		for _, m := range roster {
			all = append(all, m)
		}
		d.look(all, now)
	}
	want := func(what string, lasts time.Duration) {
		t.Helper()
		if got := d.lasts(now); got != lasts {
			t.Errorf("%s: %v, want %v", what, got, lasts)
		}
	}
	is := func(p plan.PeerID, epoch uint64, s consensus.MemberState) consensus.Member {
		return consensus.Member{Peer: p, ProcessEpoch: epoch, State: s}
	}
	look(0, is("a", 1, consensus.Active), is("gone before", 1, consensus.Gone))
	want("nothing is known", usualGap)
	look(time.Minute, is("b", 1, consensus.Joining))
	look(time.Minute, is("b", 1, consensus.Active), is("c", 1, consensus.Active))
	want("members came", usualGap)
	look(20*time.Second, is("b", 1, consensus.Gone))
	want("one is gone", usualGap)
	look(20*time.Second, is("b", 2, consensus.Active))
	look(0, is("c", 2, consensus.Active)) // without a word in between
	look(20*time.Second, is("b", 2, consensus.Gone))
	want("two more are gone", 140*time.Second) // the middle one of three, and two hours
	look(2*usualGap, is("b", 3, consensus.Active))
	want("nobody for long", 2*usualGap)
	for i := range uint64(3 * maxGaps) {
		look(5*time.Second, is("b", 4+i, consensus.Active))
	}
	want("one in a loop", 5*time.Second)
	if len(d.gaps) > maxGaps {
		t.Errorf("%d times are remembered", len(d.gaps))
	}
}
