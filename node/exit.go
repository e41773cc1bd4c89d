package node

import (
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// exit is the state of the loop's way out.
type exit struct {
	leaving bool      // asked to leave; not taken back
	since   time.Time // leaving or stopping is wanted since; zero while neither is
	over    bool      // the loop ends
	left    bool      // the run goes on without this node
}

// exitView is the input to wayOut, all of it plain values.
type exitView struct {
	State   consensus.State
	Self    plan.PeerID
	Leaving bool
	// Newest is the newest step this node knows to be committed in the current plan.
	Newest plan.Step
	// Running: a generation runs here. Stalled: it was given up, here or elsewhere.
	// Completed: the workers here finished it.
	Running, Stalled, Completed bool
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
		return exitVerdict{Finish: s.Plan.Coordinator().Peer == v.Self}
	}
	if s.StopWanted {
		saved := s.Checkpoint.Step >= v.Newest && !last
		return exitVerdict{Over: !v.Running && (saved || v.Stalled)}
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
	case !s.Plan.Places(v.Self) && heldByOthers(s, v.Self):
		return exitVerdict{Over: true, Left: true}
	}
	return exitVerdict{}
}

func othersActive(s consensus.State, self plan.PeerID) bool {
	return slices.ContainsFunc(s.Members, func(m consensus.Member) bool {
		return m.Peer != self && m.State == consensus.Active
	})
}

// heldByOthers reports whether the newest checkpoint can be had without this node.
func heldByOthers(s consensus.State, self plan.PeerID) bool {
	for _, l := range s.Checkpoint.Layers {
		elsewhere := slices.ContainsFunc(l.Holders, func(p plan.PeerID) bool {
			m, ok := s.Member(p)
			return p != self && ok && m.State != consensus.Gone
		})
		if !elsewhere {
			return false
		}
	}
	return true
}
