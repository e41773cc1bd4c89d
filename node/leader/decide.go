package leader

import (
	"cmp"
	"fmt"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
)

const (
	// DeadAfter bounds the silence of a member before the leader asks its host whether the
	// process still runs, and counts it as gone if not.
	DeadAfter = 5 * time.Second
	// UnreachableAfter bounds the silence of a member whose host is silent too: links bridge
	// that time, as pipeline/link's Options.PeerTimeout says.
	UnreachableAfter = 15 * time.Second
	// stallGrace is the first patience with a generation that was given up: a lost peer may show
	// before the same members are planned again.
	stallGrace = 3 * time.Second
	// lackingPlans bounds the plans that fail for want of a checkpoint's chunks before the run
	// goes back to an older checkpoint.
	lackingPlans = 3
)

// memberView describes a member to decide.
type memberView struct {
	Peer    plan.PeerID
	Active  bool // in the roster and not leaving
	Leaving bool // draining
	// Restarted after the plan was made, so not carrying it out.
	Restarted bool
	Silent    time.Duration
	Devices   int // that it computes on
}

// view is the input to a decision, all of it plain values.
type view struct {
	Plan       plan.Plan
	Checkpoint plan.Step
	Members    []memberView
	Names      map[plan.PeerID]string // of the plan's members, for people
	// The run begins with at least MinNodes and MinDevices.
	MinNodes, MinDevices int
	// Better says why another plan would be worth the change; empty when it is not.
	Better string
	// Paused: the plan's workers were asked to save their newest step and to wait. Newest is
	// the newest step that one of them reports.
	Paused bool
	Newest plan.Step
	Stall  stall
	Ending bool // the run is stopping or finished
}

// stall describes a generation that was given up, if any.
type stall struct {
	gossip.Stall
	// Patience bounds the wait for it to end by itself: longer each time a generation ends
	// without a new checkpoint.
	Patience time.Duration
	// Plans counts those made since the newest checkpoint. Alone: this node is the only
	// member and the only holder.
	Plans int
	Alone bool
	// Fallback is the step of the newest older checkpoint that is kept; 0 is none.
	Fallback plan.Step
}

// verdict says what the leader does next: at most one thing at a time.
type verdict struct {
	Gone     plan.PeerID // mark this member gone
	Doubt    bool        // but only if its host says that the process has ended
	Pause    bool        // have the newest step saved, a new plan follows it
	Rollback plan.Step   // give the newest checkpoint up for this one; 0 is no
	Plan     bool        // make a new plan now
	Why      string
	// Blocked says why there is no plan and none can be made.
	Blocked string
}

// decide is the leader's rule, cheapest loss first. It marks the dead; plans at once when the
// running plan cannot go on; otherwise it has the state saved and plans from there.
func decide(v view) verdict {
	if v.Ending {
		return verdict{}
	}
	if gone, ok := v.silent(); ok {
		return gone
	}
	active, devices, leaving := 0, 0, map[plan.PeerID]bool{}
	absent := map[plan.PeerID]string{} // nodes of the plan, and why
	for _, peer := range v.Plan.Peers() {
		absent[peer] = "is gone"
	}
	for _, m := range v.Members {
		switch {
		case m.Restarted:
			absent[m.Peer] = "was started again"
		case m.Active || m.Leaving:
			delete(absent, m.Peer)
		}
		leaving[m.Peer] = m.Leaving
		if m.Active {
			active++
			devices += m.Devices
		}
	}
	if v.Plan.Generation == 0 {
		return v.first(active, devices)
	}
	if active == 0 {
		return verdict{} // the last node leaves: its checkpoint is the end of the run for now
	}
	for _, peer := range v.Plan.Peers() {
		if why, ok := absent[peer]; ok {
			return verdict{Plan: true, Why: fmt.Sprintf("%s %s", v.nameOf(peer), why)}
		}
	}
	if v.Stall.For > 0 {
		return v.stalled()
	}
	return v.change(leaving)
}

// nameOf returns what people call a peer.
func (v view) nameOf(peer plan.PeerID) string { return cmp.Or(v.Names[peer], peer.Short()) }

// silent marks a member gone from which nothing is heard. Members come first that were away for
// longer than a link may be.
func (v view) silent() (gone verdict, ok bool) {
	for _, limit := range []time.Duration{UnreachableAfter, DeadAfter} {
		for _, m := range v.Members {
			if m.Silent > limit {
				why := fmt.Sprintf("no sign of life for %v", m.Silent.Round(time.Second/10))
				return verdict{Gone: m.Peer, Doubt: m.Silent <= UnreachableAfter, Why: why}, true
			}
		}
	}
	return verdict{}, false
}

// first waits for the nodes and devices that the run wants to begin with.
func (v view) first(active, devices int) verdict {
	if need := max(1, v.MinNodes); active < need {
		return verdict{Blocked: fmt.Sprintf("the run begins with %d nodes, %d here so far; `pnode invite` prints how others join", need, active)}
	}
	if devices < v.MinDevices {
		return verdict{Blocked: fmt.Sprintf("the run begins with %d devices, %d here so far; `pnode invite` prints how others join", v.MinDevices, devices)}
	}
	return verdict{Plan: true, Why: "first plan"}
}

// stalled plans again when patience is over. Where chunks are lacking that nobody brings, the
// run goes back to an older checkpoint first.
func (v view) stalled() verdict {
	s := v.Stall
	switch {
	case v.Checkpoint < v.Plan.Start:
		return verdict{Plan: true, Why: fmt.Sprintf("nobody who is up has all of the checkpoint of step %d", v.Plan.Start)}
	case !s.Lacks || !s.Alone && s.Plans < lackingPlans:
		if s.For > s.Patience {
			return verdict{Plan: true, Why: "a member gave the generation up: " + s.Why}
		}
		return verdict{}
	case s.Fallback == 0:
		return verdict{Blocked: fmt.Sprintf("nobody who is up has all of the checkpoint of step %d, and no older one is kept; start a node that holds a copy", v.Checkpoint)}
	}
	return verdict{Rollback: s.Fallback, Why: fmt.Sprintf("nobody who is up has all of the checkpoint of step %d", v.Checkpoint)}
}

// change handles the wishes that can wait for a checkpoint.
func (v view) change(leaving map[plan.PeerID]bool) verdict {
	why := ""
	for _, peer := range v.Plan.Peers() {
		if leaving[peer] {
			why = fmt.Sprintf("%s is leaving", v.nameOf(peer))
		}
	}
	if why == "" {
		why = v.Better
	}
	if why == "" && v.Paused {
		why = "the plan was paused" // by an earlier leader, whose reason is gone
	}
	switch {
	case why == "":
		return verdict{}
	case !v.Paused:
		return verdict{Pause: true, Why: why}
	case v.Checkpoint > v.Plan.Start && v.Checkpoint >= v.Newest:
		return verdict{Plan: true, Why: why}
	default:
		return verdict{} // the save is under way
	}
}
