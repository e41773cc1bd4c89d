package blame

import (
	"fmt"
	"slices"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestDisputes over replicas of two nodes each: "a" and "A" are of replica 0, and "A" coordinates it.
func TestDisputes(t *testing.T) {
	pair := func(by, of plan.Replica, byShows, ofShows Shown, twofold ...plan.PeerID) Heard {
		return Heard{plan.Contradiction{By: by, Of: of, Sent: plan.Part{Steps: 4}}, byShows, ofShows, twofold}
	}
	hasty := func(by, of plan.Replica, byShows Shown) Heard {
		return Heard{plan.Contradiction{By: by, Of: of, Has: plan.Part{Steps: 3}}, byShows, Proven, nil}
	}
	note := func(peer plan.PeerID) consensus.Blame {
		return consensus.Blame{Peer: peer, Accuser: "C", Kind: plan.BadSum, Generation: 1}
	}
	for name, c := range map[string]struct {
		heard  []Heard
		owners []plan.PeerID
		past   []consensus.Blame
		lost   func(*consensus.State)
		want   string // peer accuser, in brackets where it is noted alone
	}{
		"nobody": {},
		"a stage seals two messages, and the rest of its replica is honest": {heard: []Heard{pair(1, 0, Proven, Proven, "a")}, want: "a B"},
		"a coordinator does":                  {heard: []Heard{pair(1, 0, Proven, Proven, "A")}, want: "A B"},
		"two stages of a replica do":          {heard: []Heard{pair(1, 0, Proven, Proven, "a", "A")}, want: "a B, A B"},
		"two of different replicas":           {heard: []Heard{pair(1, 0, Proven, Proven, "a"), pair(0, 1, Proven, Proven, "b")}, want: "a B, b A"},
		"an owner's node":                     {owners: []plan.PeerID{"a"}, heard: []Heard{pair(1, 0, Proven, Proven, "a")}, want: "a B"},
		"one, found out by all":               {heard: []Heard{pair(1, 0, Proven, Proven, "a"), pair(2, 0, Proven, Proven, "a")}, want: "a B"},
		"a coordinator accuses falsely":       {heard: []Heard{pair(1, 0, Untrue, Proven)}, want: "B A"},
		"it makes up the sums of two":         {heard: []Heard{pair(1, 0, Untrue, Proven), pair(1, 2, Untrue, Proven)}, want: "B A"},
		"one makes up its own":                {heard: []Heard{pair(1, 0, Proven, Untrue), pair(2, 0, Proven, Untrue)}, want: "A B"},
		"both do":                             {heard: []Heard{pair(1, 0, Untrue, Untrue)}, want: "B A, A B"},
		"most accuse one that is honest":      {heard: []Heard{pair(1, 0, Untrue, Proven), pair(2, 0, Untrue, Proven)}, want: "B A, C A"},
		"one makes up, one is silent":         {heard: []Heard{pair(1, 0, Untrue, Silent)}, want: "B A"},
		"silence once":                        {heard: []Heard{pair(1, 0, Silent, Proven)}, want: "(B A)"},
		"silence twice":                       {past: []consensus.Blame{note("B")}, heard: []Heard{pair(1, 0, Silent, Proven)}, want: "B A"},
		"silence of who was blamed":           {past: []consensus.Blame{{Peer: "B", Accuser: "C", Kind: plan.BadTensor, Generation: 1}}, heard: []Heard{pair(1, 0, Silent, Proven)}, want: "(B A)"},
		"silence of an owner":                 {owners: []plan.PeerID{"A"}, past: []consensus.Blame{note("A")}, heard: []Heard{pair(1, 0, Proven, Silent)}, want: "(A B)"},
		"silence, and then a lie of the same": {heard: []Heard{pair(1, 0, Silent, Proven), pair(1, 2, Untrue, Proven)}, want: "(B A), B C"},
		"silence of who is gone":              {lost: func(s *consensus.State) { s.Members[1].State = consensus.Gone }, heard: []Heard{pair(1, 0, Silent, Proven)}, want: "( )"},
		"silence of who was started again":    {lost: func(s *consensus.State) { s.Members[1].Since = 9 }, heard: []Heard{pair(1, 0, Silent, Proven)}, want: "( )"},
		"nothing to show after a start":       {lost: func(s *consensus.State) { s.Members[1].Since = 9 }, heard: []Heard{pair(1, 0, Untrue, Proven)}, want: "( )"},
		"nothing to show after two starts":    {lost: func(s *consensus.State) { s.Members[0].Since, s.Members[1].Since = 9, 9 }, heard: []Heard{pair(1, 0, Untrue, Untrue)}, want: "( )"},
		"a lie about who was started again":   {lost: func(s *consensus.State) { s.Members[0].Since = 9 }, heard: []Heard{pair(1, 0, Untrue, Untrue)}, want: "B A"},
		"two messages of who was started":     {lost: func(s *consensus.State) { s.Members[0].Since = 9 }, heard: []Heard{pair(1, 0, Proven, Proven, "A")}, want: "A B"},
		"both are silent":                     {heard: []Heard{pair(1, 0, Silent, Silent)}, want: "( )"},
		"both are proven, and nobody lies":    {heard: []Heard{pair(1, 0, Proven, Proven)}, want: "( )"},
		"one ends a round early":              {heard: []Heard{hasty(1, 0, Proven)}, want: "A B"},
		"an owner's node does":                {owners: []plan.PeerID{"A"}, heard: []Heard{hasty(1, 0, Proven)}, want: "A B"},
		"two do":                              {heard: []Heard{hasty(1, 0, Proven), hasty(1, 2, Proven)}, want: "A B, C B"},
		"one says so of two, falsely":         {heard: []Heard{hasty(1, 0, Untrue), hasty(1, 2, Untrue)}, want: "B A"},
		"one says so, and is silent":          {heard: []Heard{hasty(1, 0, Silent)}, want: "(B A)"},
		"one says so, and is silent again":    {past: []consensus.Blame{note("B")}, heard: []Heard{hasty(1, 0, Silent)}, want: "B A"},
		"one says so, and is gone":            {lost: func(s *consensus.State) { s.Members[1].State = consensus.Gone }, heard: []Heard{hasty(1, 0, Silent)}, want: "( )"},
		"one ends a round early, and is lost": {lost: func(s *consensus.State) { s.Substitute = &consensus.Substitute{Lost: "A", By: "C"} }, heard: []Heard{hasty(1, 0, Proven)}, want: "A B"},
		"a node against itself":               {heard: []Heard{pair(3, 1, Untrue, Untrue, "B")}},
		"a stage, between two of one node":    {heard: []Heard{pair(3, 1, Proven, Proven, "b")}, want: "b B"},
	} {
		s := consensus.State{Owners: c.owners, Blames: c.past, PlanEpoch: 5, Plan: plan.Plan{Generation: 2, Local: &plan.Local{}}, Merged: &plan.Merged{From: 8}}
		for _, peers := range []string{"aA", "bB", "cC", "dB"} {
			pipe := plan.Pipeline{Micros: 1, Stages: []plan.Placement{{Peer: plan.PeerID(peers[:1])}, {Peer: plan.PeerID(peers[1:])}}}
			s.Plan.Replicas = append(s.Plan.Replicas, pipe)
		}
		for _, p := range []plan.PeerID{"A", "B", "C"} {
			s.Members = append(s.Members, consensus.Member{Peer: p, State: consensus.Active})
		}
		if c.lost != nil {
			c.lost(&s)
		}
		got := ""
		for i, r := range Dispute(s, c.heard) {
			if i > 0 {
				got += ", "
			}
			text := fmt.Sprintf("%s %s", r.Peer, r.Accuser)
			if !r.Out {
				text = "(" + text + ")"
			}
			got += text
			if r.Kind != plan.BadSum || r.Step != 8 || r.Detail == "" {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := Dispute(consensus.State{}, []Heard{{}}); slices.ContainsFunc(got, func(Ruling) bool { return true }) {
		t.Errorf("of a plan without local steps: %+v", got)
	}
}
