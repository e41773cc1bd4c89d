package grace

import (
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// leastGrace bounds the waits from below: short rounds end within seconds of one another by chance.
const leastGrace = 5 * time.Second

// View describes a round as the leader sees it.
type View struct {
	Now   time.Time
	Plan  plan.Plan
	Round rounds.Round
	// Unable says of replicas why they cannot go on.
	Unable map[plan.Replica]string
	// Said has the newest words of the replicas' coordinators, of whatever round.
	Said []gossip.HandedIn
	// Takes is how long a round should take, 0 where nobody knows, Exchange how long its messages should be on their way, and Patience for how long it is believed that
	// something comes yet.
	Takes, Exchange, Patience time.Duration
	// Overlap is for how long after its begin replicas do not end the round, closed or not, since messages of the one before travel.
	Overlap time.Duration
}

// Watch remembers since when the round under way is waited for. The zero value is ready.
type Watch struct {
	generation plan.Generation
	from       plan.Step
	began      time.Time // it was seen first
	first      time.Time // somebody had handed in
	closed     time.Time // replicas could end it early
	awaited    int       // how many replicas the log waits for
	since      time.Time // it waits for these alone
}

// Next returns what the leader proposes now: a CloseRound or a LeaveOut, or nil. A round that is lost can never be merged: the run goes on from its
// newest checkpoint.
func (w *Watch) Next(v View) (e consensus.Entry, lost bool) {
	w.begin(v)
	lacks := w.lacks(v)
	w.look(v, len(lacks) > 0)
	missing := v.Round.Missing()
	if len(missing) == 0 {
		return nil, true
	}
	for _, q := range v.Round.Awaited() {
		if why, unable := v.Unable[q]; unable {
			return leaveOut(v, q, why)
		}
	}
	grace := max(leastGrace, v.Takes/10)
	over := func(since time.Time, most time.Duration) bool {
		return !since.IsZero() && !v.Now.Before(since.Add(most))
	}
	switch late := grace + 2*v.Exchange; {
	case w.closed.IsZero() && (over(w.first, grace) || v.Takes > 0 && over(w.began, 2*v.Takes+late+v.Patience)):
		return consensus.CloseRound{Generation: v.Plan.Generation, From: v.Round.From}, false
	case over(w.closed, late):
		slow := slices.DeleteFunc(slices.Clone(missing), func(q plan.Replica) bool { _, handed := lacks[q]; return handed })
		switch {
		case len(slow) > 0:
		case !over(w.since, grace): // they have handed in, and say so once they know who else was left out
			return nil, false
		default: // who has all may be one whose own messages come to few
			slow = slices.DeleteFunc(v.Round.Awaited(), func(q plan.Replica) bool { return !slices.Contains(missing, q) && !reachesFew(v, lacks, q) })
		}
		e, needed := leaveOut(v, apart(v, lacks, slow), "its messages, or its word that it has those of the others, did not come in time")
		return e, needed && over(w.closed, late+v.Patience) // a replica that the others cannot do without is waited for
	}
	return nil, false
}

// begin notes a new round.
func (w *Watch) begin(v View) {
	if w.generation != v.Plan.Generation || w.from != v.Round.From {
		*w = Watch{generation: v.Plan.Generation, from: v.Round.From, began: v.Now}
	}
}

// look notes since when things are as they are.
func (w *Watch) look(v View, handed bool) {
	said := slices.ContainsFunc(v.Round.Gathered, func(parts []plan.Part) bool { return parts != nil })
	if (said || handed) && w.first.IsZero() {
		w.first = v.Now
	}
	if v.Round.Closed && w.closed.IsZero() {
		w.closed = v.Now
		if first := w.began.Add(v.Overlap); first.After(v.Now) {
			w.closed = first
		}
	}
	if awaited := len(v.Round.Awaited()); awaited != w.awaited {
		w.awaited, w.since = awaited, v.Now
	}
}

// lacks returns which awaited replicas have handed in, and whose messages of those that are awaited each of them does not have: by what was said of this
// round, as far as it may be true. Nobody has ended a round that is not closed before its last step, nor in less than half of the time: of what is left of it once
// the outer step before is made.
func (w *Watch) lacks(v View) map[plan.Replica][]plan.Replica {
	awaited, all := v.Round.Awaited(), map[plan.Replica][]plan.Replica{}
	closed, whole := v.Round.Closed, v.Round.End-v.Round.From
	for _, h := range v.Said {
		switch {
		case h.Generation != v.Plan.Generation || h.From != v.Round.From || !slices.Contains(awaited, h.Replica):
		case h.Steps > whole || !closed && (h.Steps != whole || v.Now.Before(w.began.Add((v.Takes-v.Overlap)/2))):
		default:
			all[h.Replica] = slices.DeleteFunc(slices.Clone(h.Lacks), func(q plan.Replica) bool { return !slices.Contains(awaited, q) })
		}
	}
	return all
}

// reachesFew reports whether several of the others, with more than half of their micro-batches, lack a replica's messages. Where fewer say so they may be wrong, or lie
// about one of the others after the other.
func reachesFew(v View, lacks map[plan.Replica][]plan.Replica, q plan.Replica) bool {
	without, all, lacking := 0, 0, 0
	for _, other := range v.Round.Awaited() {
		if other == q {
			continue
		}
		micros := v.Plan.Replicas[other].Micros
		if all += micros; slices.Contains(lacks[other], q) {
			without, lacking = without+1, lacking+micros
		}
	}
	return without > 1 && 2*lacking > all
}

// leaveOut proposes to leave a replica out, unless the rest would be no quorum: then it is needed.
func leaveOut(v View, q plan.Replica, why string) (e consensus.Entry, needed bool) {
	if _, err := v.Round.LeaveOut(v.Plan, rounds.LeftOut{Replica: q, Reason: why}); err != nil {
		return nil, true
	}
	return consensus.LeaveOut{Generation: v.Plan.Generation, From: v.Round.From, Replica: q, Reason: why}, false
}

// apart returns the replica of some whose exchange with the others lacks the most micro-batches' worth of messages.
func apart(v View, lacks map[plan.Replica][]plan.Replica, missing []plan.Replica) plan.Replica {
	worst, most := missing[0], -1
	for _, q := range missing {
		lacking := 0
		for _, other := range v.Round.Awaited() {
			if slices.Contains(lacks[q], other) || slices.Contains(lacks[other], q) {
				lacking += v.Plan.Replicas[other].Micros
			}
		}
		if lacking > most || lacking == most && v.Plan.Replicas[q].Micros <= v.Plan.Replicas[worst].Micros {
			worst, most = q, lacking
		}
	}
	return worst
}
