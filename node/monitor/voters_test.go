package monitor

import (
	"strings"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestVotesAreExplained(t *testing.T) {
	s := consensus.State{
		Run: &plan.RunSpec{}, Owners: []plan.PeerID{"a"},
		Members: []consensus.Member{{Peer: "a", Label: "desk"}, {Peer: "b", Label: "rack"}, {Peer: "c", Label: "attic"}},
	}
	for _, c := range []struct {
		rule   plan.VoterRule
		voters []plan.PeerID
		want   []string
	}{
		{"", []plan.PeerID{"a"}, []string{"desk (an owner's node) alone votes", "the run waits", "2 checkpoints and 1 min, or 5 min", "--voters auto"}},
		{plan.VotersAuto, []plan.PeerID{"a", "b", "c"}, []string{"attic, desk (an owner's node) and rack vote", "while 2 of these 3 are up"}},
		{plan.VotersOwners, []plan.PeerID{"b"}, []string{"rack alone votes", "--voters owners"}},
		{plan.VotersAny, []plan.PeerID{"b"}, []string{"--voters any"}},
	} {
		s.Run.Train.Voters = c.rule
		got := votes(s, c.voters)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q lacks %q", got, want)
			}
		}
	}
	for _, rule := range plan.VoterRules() {
		if voterRules[rule] == "" {
			t.Errorf("nothing is said about %q", rule)
		}
	}
	if got := votes(s, nil); got != "" {
		t.Errorf("without a voter: %q", got)
	}
}
