package outersteps

import (
	"cmp"
	"slices"
	"sync"

	"pnode/node/gossip"
	"pnode/pipeline/gather"
	"pnode/pipeline/meeting"
	"pnode/planner/plan"
)

// met has the newest outer step of each replica here. The zero value is ready. Its methods may be called concurrently.
type met struct {
	mu  sync.Mutex // guards all
	all []gossip.Met
}

// Made takes in an outer step of a plan as a worker here has made it, whose replica counted.
func (w *Words) Made(p plan.Plan, id plan.WorkerID, r plan.Replica, o gather.Outcome) {
	made := gossip.Met{
		Generation: o.Generation, From: o.From, Replica: r, SentBytes: o.Took.SentBytes, RoundNanos: o.Took.Round.Nanoseconds(),
		WaitedNanos: o.Took.Waited.Nanoseconds(), HiddenNanos: o.Took.Hidden.Nanoseconds(),
	}
	for _, at := range p.Replicas[r].Stages {
		if at.Worker() == id {
			made.Stages++
		}
	}
	made.Spread.Add(o.Spread)
	w.met.mu.Lock()
	defer w.met.mu.Unlock()
	i := slices.IndexFunc(w.met.all, func(m gossip.Met) bool {
		return m.Generation == made.Generation && m.From == made.From && m.Replica == made.Replica
	})
	if i >= 0 { // of another worker here, with other layers
		other := w.met.all[i]
		made.Stages, made.SentBytes = made.Stages+other.Stages, made.SentBytes+other.SentBytes
		made.RoundNanos, made.WaitedNanos = max(made.RoundNanos, other.RoundNanos), max(made.WaitedNanos, other.WaitedNanos)
		made.HiddenNanos = min(made.HiddenNanos, other.HiddenNanos)
		made.Spread.Add(other.Spread)
	}
	w.met.all = slices.DeleteFunc(w.met.all, func(m gossip.Met) bool { return m.Generation != made.Generation || m.Replica == made.Replica })
	w.met.all = append(w.met.all, made)
	slices.SortFunc(w.met.all, func(a, b gossip.Met) int { return cmp.Compare(a.Replica, b.Replica) })
}

// Met returns the newest outer step of each replica here, in their order.
func (w *Words) Met() []gossip.Met {
	w.met.mu.Lock()
	defer w.met.mu.Unlock()
	all := slices.Clone(w.met.all)
	for i := range all {
		var own meeting.Spread
		own.Add(all[i].Spread)
		all[i].Spread = own
	}
	return all
}
