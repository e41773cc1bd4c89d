package node

import (
	"fmt"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// electionTime is how long there may be no planner before that is worth a word.
	electionTime = 6 * time.Second
	// awayAfter is how long a voter may be silent before it is named as away.
	awayAfter = 3 * time.Second
	// tellAfter is how long nothing must move for one reason before people are told.
	tellAfter = 2 * time.Second
	// mostTried are how many of the addresses that are tried are named.
	mostTried = 3
)

// waitView is what a node knows when nothing moves, all of it plain values.
type waitView struct {
	Quorum consensus.Quorum
	// Leaderless is how long no planner has been known; Away are the voters not heard since
	// awayAfter.
	Leaderless time.Duration
	Away       []plan.PeerID
	Checkpoint plan.Step
	Blocked    string // why the planner has no plan, as far as this node has heard
	Training   bool   // this node carries one out
	Stalled    plan.Generation
	StallWhy   error
	// Trying are the addresses at which a node that comes back looks for the others.
	Trying []string
}

// why is the reason for which nothing moves, in one sentence for people; empty when things
// move, or will in a moment.
func (v waitView) why() string {
	why := v.cause()
	if why == "" || len(v.Trying) == 0 {
		return why
	}
	tried := v.Trying[:min(len(v.Trying), mostTried)]
	more := ""
	if left := len(v.Trying) - len(tried); left > 0 {
		more = fmt.Sprintf(" and %d more addresses", left)
	}
	return fmt.Sprintf("%s. Trying %s%s, for up to %.0f minutes, or %.0f where the machines say that nobody runs there; Ctrl-C ends that and loses nothing",
		why, strings.Join(tried, ", "), more, returnTimeout.Minutes(), desertedAfter.Minutes())
}

func (v waitView) cause() string {
	voters := len(v.Quorum.Voters)
	switch {
	case v.Leaderless > electionTime && voters == 0:
		return "no planner of the run answers yet"
	case v.Leaderless > electionTime && len(v.Away) == 0:
		return "the run has no planner: its voters are electing one, or this node is cut off from them"
	case v.Leaderless > electionTime:
		return fmt.Sprintf("%d of the run's %d voters up, %d must be (silent: %s). Nothing is lost: the checkpoint of step %d is kept; start the silent nodes again in their folders (`pnode train --resume` or `pnode join`) and the run goes on by itself; where they finished it, they say so",
			voters-len(v.Away), voters, voters/2+1, shortList(v.Away), v.Checkpoint)
	case v.Blocked != "" && !v.Training:
		return v.Blocked
	case v.Stalled != 0:
		return fmt.Sprintf("generation %d was given up, a new plan will follow: %v", v.Stalled, v.StallWhy)
	}
	return ""
}

func shortList(peers []plan.PeerID) string {
	var names []string
	for _, p := range peers {
		names = append(names, p.Short())
	}
	return strings.Join(names, ", ")
}

// waiting is why nothing moves as far as this node knows.
func (n *Node) waiting(now time.Time) string {
	state := n.raft.State()
	if state.Finished {
		return ""
	}
	v := waitView{Quorum: n.raft.Quorum(), Checkpoint: state.Checkpoint.Step}
	if !v.Quorum.LostSince.IsZero() {
		v.Leaderless = now.Sub(v.Quorum.LostSince)
	}
	if v.Leaderless > electionTime { // the log may not be here up to its end
		if kept, err := n.store.Manifests(); err == nil && len(kept) > 0 {
			v.Checkpoint = max(v.Checkpoint, kept[0].Step)
		}
	}
	for _, p := range v.Quorum.Voters {
		if ago, heard := n.beats.Ago(p, now); p != n.self && (!heard || ago > awayAfter) {
			v.Away = append(v.Away, p)
		}
	}
	b, _ := n.beats.Last(v.Quorum.Leader)
	v.Blocked = b.Blocked
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	v.Stalled, v.StallWhy, v.Training = n.shared.stalled, n.shared.stallWhy, n.shared.phase == Training
	if n.shared.phase == Joining || n.shared.phase == Profiling {
		v.Trying = n.trying
	}
	return v.why()
}

// tellWaiting shows why nothing moves, once, when that has been so for tellAfter.
func (n *Node) tellWaiting(now time.Time) {
	if why := n.waiting(now); n.shared.tell(why, now) {
		n.hub.Publish(api.Event{Kind: api.KindWaiting, Generation: n.raft.State().Plan.Generation, Message: why})
	}
}
