package monitor

import (
	"slices"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestRosterNews goes through a roster's life: each change is told once, and by its reason.
func TestRosterNews(t *testing.T) {
	gpu := plan.Profile{Devices: []plan.DeviceProfile{{Name: "cuda:0", Model: "T4", MatMulFLOPS: 4e12}}}
	member := func(peer plan.PeerID, epoch uint64, state consensus.MemberState, reason string) consensus.Member {
		return consensus.Member{Peer: peer, ProcessEpoch: epoch, State: state, Reason: reason, Profile: gpu}
	}
	me := member("me", 1, consensus.Active, "")
	var r roster
	for i, look := range []struct {
		members []consensus.Member
		want    []string
	}{
		{[]consensus.Member{me, member("old", 1, consensus.Gone, "silent")}, []string{"this node is in the run, one of 1 node"}},
		{[]consensus.Member{me, member("old", 1, consensus.Gone, "silent")}, nil},
		{[]consensus.Member{me, member("new", 1, consensus.Joining, "")}, []string{"new has joined with T4 (4.0 TFLOP/s)"}},
		{[]consensus.Member{me, member("new", 1, consensus.Active, "")}, nil},
		{[]consensus.Member{me, member("new", 2, consensus.Active, "")}, []string{"new was started again and is back with T4 (4.0 TFLOP/s)"}},
		{[]consensus.Member{me, member("new", 2, consensus.Gone, "no sign of life for 5s")}, []string{"new is gone: no sign of life for 5s"}},
		{[]consensus.Member{me, member("new", 2, consensus.Active, "")}, []string{"new is back"}},
		{[]consensus.Member{me, member("new", 2, consensus.Draining, "")}, []string{"new is leaving"}},
		{[]consensus.Member{member("me", 1, consensus.Draining, ""), member("new", 2, consensus.Gone, "")}, []string{"this node is leaving", "new has left"}},
	} {
		if got := r.news(consensus.State{Members: look.members}, "me"); !slices.Equal(got, look.want) {
			t.Errorf("look %d: %q, want %q", i, got, look.want)
		}
	}
}

// TestWhoIsGoneIsToldSinceWhenAndWhy, as far as this process saw it, and no longer where it is back.
func TestWhoIsGoneIsToldSinceWhenAndWhy(t *testing.T) {
	m := &Monitor{}
	member := func(s consensus.MemberState) consensus.State {
		return consensus.State{Members: []consensus.Member{{Peer: "here", State: consensus.Active}, {Peer: "old", State: consensus.Gone}, {Peer: "lost", State: s}}}
	}
	before := time.Now()
	m.RosterChanged(member(consensus.Active))
	if gone := m.departed.all(); len(gone) != 0 {
		t.Errorf("at first: %v", gone)
	}
	m.RosterChanged(member(consensus.Gone))
	first := m.departed.all()["lost"]
	m.RosterChanged(member(consensus.Gone))
	if gone := m.departed.all(); len(gone) != 1 || first.Before(before) || gone["lost"] != first {
		t.Errorf("then: %v, %v before", gone, first)
	}
	m.RosterChanged(member(consensus.Active))
	if gone := m.departed.all(); len(gone) != 0 {
		t.Errorf("once it is back: %v", gone)
	}
}
