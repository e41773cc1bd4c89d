package leader

import (
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// giveUpStop is by how much steps stop for longer where a step is given up than at a pause: members tell what they have left, and the leader
// says who saves what. Where the gain is smaller the step goes on.
const giveUpStop = 3 * time.Second

// underWay describes the step under way. The zero value knows nothing of it.
type underWay struct {
	// For is how long it has been under way, Takes how long steps take. Workers counts the plan's.
	For, Takes time.Duration
	Workers    int
	// Busy says for how long members compute in a step.
	Busy map[plan.PeerID]time.Duration
	// Ready are those for whose loss the plan is there that follows.
	Ready map[plan.PeerID]bool
}

// gives reports whether a step is better given up and begun again without a member with so many lost workers, than ended with another one
// in its place that computes both parts. The other one begins with the lost one's part once it has nothing more of its own to do, since its device
// computes one at a time, and needs as long as for its own. Given up is what is done of the step, and the one that begins again takes longer with
// fewer workers; in the other case that begins with the step after.
func (u underWay) gives(lost, by plan.PeerID, workers int) bool {
	own := min(u.Busy[by], u.Takes)
	if own == 0 || !u.Ready[lost] || workers >= u.Workers {
		return false
	}
	part := time.Duration(float64(u.For) / float64(u.Takes) * float64(own))
	longer := max(0, own-part) + own - max(0, u.Takes-u.For)
	fewer := u.Takes * time.Duration(workers) / time.Duration(u.Workers-workers)
	return longer > u.For+fewer+giveUpStop
}

// stepWatch follows how far the step under way has come.
type stepWatch struct {
	beats      *gossip.Tracker
	generation plan.Generation
	newest     plan.Step
	since      time.Time // when newest was first seen; zero where this leader did not see it come
}

// look takes in the newest step of a state's plan.
func (w *stepWatch) look(state consensus.State, newest plan.Step, now time.Time) underWay {
	switch {
	case w.generation != state.Plan.Generation:
		w.generation, w.newest, w.since = state.Plan.Generation, newest, time.Time{}
	case newest > w.newest:
		w.newest, w.since = newest, now
	}
	if w.since.IsZero() || state.Substitute != nil {
		return underWay{}
	}
	u := underWay{For: now.Sub(w.since), Takes: w.beats.StepTime(state.Plan), Workers: len(state.Plan.Workers()), Busy: map[plan.PeerID]time.Duration{}}
	for _, p := range state.Plan.Peers() {
		if b, _ := w.beats.Last(p); b.Generation == state.Plan.Generation {
			for _, s := range b.Stages {
				u.Busy[p] += time.Duration(s.ForwardNanos + s.BackwardNanos)
			}
		}
	}
	return u
}
