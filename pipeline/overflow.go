package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// maxSkipped is by how many more updates loss scaling may skip than are made: then a worker says whose gradients
// were not finite. Who has seen sums or reports alone waits for one more: who met the gradients themselves knows
// better.
const maxSkipped = 8

// overflow notes where gradients that are not finite came from in a step, as far as a worker sees it. Backward
// carries them to the stages before, reductions to other replicas.
type overflow struct {
	mu    sync.Mutex // guards what follows
	first [4]plan.PeerID
	// reporter is who reported the last part that is not finite: backward came by it first.
	reporter plan.PeerID
	part     int32
}

// note takes a message from a peer, perhaps this one, that is not finite. What explains others comes first:
// gradients that came from a later stage, then this worker's own, then what reductions brought.
func (o *overflow) note(self, from plan.PeerID, t wire.Tag) {
	rank := 2
	switch own := from == self; {
	case !own && t.Kind == wire.Gradient:
		rank = 0
	case own && (t.Kind == wire.Gradient || t.Kind == wire.ReducePart):
		rank = 1
	case own:
		rank = 3
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first[rank] == "" {
		o.first[rank] = from
	}
}

// onOverflow returns what takes elements of reductions that are not finite; nil where they are a fault.
func (s *stepRun) onOverflow() func(plan.PeerID, wire.Tag) {
	if !s.anyScales() {
		return nil
	}
	return func(from plan.PeerID, t wire.Tag) { s.overflow.note(s.worker.Peer, from, t) }
}

// report takes a peer's report.
func (o *overflow) report(from plan.PeerID, r wire.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range r.SumSquares {
		if overflowed(q.Sum) && (o.reporter == "" || q.Part > o.part) {
			o.reporter, o.part = from, q.Part
		}
	}
}

// suspect is from whom gradients that are not finite came, and in what; no peer: nobody knows.
type suspect struct {
	peer plan.PeerID
	kind plan.FaultKind
	met  bool // gradients themselves, not sums of them or what was reported
}

// order is any that is the same in each run.
func (s suspect) order() string { return fmt.Sprint(s.peer, s.kind, s.met) }

func (o *overflow) cause() suspect {
	o.mu.Lock()
	defer o.mu.Unlock()
	for rank, from := range o.first {
		if from != "" {
			return suspect{from, plan.BadTensor, rank < 2}
		}
	}
	return suspect{o.reporter, plan.BadReport, false}
}

// countSkipped returns a fault when loss scaling has skipped too many updates: of whoever the gradients that are
// not finite came from most often. Of this worker itself that says that the run has diverged. A coordinator that
// skips on when it should have ended the run is at fault, too.
func (w *Worker) countSkipped(s *stepRun, c wire.Commit) error {
	if c.GradScale != 0 {
		if w.skipped = max(0, w.skipped-1); w.skipped == 0 {
			clear(w.suspects)
		}
		return nil
	}
	w.skipped++
	w.suspects[s.overflow.cause()]++
	delete(w.suspects, suspect{kind: plan.BadReport}) // nobody
	most := suspect{}
	if len(w.suspects) > 0 {
		most = slices.MaxFunc(slices.Collect(maps.Keys(w.suspects)), func(a, b suspect) int {
			return cmp.Or(cmp.Compare(w.suspects[a], w.suspects[b]), strings.Compare(a.order(), b.order()))
		})
	}
	self := w.worker.Peer
	switch {
	case w.skipped < maxSkipped:
		return nil
	case most.peer == self:
		return faulty(plan.BadParameters, self, s.step,
			"diverged: %d updates were skipped because gradients were not finite; try a lower learning rate, or bf16", w.skipped)
	case most.met || most.peer != "" && w.skipped > maxSkipped:
		return faulty(most.kind, most.peer, s.step, "its gradients were not finite in %d of %d skipped updates", w.suspects[most], w.skipped)
	case w.skipped > maxSkipped+1 && !w.coordinates():
		by := collective.Brought(w.cfg.Exchange, w.plan.Coordinator().Peer, w.controlTag(w.worker, wire.KindCommit, s.step))
		return faulty(plan.BadCommit, by, s.step, "it skips update after update, %d by now, want the run's end", w.skipped)
	}
	return nil
}
