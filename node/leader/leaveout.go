package leader

import (
	"cmp"
	"context"
	"errors"
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

// trial gathers what judge looks at: who gave the generation up, and what they and others say.
func (t *term) trial(state consensus.State, by []plan.PeerID, said []accusation, now time.Time) trial {
	tr := trial{Accusations: said, Links: t.links, Past: state.Blames, Owners: state.Owners, Name: state.NameOf, Faults: map[plan.PeerID]int{}}
	if tr.Start = state.Plan.Start; len(state.Older) > 0 && state.Checkpoint.Step == tr.Start {
		tr.Older = state.Older[0].Step
	}
	if tr.Quitter = quitter(by, said); tr.Quitter != "" && t.quit == tr.Quitter {
		tr.Quits = t.quits
	}
	usable := 0
	for _, m := range state.Members {
		tr.Faults[m.Peer] = m.Faults
		_, out := m.LeftOut(now)
		if m.State == consensus.Active {
			tr.Active++
			if !out {
				usable++
			}
			if slices.Contains(state.Owners, m.Peer) && state.Plan.Places(m.Peer) {
				tr.Computing = append(tr.Computing, m.Peer)
			}
		}
		tr.Alone = tr.Alone || out && state.Plan.Places(m.Peer) // nobody else could do the work
	}
	tr.Alone = tr.Alone || usable < 2
	return tr
}

// proposeRuling writes down whose fault it was that the current generation ended.
func (t *term) proposeRuling(ctx context.Context, state consensus.State, r ruling) error {
	e := r.Blame
	e.Generation, e.Step = state.Plan.Generation, min(e.Step, state.Run.Train.Steps)
	if r.Out {
		m, _ := state.Member(e.Peer)
		e.Until = t.Now().Add(leftOutFor(m.Faults)).Unix()
	}
	if e.Kind != plan.LossJump {
		t.links = nil
	}
	delete(t.restarts.at, e.Peer) // it begins anew
	t.Log.Warn("ruling on a fault", "generation", e.Generation, "kind", e.Kind, "peer", e.Peer, "why", state.Told(e))
	err := t.Consensus.Propose(ctx, e)
	if errors.Is(err, consensus.ErrRejected) && !errors.Is(err, consensus.ErrStale) {
		t.unruled = e.Generation // the run goes on without it
		t.losses.found = jump{}
	}
	return err
}

// ruled reports whether the log says whose fault it was that the current generation ended, or takes no such word.
func (t *term) ruled(state consensus.State) bool {
	g := state.Plan.Generation
	return t.unruled == g || slices.ContainsFunc(state.Blames, func(b consensus.Blame) bool { return b.Generation == g && b.Kind != plan.LossJump })
}

// endedByRuling returns why the current generation ends though its members carry it on, if it does: for a jump of its
// loss, or since the leader itself sees that a member has no part in it.
func endedByRuling(s consensus.State) string {
	for _, b := range s.Blames {
		switch {
		case b.Generation != s.Plan.Generation:
		case b.GoesBack():
			return fmt.Sprintf("%s at step %d", b.Detail, b.Step)
		case b.Kind != plan.LossJump && b.Accuser == "" && b.Until != 0:
			return fmt.Sprintf("%s is left out: %s", s.NameOf(b.Peer), b.Detail)
		}
	}
	return ""
}

// noteLinks remembers who could not reach whom, and who alone gave up, in a generation that another one replaces.
func (t *term) noteLinks(state consensus.State) {
	stall, ruled := t.Heartbeats.Stalled(state.Plan.Peers(), state.Plan.Generation, time.Now()), t.ruled(state)
	if len(stall.Accusations) > 0 && !ruled {
		t.links = append(t.links, stall.Accusations)
	}
	switch by := quitter(stall.By, stall.Accusations); {
	case by == "" || ruled:
		t.quit, t.quits = "", 0
	case t.quit != by:
		t.quit, t.quits = by, 1
	default:
		t.quits++
	}
}

// quitter returns the only member that has given a generation up, or the only one that had a reason, which others followed; empty
// where there is none.
func quitter(by []plan.PeerID, said []accusation) (one plan.PeerID) {
	if len(by) == 1 {
		return by[0]
	}
	for _, a := range said {
		if one != "" && a.By != one {
			return ""
		}
		one = a.By
	}
	return one
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
