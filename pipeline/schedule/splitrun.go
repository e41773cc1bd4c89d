package schedule

import (
	"cmp"
	"slices"
)

// splitRun is a step with split backwards under way. Simulate times the same programs.
type splitRun struct {
	past   *pastPass // the passes before the newest one, which is one of a stage; nil at the start
	op     Op
	stage  int
	micros int
	// By stage: passes begun, each kind a part of counts, and when the last of them ends.
	forwards, inputs, weights, counts []int
	free                              []Nanos
	// restored holds by stage whether its next input gradient has been recomputed for: nothing else comes before that.
	restored []bool
	// sent holds when each directed link is free: forth from each stage, then back to each.
	sent []Nanos
	// arrivals holds by stage and micro-batch when activations arrive, then when gradients do, as far as they were sent and are not taken.
	arrivals    []Nanos
	least, idle Nanos // bound, and how long stages have stood still
	turn        int   // among the runs that extend has made
}

// pastPass is a pass that runs have in common, and those before it.
type pastPass struct {
	before *pastPass
	op     Op
	stage  int
}

func newSplitRun(p Split) *splitRun {
	n := len(p.Costs.Stages)
	counts, times := make([]int, 3*n), make([]Nanos, 3*n+2*n*p.Micros)
	return &splitRun{
		micros: p.Micros, counts: counts, forwards: counts[:n], inputs: counts[n : 2*n], weights: counts[2*n:],
		free: times[:n], sent: times[n : 3*n], arrivals: times[3*n:], restored: make([]bool, n),
	}
}

// activations returns when the tensors arrive, in order, that the next forwards of a stage take and that are sent. The first stage has its own.
func (r *splitRun) activations(s int) []Nanos {
	sent := r.micros
	if s > 0 {
		sent = r.forwards[s-1]
	}
	return r.arrivals[s*r.micros:][r.forwards[s]:sent]
}

// gradients is the same of a stage's input gradients. The last stage makes its own.
func (r *splitRun) gradients(s int) []Nanos {
	sent := r.forwards[s]
	if s < len(r.free)-1 {
		sent = r.inputs[s+1]
	}
	return r.arrivals[(len(r.free)+s)*r.micros:][r.inputs[s]:sent]
}

// pass is one that a stage may begin.
type pass struct {
	op         Op
	start, end Nanos
}

// ready returns the passes that a stage may begin, as far as is known; of the same time input gradients first.
func (r *splitRun) ready(p Split, stage int, all []pass) []pass {
	t, free := p.Costs.Stages[stage], r.free[stage]
	if t.Recompute > 0 && !r.restored[stage] {
		if r.inputs[stage] < r.forwards[stage] { // it waits for no gradient
			all = append(all, pass{Recompute, free, free + t.Recompute})
		}
	} else if waiting := r.gradients(stage); len(waiting) > 0 {
		start := max(free, waiting[0])
		all = append(all, pass{BackwardInput, start, start + t.Input})
	}
	if r.restored[stage] {
		return all
	}
	if waiting := r.activations(stage); len(waiting) > 0 && (p.Caps == nil || r.forwards[stage]-r.weights[stage] < p.Caps[stage]) {
		start := max(free, waiting[0])
		all = append(all, pass{Forward, start, start + t.Forward})
	}
	if r.weights[stage] < r.inputs[stage] {
		all = append(all, pass{BackwardWeight, free, free + t.Weight})
	}
	return all
}

// extend appends the run with each pass that may come next in an active order and end before a time.
func (r *splitRun) extend(p Split, below Nanos, children []*splitRun, unused *unusedRuns) []*splitRun {
	var buffer [3]pass
	stage, first := -1, Nanos(0)
	for s := range r.free {
		for _, n := range r.ready(p, s, buffer[:0]) {
			if n.op == Recompute {
				if len(r.gradients(s)) == 0 {
					continue
				}
				n.end = max(n.end, r.gradients(s)[0]) + p.Costs.Stages[s].Input
			}
			if stage < 0 || n.end < first {
				stage, first = s, n.end
			}
		}
	}
	for s := range r.free {
		if s != stage && stage >= 0 {
			continue
		}
		for _, n := range r.ready(p, s, buffer[:0]) { // where nothing but recomputing can begin, on any stage
			if stage >= 0 && n.start >= first && n.end > first {
				continue
			}
			child := unused.take(p)
			child.follows(r)
			child.begin(p, s, n)
			if child.least = child.bound(p); child.least < below {
				child.turn = len(children)
				children = append(children, child)
			} else {
				unused.put(child)
			}
		}
	}
	return children
}

// follows makes the run one that goes on from another of the same step.
func (r *splitRun) follows(o *splitRun) {
	r.past, r.idle = o.past, o.idle
	copy(r.counts, o.counts)
	copy(r.free, o.free)
	copy(r.sent, o.sent)
	copy(r.restored, o.restored)
	for s := range r.free {
		if s > 0 { // on the first stage all are there from the start
			copy(r.activations(s), o.activations(s))
		}
		copy(r.gradients(s), o.gradients(s))
	}
}

// orders returns by stage the passes of the run.
func (r *splitRun) orders() []StageOrder {
	letters := make([][]byte, len(r.free))
	for past := r.past; past != nil; past = past.before {
		if at := slices.Index(orderedOps, past.op); at >= 0 {
			letters[past.stage] = append(letters[past.stage], orderOps[at])
		}
	}
	orders := make([]StageOrder, len(letters))
	for s := range letters {
		slices.Reverse(letters[s])
		orders[s] = StageOrder(letters[s])
	}
	return orders
}

// begin has a stage do a pass.
func (r *splitRun) begin(p Split, stage int, n pass) {
	r.idle += n.start - r.free[stage]
	r.free[stage], r.op, r.stage = n.end, n.op, stage
	switch n.op {
	case Recompute:
		r.restored[stage] = true
	case Forward:
		micro := r.forwards[stage]
		r.forwards[stage]++
		if last := len(r.free) - 1; stage == last {
			r.arrivals[(len(r.free)+stage)*r.micros+micro] = n.end
		} else {
			r.arrivals[(stage+1)*r.micros+micro] = r.send(stage, p.Costs.Boundaries[stage].Activation, n.end)
		}
	case BackwardInput:
		micro := r.inputs[stage]
		r.restored[stage] = false
		r.inputs[stage]++
		if stage > 0 {
			back := len(r.free) + stage - 1
			r.arrivals[back*r.micros+micro] = r.send(back, p.Costs.Boundaries[stage-1].Gradient, n.end)
		}
	default:
		r.weights[stage]++
	}
}

// send returns when a tensor that was made at some time arrives at the other end of a link.
func (r *splitRun) send(link int, hop Hop, at Nanos) Nanos {
	r.sent[link] = max(at, r.sent[link]) + hop.Transfer
	return r.sent[link] + hop.Latency
}

// hash is of how far each stage is.
func (r *splitRun) hash() uint64 {
	h := uint64(14695981039346656037) // FNV-1a, of whole numbers
	for _, n := range r.counts {
		h = (h ^ uint64(n)) * 1099511628211
	}
	for _, restored := range r.restored {
		if h *= 1099511628211; restored {
			h ^= 1
		}
	}
	return h
}

// asFar reports whether each stage is as far as in another run.
func (r *splitRun) asFar(o *splitRun) bool {
	return slices.Equal(r.counts, o.counts) && slices.Equal(r.restored, o.restored)
}

// dominates reports whether a run with the same counts is nowhere earlier.
func (r *splitRun) dominates(o *splitRun) bool {
	noLater := func(a, b []Nanos) bool {
		for i := range a {
			if a[i] > b[i] {
				return false
			}
		}
		return true
	}
	if !noLater(r.free, o.free) || !noLater(r.sent, o.sent) {
		return false
	}
	for s := range r.free {
		if !noLater(r.activations(s), o.activations(s)) || !noLater(r.gradients(s), o.gradients(s)) {
			return false
		}
	}
	return true
}

// compare orders runs by their bounds, then by how long stages have stood still, then as they were made.
func (r *splitRun) compare(o *splitRun) int {
	switch {
	case r.least != o.least:
		return cmp.Compare(r.least, o.least)
	case r.idle != o.idle:
		return cmp.Compare(r.idle, o.idle)
	}
	return r.turn - o.turn
}

// bound returns a time that the run cannot end before: each stage has the rest of its passes to do, and the last
// micro-batch still has to go forth to the last stage and back to the first one.
func (r *splitRun) bound(p Split) (bound Nanos) {
	n := len(r.free)
	// By stage: when its next forward and its next input gradient begin at the earliest, and when the last ones end.
	var few [32]Nanos
	begin, end := few[:len(few)/2], few[len(few)/2:]
	if n > len(begin) {
		begin, end = make([]Nanos, n), make([]Nanos, n)
	}
	for s, t := range p.Costs.Stages {
		left := Nanos(p.Micros - r.forwards[s])
		if left == 0 {
			continue
		}
		begin[s] = r.free[s]
		if len(r.activations(s)) > 0 {
			begin[s] = max(begin[s], r.activations(s)[0])
		} else {
			hop := p.Costs.Boundaries[s-1].Activation
			begin[s] = max(begin[s], begin[s-1]+p.Costs.Stages[s-1].Forward+hop.Transfer+hop.Latency)
		}
		end[s] = begin[s] + left*t.Forward
		if s > 0 && r.forwards[s-1] < p.Micros {
			hop := p.Costs.Boundaries[s-1].Activation
			end[s] = max(end[s], end[s-1]+hop.Transfer+hop.Latency+t.Forward)
		}
		if r.forwards[s] == 0 {
			bound = max(bound, begin[s]+left*(t.Forward+t.Recompute+t.Input+t.Weight))
		}
	}
	var next, last Nanos // input gradients of the stage after
	for s := n - 1; s >= 0; s-- {
		t := p.Costs.Stages[s]
		forwards, inputs, weights := Nanos(p.Micros-r.forwards[s]), Nanos(p.Micros-r.inputs[s]), Nanos(p.Micros-r.weights[s])
		restore := inputs * t.Recompute // what is still to be recomputed
		if r.restored[s] {
			restore -= t.Recompute
		}
		passes := r.free[s] + forwards*t.Forward + restore + inputs*t.Input
		bound = max(bound, passes+weights*t.Weight)
		if inputs == 0 {
			continue
		}
		first, final := r.free[s], passes
		if !r.restored[s] {
			first += t.Recompute
		}
		if forwards > 0 {
			final = max(final, end[s]+t.Recompute+t.Input)
		}
		switch {
		case len(r.gradients(s)) > 0:
			first = max(first, r.gradients(s)[0])
		case s == n-1:
			first = max(first, begin[s]+t.Forward+t.Recompute)
		default:
			hop := p.Costs.Boundaries[s].Gradient
			first = max(first, next+p.Costs.Stages[s+1].Input+hop.Transfer+hop.Latency)
		}
		final = max(final, first+t.Input+(inputs-1)*(t.Recompute+t.Input))
		if s < n-1 && r.inputs[s+1] < p.Micros {
			hop := p.Costs.Boundaries[s].Gradient
			final = max(final, last+hop.Transfer+hop.Latency+t.Input)
		}
		bound = max(bound, final+t.Weight)
		next, last = first, final
	}
	return bound
}

// unusedRuns holds runs of one size that are over, for others to be made in their memory: a search drops most that it makes.
type unusedRuns []*splitRun

func (u *unusedRuns) take(p Split) *splitRun {
	if n := len(*u); n > 0 {
		r := (*u)[n-1]
		*u = (*u)[:n-1]
		return r
	}
	return newSplitRun(p)
}

func (u *unusedRuns) put(runs ...*splitRun) { *u = append(*u, runs...) }
