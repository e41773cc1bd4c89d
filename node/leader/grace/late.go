package grace

import (
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// Late follows replicas with local steps for which the others wait: a round was closed, and they had not handed in. The speed of such a one counts
// once the inner step under way is over, or the others go on without it. The zero value has seen nothing; it is of one plan.
type Late struct {
	from     plan.Step // of the round under way
	replicas map[plan.Replica]*lateness
	// Due has the replicas whose speed is to count now, by how long the inner step has been under way that they have not ended; 0 where they have.
	Due map[plan.Replica]time.Duration
}

// lateness describes a replica in a round.
type lateness struct {
	step  plan.Step // the newest inner one
	since time.Time // it was seen first
	// late: the others wait for it, or have waited while it made the step after closed.
	late   bool
	closed plan.Step
}

// Look takes in how far the replicas of a plan have come.
func (l *Late) Look(state consensus.State, beats *gossip.Tracker, now time.Time) {
	p, round, merged := state.Plan, state.Round, state.Merged
	if p.Local == nil {
		return
	}
	if round != nil && (l.replicas == nil || round.From != l.from) {
		l.begin(*round, now)
	}
	handed := func(r plan.Replica) bool {
		b, _ := beats.Last(plan.CoordinatorOf(p, r).Peer)
		return slices.ContainsFunc(b.HandedIn, func(h gossip.HandedIn) bool {
			return h.Generation == p.Generation && h.Replica == r && h.From == l.from
		})
	}
	waits, begun := false, false
	for r, of := range l.replicas {
		b, _ := beats.Last(plan.CoordinatorOf(p, r).Peer)
		i := slices.IndexFunc(b.Inner, func(i gossip.InnerStep) bool { return i.Replica == r })
		if b.Generation == p.Generation && i >= 0 && b.Inner[i].Step > of.step {
			of.step, of.since = b.Inner[i].Step, now
		}
		waits, begun = waits || handed(r), begun || of.step > p.Start
	}
	for r, of := range l.replicas {
		out := merged != nil && merged.From == l.from && merged.Parts[r].Steps == 0 || round != nil && !slices.Contains(round.Awaited(), r)
		switch {
		case !begun:
			of.since = now // they load what the plan begins with
		case !of.late && waits && !handed(r) && round != nil && round.Closed && !state.Paused() && !state.StopWanted && !out:
			of.late, of.closed = true, of.step
		case of.late && (of.step > of.closed || out):
			if l.Due == nil {
				l.Due = map[plan.Replica]time.Duration{}
			}
			if l.Due[r] = 0; of.step <= of.closed {
				l.Due[r] = now.Sub(of.since)
			}
			delete(l.replicas, r)
		}
	}
}

// begin turns to the next round. What a late replica had under way may be told of in this one only.
func (l *Late) begin(round rounds.Round, now time.Time) {
	before := l.replicas
	l.from, l.replicas = round.From, map[plan.Replica]*lateness{}
	for r := range round.Gathered {
		r := plan.Replica(r)
		l.replicas[r] = &lateness{step: round.From, since: now}
		if of := before[r]; of != nil && of.late {
			l.replicas[r] = &lateness{step: of.step, since: now, late: true, closed: of.closed}
		}
	}
}
