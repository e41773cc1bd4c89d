package elastic

import (
	"slices"

	"pnode/pipeline/schedule"
)

// groupRun is an interleaved step under way: as much of it as follows from the groups that are
// known. schedule.Simulate times the same programs; this stops where the next group matters and
// goes on from there, so that all lists with the same groups in front have it in common.
type groupRun struct {
	// By worker: forwards and backwards done, the most activations kept at once, and when the
	// last ended.
	forwards, backwards, peak []int
	free                      []schedule.Nanos
	// left holds by stage the time of what is still to do.
	left []schedule.Nanos
	// sent holds when each directed link is free: the link forth from each worker, then the link
	// back, which are the same between two workers.
	sent []schedule.Nanos
	// activation, gradient hold by stage and micro-batch when tensors arrive, -1 before.
	activation, gradient []schedule.Nanos
}

func newGroupRun(p Interleaving) *groupRun {
	cells := len(p.Costs.Stages) * p.Micros
	r := &groupRun{
		forwards: make([]int, p.Workers), backwards: make([]int, p.Workers), peak: make([]int, p.Workers),
		free: make([]schedule.Nanos, p.Workers), left: make([]schedule.Nanos, len(p.Costs.Stages)), sent: make([]schedule.Nanos, 2*p.Workers),
		activation: slices.Repeat([]schedule.Nanos{-1}, cells), gradient: slices.Repeat([]schedule.Nanos{-1}, cells),
	}
	for s, t := range p.Costs.Stages {
		r.left[s] = schedule.Nanos(p.Micros) * (t.Forward + p.backward(s))
	}
	for m := range p.Micros {
		r.activation[m] = 0
	}
	return r
}

// set makes the run a copy of another.
func (r *groupRun) set(o *groupRun) {
	copy(r.forwards, o.forwards)
	copy(r.backwards, o.backwards)
	copy(r.peak, o.peak)
	copy(r.free, o.free)
	copy(r.left, o.left)
	copy(r.sent, o.sent)
	copy(r.activation, o.activation)
	copy(r.gradient, o.gradient)
}

// entry is a chunk of a micro-batch in a table of schedule.Grouped.
type entry struct{ chunk, micro int }

// groupTables has the known part of a grouping: the order of forwards and of backwards, and by
// worker how many forwards precede the first backward.
type groupTables struct {
	forward, backward []entry
	warmups           []int
}

// put adds a group to a table.
func put(table []entry, chunks, size int) []entry {
	first := len(table) / chunks
	for c := range chunks {
		for m := first; m < first+size; m++ {
			table = append(table, entry{c, m})
		}
	}
	return table
}

// warm sets the warm-ups of a depth and a first forward group.
func (t *groupTables) warm(p Interleaving, depth, first int) {
	chunks := len(p.Costs.Stages) / p.Workers
	for w := range t.warmups {
		t.warmups[w] = min(depth*(p.Workers-1-w)+(chunks-1)*first, chunks*p.Micros)
	}
}

// advance has every worker go on as far as tables and tensors allow.
func (r *groupRun) advance(p Interleaving, t *groupTables) {
	for moved := true; moved; {
		moved = false
		for w := range p.Workers {
			for r.next(p, t, w) {
				moved = true
			}
		}
	}
}

// next has a worker do one thing if it can.
func (r *groupRun) next(p Interleaving, t *groupTables, w int) bool {
	all := len(p.Costs.Stages) / p.Workers * p.Micros
	if f := r.forwards[w]; f < all && f-r.backwards[w] <= t.warmups[w] {
		return f < len(t.forward) && r.forward(p, w, t.forward[f])
	}
	b := r.backwards[w]
	return b < len(t.backward) && r.backward(p, w, t.backward[b])
}

func (r *groupRun) forward(p Interleaving, w int, e entry) bool {
	s := e.chunk*p.Workers + w
	at := s*p.Micros + e.micro
	ready := r.activation[at]
	if ready < 0 {
		return false
	}
	took := p.Costs.Stages[s].Forward
	end := max(ready, r.free[w]) + took
	r.free[w] = end
	r.left[s] -= took
	r.forwards[w]++
	r.peak[w] = max(r.peak[w], r.forwards[w]-r.backwards[w])
	if s == len(p.Costs.Stages)-1 {
		r.gradient[at] = end
		return true
	}
	r.activation[at+p.Micros] = r.send(w, p.Costs.Boundaries[s].Activation, end)
	return true
}

func (r *groupRun) backward(p Interleaving, w int, e entry) bool {
	s := (len(p.Costs.Stages)/p.Workers-1-e.chunk)*p.Workers + w
	at := s*p.Micros + e.micro
	ready := r.gradient[at]
	if ready < 0 {
		return false
	}
	took := p.backward(s)
	end := max(ready, r.free[w]) + took
	r.free[w] = end
	r.left[s] -= took
	r.backwards[w]++
	if s > 0 {
		link := p.Workers + w
		if p.Workers == 2 {
			link = w
		}
		r.gradient[at-p.Micros] = r.send(link, p.Costs.Boundaries[s-1].Gradient, end)
	}
	return true
}

// send returns when a tensor that was made at some time arrives at the other end of a link.
func (r *groupRun) send(link int, hop schedule.Hop, at schedule.Nanos) schedule.Nanos {
	r.sent[link] = max(at, r.sent[link]) + hop.Transfer
	return r.sent[link] + hop.Latency
}
