package leader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// firstLeftOut is how long a member is left out of plans for its first fault. It doubles with each further one, up
// to consensus.MaxLeftOut.
const firstLeftOut = time.Minute

// leftOutFor returns how long a member with so many faults is left out for another one.
func leftOutFor(faults int) time.Duration {
	return min(firstLeftOut<<min(faults, 10), consensus.MaxLeftOut)
}

// leftOut returns the members that plans do without now, the least guilty first: those of the lowest score, and
// those whose time ends first.
func leftOut(state consensus.State, now time.Time) (out []consensus.Member) {
	for _, m := range state.Members {
		if _, yes := m.LeftOut(now); yes && m.State == consensus.Active {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b consensus.Member) int {
		return cmp.Or(cmp.Compare(a.Faults, b.Faults), cmp.Compare(a.Blamed.Until, b.Blamed.Until))
	})
	return out
}

func namesOf(members []consensus.Member) string {
	var b strings.Builder
	for _, m := range members {
		fmt.Fprintf(&b, "%q ", m.Peer)
		if m.Blamed != nil {
			fmt.Fprintf(&b, "%d ", m.Blamed.Until)
		}
	}
	return b.String()
}

// without returns the state as the planner sees it when some members are left out.
func without(state consensus.State, out []consensus.Member) consensus.State {
	state.Members = slices.DeleteFunc(slices.Clone(state.Members), func(m consensus.Member) bool {
		return slices.ContainsFunc(out, func(o consensus.Member) bool { return o.Peer == m.Peer })
	})
	return state
}

// searchFunc makes the plan of the next generation.
type searchFunc func(context.Context, planner.Input) (plan.Plan, plan.Reasons, error)

// searchWithout makes a plan without the members that are left out. Where the others cannot do the work, the least
// guilty take part after all: a run that makes little progress is better than one that stands. told says who is not
// used, or is in spite of it; in is the input of the plan.
func searchWithout(ctx context.Context, state consensus.State, out []consensus.Member, search searchFunc) (p plan.Plan, reasons plan.Reasons, in planner.Input, told []string, err error) {
	for needed := 0; ; needed++ {
		in = NextInput(without(state, out[needed:]))
		p, reasons, err = search(ctx, in)
		if err == nil || needed == len(out) || ctx.Err() != nil {
			out, told = out[needed:], usedAfterAll(state, out[:needed])
			break
		}
	}
	for _, m := range out {
		told = append(told, fmt.Sprintf("not used: %s %s", state.NameOf(m.Peer), state.Told(*m.Blamed)))
	}
	return p, reasons, in, told, err
}

func usedAfterAll(state consensus.State, used []consensus.Member) (told []string) {
	for _, m := range used {
		told = append(told, fmt.Sprintf("used all the same, since the others cannot do the work: %s, which was to be left out %s", state.NameOf(m.Peer), state.Told(*m.Blamed)))
	}
	return told
}
