package monitor

import (
	"fmt"
	"slices"
	"strings"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// votes explains who votes on the log, why, and what happens when they go. It is empty until a voter is known.
func votes(s consensus.State, voters []plan.PeerID) string {
	if len(voters) == 0 || s.Run == nil {
		return ""
	}
	var who []string
	for _, p := range voters {
		name := s.NameOf(p)
		if s.Owner(p) {
			name += " (an owner's node)"
		}
		who = append(who, name)
	}
	slices.Sort(who)
	var text string
	switch n := len(who); n {
	case 1:
		text = who[0] + " alone votes: while it is away the run waits for it"
	default:
		text = fmt.Sprintf("%s vote: the run goes on while %d of these %d are up", listed(who), n/2+1, n)
	}
	return text + ". " + voterRules[s.Run.Train.Voters]
}

// mostListed bounds the names in a sentence.
const mostListed = 8

// listed returns names as a sentence has them: "a, b and c", or "a, b and 7 more".
func listed(names []string) string {
	if more := len(names) - mostListed; more > 0 {
		names = append(slices.Clone(names[:mostListed]), fmt.Sprintf("%d more", more))
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// voterRules says in a sentence by what rule votes are given.
var voterRules = map[plan.VoterRule]string{
	"":                autoRule,
	plan.VotersAuto:   autoRule,
	plan.VotersOwners: "Votes are kept with owners' nodes (--voters owners): 3 of them vote where there are 3, 5 of 5",
	plan.VotersAny:    "The oldest nodes vote (--voters any): 3 where there are 3, 5 of 5",
}

var autoRule = fmt.Sprintf("Owners' nodes vote first, then those that were up for %d checkpoints and %s, or %s, and were not blamed twice (--voters auto): "+
	"3 where there are 3 of these, 5 of 5", consensus.StandingCheckpoints, plan.Duration(consensus.StandingLeast), plan.Duration(consensus.StandingAfter))
