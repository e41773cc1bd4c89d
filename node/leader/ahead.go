package leader

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// maxAhead bounds the losses whose answers are searched for ahead.
	maxAhead = 32
	// aheadRest is how many times as long as the last search took none is begun: searches ahead take at most one part in
	// 1+aheadRest of a processor's time.
	aheadRest = 19
	// aheadAge is when an answer is searched for again: what is measured changes.
	aheadAge = 2 * time.Minute
	// aheadAgain is the least time between two searches for the loss of one member: others often come and go together.
	aheadAgain = 5 * time.Second
)

// ahead holds the answers to the loss of single members of a plan, searched for before any of them is lost, one after the
// other. The leader answers the loss of each other member, whoever may be elected that of the leader.
type ahead struct {
	// figures names the speeds and lines that plans count on besides profiles. Answers by other figures are out of date.
	figures    string
	generation plan.Generation
	answers    map[string]answer         // by the members that are left
	searching  *future[made]             // the newest search; nil once its result was seen
	resting    time.Time                 // nothing is searched for before
	begun      map[plan.PeerID]time.Time // the newest search for the loss of each member
}

// answer is the next plan when a member is lost.
type answer struct {
	next    *future[made]
	begun   time.Time
	figures string
}

// look begins the next search for the loss of one of some members of the state's plan, unless one is under way. out are the
// members that plans do without now.
func (a *ahead) look(state consensus.State, out []consensus.Member, lost []plan.PeerID, on spawn, search searchFunc) {
	now := time.Now()
	if a.generation != state.Plan.Generation {
		*a = ahead{figures: a.figures, generation: state.Plan.Generation, resting: a.resting, begun: map[plan.PeerID]time.Time{}}
	}
	if a.searching != nil {
		m, ok := a.searching.get()
		if !ok {
			return
		}
		a.searching, a.resting = nil, now.Add(aheadRest*m.took)
	}
	if now.Before(a.resting) {
		return
	}
	known, members := a.answers, describe(state, out)
	a.answers = map[string]answer{}
	for _, p := range lost[:min(len(lost), maxAhead)] {
		left := members.without(p)
		old, ok := known[left]
		if ok {
			a.answers[left] = old
		}
		if a.searching != nil || ok && old.figures == a.figures && now.Sub(old.begun) < aheadAge || now.Sub(a.begun[p]) < aheadAgain {
			continue
		}
		after := without(state, []consensus.Member{{Peer: p}})
		rest := slices.DeleteFunc(slices.Clone(out), func(m consensus.Member) bool { return m.Peer == p })
		if a.searching = begin(on, func(ctx context.Context) made { return makePlan(ctx, after, rest, search) }); a.searching != nil {
			a.answers[left], a.begun[p] = answer{a.searching, now, a.figures}, now
		}
	}
}

// take returns the answer for the members that a state has, which may still be searched for; nil where nobody looked for it.
func (a *ahead) take(state consensus.State, out []consensus.Member) *future[made] {
	if a.generation != state.Plan.Generation {
		return nil
	}
	left := describe(state, out).without("")
	found := a.answers[left]
	delete(a.answers, left)
	if found.figures != a.figures {
		return nil
	}
	return found.next
}

// ready reports whether the answer to the loss of a member is there, and is a plan.
func (a *ahead) ready(state consensus.State, out []consensus.Member, lost plan.PeerID) bool {
	found, ok := a.answers[describe(state, out).without(lost)]
	if !ok || a.generation != state.Plan.Generation || found.figures != a.figures {
		return false
	}
	next, ok := found.next.get()
	return ok && next.err == nil
}

// memberTexts says of each member that is not gone what a plan depends on: its process, its devices, and whether it is left out.
type memberTexts struct {
	peers []plan.PeerID
	texts []string
}

// describe returns what a plan depends on, but for out, who are left out.
func describe(state consensus.State, out []consensus.Member) (d memberTexts) {
	left := map[plan.PeerID]bool{}
	for _, m := range out {
		left[m.Peer] = true
	}
	for _, m := range state.Members {
		if m.State == consensus.Gone {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%q %d %s %d", m.Peer, m.ProcessEpoch, m.State, m.Shown.MemoryHalvings())
		for _, d := range m.Profile.Devices {
			fmt.Fprintf(&b, " %q", d.Name)
		}
		if left[m.Peer] {
			b.WriteString(" out")
		}
		b.WriteByte('\n')
		d.peers, d.texts = append(d.peers, m.Peer), append(d.texts, b.String())
	}
	return d
}

// without names the members that are left without one.
func (d memberTexts) without(lost plan.PeerID) string {
	i := slices.Index(d.peers, lost)
	if i < 0 {
		return strings.Join(d.texts, "")
	}
	return strings.Join(d.texts[:i], "") + strings.Join(d.texts[i+1:], "")
}
