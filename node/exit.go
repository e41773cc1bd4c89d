package node

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/node/notice"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// exit is the state of the loop's way out.
type exit struct {
	leaving bool               // asked to leave; not taken back
	notice  notice.Notice      // why, and until when
	parting time.Duration      // before that time: what is not handed over then stays here
	since   time.Time          // leaving or stopping is wanted since; zero while neither is
	salvage *consensus.Salvage // the newest that the log has, known here since asked; nil for none
	asked   time.Time
	unsaved time.Time     // since then a stop waits for what members of a broken plan may save; zero while it does not
	done    int64         // bytes that have been handed over
	moved   time.Time     // when the last of them were
	shown   string        // to people, of how far that is
	step    time.Duration // took the newest step when a stop was told first
	over    bool          // the loop ends
	left    bool          // the run goes on without this node, which gives its vote away
	lost    error         // what could not be handed over; nil where all is
}

// salvageTimeout bounds the wait of a stop until the log says who saves what a broken plan has left: the dead are marked before, which may take a
// vote for each, and an election. It is longer where a proposal may take longer.
const salvageTimeout = 10 * time.Second

// mostParting bounds the time that a node keeps for giving its vote away and for closing, or a quarter of a short time.
const mostParting = 3 * time.Second

// ask takes in that somebody wants this node to leave, and until when.
func (e *exit) ask(why notice.Notice, now time.Time) {
	e.notice = e.notice.Sooner(why)
	e.parting = mostParting
	if at := e.notice.At; !at.IsZero() {
		e.parting = min(mostParting, max(0, at.Sub(now)/4))
	}
}

// overdue reports whether the time to hand anything over has passed, where one is known.
func (e *exit) overdue(now time.Time) bool {
	return !e.notice.At.IsZero() && now.After(e.notice.At.Add(-e.parting))
}

// gave takes in whether the vote was given away. A run whose majority depends on this node does not go on without it.
func (e *exit) gave(err error) {
	e.over = true
	if err != nil {
		e.lost = errors.Join(e.lost, fmt.Errorf("%w of this node's vote: the others may have to wait until it is started again: %w", ErrNotHandedOver, err))
	}
}

// continues reports whether a run goes on without a member that leaves. Where nobody stays it stops, with all that leave.
func continues(s consensus.State, without plan.PeerID) bool {
	return !s.Finished && !s.StopWanted && othersActive(s, without)
}

// exitView is the input to wayOut, all of it plain values.
type exitView struct {
	State   consensus.State
	Self    plan.PeerID
	Leaving bool
	// Newest is the newest step this node knows to be committed in the current plan.
	Newest plan.Step
	// Running: a generation runs here. Stalled: it was given up, here or elsewhere.
	// Completed: the workers here finished it. Salvaging: members save what is left of it, or may yet.
	Running, Stalled, Completed, Salvaging bool
	// Patience is how long to wait for the outcome of a proposal.
	Patience time.Duration
}

// exitVerdict is the result of wayOut. Over and Left end the loop, the others are wishes
// to propose.
type exitVerdict struct {
	Over, Left          bool
	Drain, Stop, Finish bool
}

// wayOut is the rule of leaving. With other active members a leaving node drains: its
// state is saved and the next plan does without it. Without them, leaving stops the run.
func wayOut(v exitView) exitVerdict {
	s := v.State
	if s.Finished {
		return exitVerdict{Over: true}
	}
	last := s.Checkpoint.Step == s.Run.Train.Steps
	if v.Completed && !v.Running && last {
		return exitVerdict{Finish: consensus.Finisher(s) == v.Self}
	}
	if s.StopWanted {
		saved := s.Checkpoint.Step >= v.Newest && !last
		return exitVerdict{Over: !v.Running && !v.Salvaging && (saved || v.Stalled)}
	}
	if !v.Leaving {
		return exitVerdict{}
	}
	me, member := s.Member(v.Self)
	switch {
	case !othersActive(s, v.Self):
		return exitVerdict{Stop: true}
	case member && me.State == consensus.Active:
		return exitVerdict{Drain: true}
	case (!s.Plan.Places(v.Self) || saved(v)) && heldByOthers(s, v.Self):
		return exitVerdict{Over: true, Left: true}
	}
	return exitVerdict{}
}

// saved reports whether the plan has ended with its newest step saved, while no other one follows: one without this
// node may not fit anywhere.
func saved(v exitView) bool {
	s := v.State
	return s.Paused() && s.Ended() && !v.Running
}

func othersActive(s consensus.State, self plan.PeerID) bool {
	return slices.ContainsFunc(s.Members, func(m consensus.Member) bool {
		return m.Peer != self && m.State == consensus.Active
	})
}

// heldByOthers reports whether the newest checkpoint can be had without this node.
func heldByOthers(s consensus.State, self plan.PeerID) bool {
	return keptByOthers(s, self) == s.Checkpoint.Step
}

// heldElsewhere reports whether a member that is there and stays has stored a layer.
func heldElsewhere(s consensus.State, l consensus.LayerRef, self plan.PeerID) bool {
	return slices.ContainsFunc(l.Holders, func(p plan.PeerID) bool {
		m, ok := s.Member(p)
		return p != self && l.StoredBy(p) && ok && m.State != consensus.Gone && m.State != consensus.Draining
	})
}

// keptByOthers returns the step of the newest checkpoint that can be had without this node, 0 for the start of the run.
func keptByOthers(s consensus.State, self plan.PeerID) plan.Step {
	for _, c := range consensus.Checkpoints(s) {
		if !slices.ContainsFunc(c.Layers, func(l consensus.LayerRef) bool { return !heldElsewhere(s, l, self) }) {
			return c.Step
		}
	}
	return 0
}
