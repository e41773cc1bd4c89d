package monitor

import (
	"fmt"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// electionTime is how long there may be no leader before people are told.
	electionTime = 6 * time.Second
	// awayAfter is how long a voter may be silent before it is named as away.
	awayAfter = 3 * time.Second
	// showAfter is how long nothing must move for one reason before people are told.
	showAfter = 2 * time.Second
	// mostTried are how many of the addresses that are tried are named.
	mostTried = 3
)

// Phases of a node that change why it waits, in the words of api.Status.
const (
	phaseJoining   = "joining"
	phaseProfiling = "profiling"
	phaseTraining  = "training"
)

// ReturnDeadlines bound how long a node that comes back looks for the others: in any case, and
// where their machines say that no node runs there.
type ReturnDeadlines struct{ Silent, Deserted time.Duration }

// waitView holds what a node knows when nothing moves.
type waitView struct {
	Quorum consensus.Quorum
	// Leaderless is how long no leader has been known; Away names the voters that were not heard
	// for awayAfter.
	Leaderless time.Duration
	Away       []string
	Checkpoint plan.Step
	Blocked    string // why the leader has no plan, as far as this node has heard
	Training   bool   // this node carries one out
	Stalled    plan.Generation
	StallWhy   error
	NotUsed    string // why plans do without this node
	Diverged   string // why the run has stopped
	// Trying are the addresses at which a node that comes back looks for the others.
	Trying    []string
	Deadlines ReturnDeadlines
}

// why returns the reason why nothing moves, in one sentence for people. It is empty when things
// move, or will in a moment.
func (v waitView) why() string {
	why := v.cause()
	if why == "" || len(v.Trying) == 0 {
		return why
	}
	tried := strings.Join(v.Trying[:min(len(v.Trying), mostTried)], ", ")
	if more := len(v.Trying) - mostTried; more > 0 {
		tried += fmt.Sprintf(" and %d more addresses", more)
	}
	return fmt.Sprintf("%s. Trying %s, for up to %.0f minutes, or %.0f where the machines say that nobody runs there; Ctrl-C ends that and loses nothing",
		why, tried, v.Deadlines.Silent.Minutes(), v.Deadlines.Deserted.Minutes())
}

func (v waitView) cause() string {
	voters := len(v.Quorum.Voters)
	switch {
	case v.Leaderless > electionTime && voters == 0:
		return "no leader of the run answers yet"
	case v.Leaderless > electionTime && len(v.Away) == 0:
		return "the run has no leader: its voters are electing one, or this node is cut off from them"
	case v.Leaderless > electionTime:
		return fmt.Sprintf("%d of the run's %d voters up, %d must be (silent: %s). Nothing is lost: the checkpoint of step %d is kept; "+
			"start the silent nodes again in their folders (`pnode train --resume` or `pnode join`) and the run goes on by itself; "+
			"where they finished it, they say so",
			voters-len(v.Away), voters, voters/2+1, strings.Join(v.Away, ", "), v.Checkpoint)
	case v.Diverged != "":
		return v.Diverged
	case v.Blocked != "" && !v.Training:
		return v.Blocked
	case v.NotUsed != "" && !v.Training:
		return "this node is in the run, but not used " + v.NotUsed
	case v.Stalled != 0:
		return fmt.Sprintf("generation %d was given up, a new plan will follow: %v", v.Stalled, v.StallWhy)
	}
	return ""
}

// waiting returns why nothing moves as far as this node knows.
func (m *Monitor) waiting(state consensus.State, now time.Time) string {
	if state.Finished {
		return ""
	}
	v := waitView{Quorum: m.Consensus.Quorum(), Checkpoint: state.Checkpoint.Step, Deadlines: m.Deadlines}
	if me, ok := state.Member(m.Self); ok {
		v.NotUsed = notUsed(state, me, now)
	}
	v.Diverged = DivergenceText(state)
	if !v.Quorum.LostSince.IsZero() {
		v.Leaderless = now.Sub(v.Quorum.LostSince)
	}
	if v.Leaderless > electionTime { // the log may not be here up to its end
		if kept, err := m.Store.Manifests(); err == nil && len(kept) > 0 {
			v.Checkpoint = max(v.Checkpoint, kept[0].Step)
		}
	}
	for _, p := range v.Quorum.Voters {
		if ago, heard := m.Beats.Ago(p, now); p != m.Self && (!heard || ago > awayAfter) {
			v.Away = append(v.Away, state.NameOf(p))
		}
	}
	b, _ := m.Beats.Last(v.Quorum.Leader)
	v.Blocked = b.Blocked
	m.mu.Lock()
	defer m.mu.Unlock()
	v.Stalled, v.StallWhy, v.Training = m.stalled, m.stallWhy, m.phase == phaseTraining
	if m.phase == phaseJoining || m.phase == phaseProfiling {
		v.Trying = m.Trying
	}
	return v.why()
}

// ShowWaiting publishes why nothing moves, once, after that has been so for showAfter.
func (m *Monitor) ShowWaiting(now time.Time) {
	state := m.Consensus.State()
	if why := m.waiting(state, now); m.mayShow(why, now) {
		m.Publish(api.Event{Kind: api.KindWaiting, Generation: state.Plan.Generation, Message: why})
	}
}

// mayShow takes in why nothing moves and reports whether it is time to show it.
func (m *Monitor) mayShow(why string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why != why {
		m.why, m.whySince, m.whyShown = why, now, false
	}
	if why == "" || m.whyShown || now.Sub(m.whySince) < showAfter {
		return false
	}
	m.whyShown = true
	return true
}
