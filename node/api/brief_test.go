package api

import (
	"fmt"
	"reflect"
	"testing"

	"pnode/planner/plan"
)

// crowd returns a status of so many members in a row, of which a plan places some, and this node is the one in the middle of it.
func crowd(members, placed int) Status {
	s := Status{Peer: plan.PeerID(fmt.Sprintf("p%04d", placed/2)), Leader: "p0000"}
	for i := range members {
		p := plan.PeerID(fmt.Sprintf("p%04d", i))
		m := Member{Peer: p, State: "active", Kind: fmt.Sprintf("card %d", i%3), Device: fmt.Sprintf("gpu (card %d, %d TFLOP/s)", i%3, i), Self: p == s.Peer, Leader: p == s.Leader, Placed: i < placed}
		switch {
		case m.Placed:
		case i%20 == 0:
			m.State = MemberSilent
		case i%20 == 1:
			m.State = "gone"
		case i%20 == 2:
			m.NotUsed = "until 15:00"
		}
		s.Roster = append(s.Roster, m)
		if !m.Placed {
			continue
		}
		s.Plan = append(s.Plan, StageStatus{Stage: plan.Stage(i), Peer: p, ForwardMS: float64(i * 7919 % members)})
		s.Seats = append(s.Seats, SeatStatus{Peer: p})
		s.Reasons = append(s.Reasons, "a reason")
		if i > 0 {
			s.Links = append(s.Links, LinkStatus{From: s.Plan[i-1].Peer, To: p}, LinkStatus{From: p, To: s.Plan[i-1].Peer})
		}
	}
	return s
}

// TestBrief: of many members few are listed, among them all that the listed stages and devices name, and each of the others is counted once.
func TestBrief(t *testing.T) {
	for _, c := range []struct{ members, placed int }{{1000, 1000}, {1000, 30}, {70, 0}, {65, 65}, {64, 64}} {
		s := crowd(c.members, c.placed)
		b := s.Brief()
		if c.members == 64 {
			if !reflect.DeepEqual(b, s) {
				t.Errorf("64 members are not all listed")
			}
			continue
		}
		if len(b.Roster) > 48 || len(b.Rest.Members) > briefGroups {
			t.Errorf("%v: %d members are listed, and %d groups", c, len(b.Roster), len(b.Rest.Members))
		}
		counted := len(b.Roster)
		for _, g := range b.Rest.Members {
			counted += g.Count
		}
		if counted != c.members || b.Rest.Stages+len(b.Plan) != c.placed || b.Rest.Devices+len(b.Seats) != c.placed || b.Rest.Links+len(b.Links) != len(s.Links) {
			t.Errorf("%v: %d members are counted; %d of the stages, %d of the devices, %d of the links and the rest %+v", c, counted, len(b.Plan), len(b.Seats), len(b.Links), *b.Rest)
		}
		listed := map[plan.PeerID]bool{}
		for _, m := range b.Roster {
			listed[m.Peer] = true
		}
		named := []plan.PeerID{s.Peer, s.Leader}
		for i, stage := range b.Plan {
			named = append(named, stage.Peer)
			if i > 0 && b.Plan[i-1].Stage >= stage.Stage {
				t.Errorf("%v: the stages are not in the plan's order", c)
			}
		}
		for _, seat := range b.Seats {
			named = append(named, seat.Peer)
		}
		for _, p := range named {
			if !listed[p] {
				t.Errorf("%v: %s is named and not listed", c, p)
			}
		}
		if c.placed > 0 && !contains(b.Plan, s.Peer) {
			t.Errorf("%v: this node's stage is left out", c)
		}
	}
}

// TestBriefCountsTheGone: of a run that many have left, all that are there are listed, and who has a part of the plan; the others are counted.
func TestBriefCountsTheGone(t *testing.T) {
	s := crowd(64, 30)
	for i := range s.Roster {
		if s.Roster[i].State == "gone" {
			s.Roster[i].State = "active"
		}
	}
	s.Roster[29].State = "gone" // a moment ago: it is in the plan
	for i := range 200 {
		s.Roster = append(s.Roster, Member{Peer: plan.PeerID(fmt.Sprintf("gone%d", i)), State: "gone", Kind: "card 1"})
	}
	b := s.Brief()
	want := []Group{{State: "gone", Device: "card 1", Count: 200}}
	if !reflect.DeepEqual(b.Roster, s.Roster[:64]) || b.Rest == nil || !reflect.DeepEqual(*b.Rest, Rest{Members: want}) {
		t.Errorf("%d are listed, the rest is %+v", len(b.Roster), b.Rest)
	}
	if !reflect.DeepEqual(b.Plan, s.Plan) || !reflect.DeepEqual(b.Seats, s.Seats) || !reflect.DeepEqual(b.Links, s.Links) {
		t.Error("something of the plan is left out")
	}
	for i := range 2 { // 65 that are there
		s.Roster = append(s.Roster, Member{Peer: plan.PeerID(fmt.Sprintf("new%d", i)), State: "active"})
	}
	if b := s.Brief(); len(b.Roster) > 48 {
		t.Errorf("%d of 65 members that are there are listed", len(b.Roster))
	}
}

func contains(stages []StageStatus, p plan.PeerID) bool {
	for _, s := range stages {
		if s.Peer == p {
			return true
		}
	}
	return false
}

// TestBriefReplicas: of many with local steps those are listed that the others may wait for, and this node's.
func TestBriefReplicas(t *testing.T) {
	s := crowd(100, 100)
	for r := range 50 {
		s.Replicas = append(s.Replicas, ReplicaStatus{Replica: plan.Replica(r), Peer: s.Plan[2*r].Peer, Made: plan.Step(100 - r%7), State: ReplicaComputes})
	}
	s.Replicas[3].State, s.Replicas[40].State, s.Replicas[25].Peer = ReplicaSilent, ReplicaLeftOut, s.Peer
	b := s.Brief()
	var got []plan.Replica
	listed := map[plan.PeerID]bool{}
	for _, m := range b.Roster {
		listed[m.Peer] = true
	}
	for _, r := range b.Replicas {
		got = append(got, r.Replica)
		if !listed[r.Peer] {
			t.Errorf("the node of replica %d is not listed", r.Replica)
		}
	}
	if want := []plan.Replica{3, 5, 6, 12, 13, 20, 25, 27, 34, 40, 41, 48}; !reflect.DeepEqual(got, want) || b.Rest.Replicas != 38 {
		t.Errorf("%v and %d more, want %v", got, b.Rest.Replicas, want)
	}
}
