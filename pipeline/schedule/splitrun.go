package schedule

import "slices"

// splitRun is a step with split backwards under way. Simulate times the same programs.
type splitRun struct {
	// parent is the run before the newest pass, which is one of a stage; nil at the start.
	parent *splitRun
	op     Op
	stage  int
	// By stage: passes begun, and when the last of them ends.
	forwards, inputs, weights []int
	free                      []Nanos
	// restored holds by stage whether its next input gradient has been recomputed for: nothing else comes before that.
	restored []bool
	// sent holds when each directed link is free: forth from each stage, then back to each.
	sent []Nanos
	// activations, gradients hold by stage when the tensors arrive that are on their way or wait, in order.
	activations, gradients [][]Nanos
	least, idle            Nanos // bound, and how long stages have stood still
}

func newSplitRun(p Split) *splitRun {
	n := len(p.Costs.Stages)
	r := &splitRun{
		forwards: make([]int, n), inputs: make([]int, n), weights: make([]int, n), free: make([]Nanos, n), restored: make([]bool, n),
		sent: make([]Nanos, 2*n), activations: make([][]Nanos, n), gradients: make([][]Nanos, n),
	}
	r.activations[0] = make([]Nanos, p.Micros)
	return r
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
	} else if len(r.gradients[stage]) > 0 {
		start := max(free, r.gradients[stage][0])
		all = append(all, pass{BackwardInput, start, start + t.Input})
	}
	if r.restored[stage] {
		return all
	}
	if len(r.activations[stage]) > 0 && (p.Caps == nil || r.forwards[stage]-r.weights[stage] < p.Caps[stage]) {
		start := max(free, r.activations[stage][0])
		all = append(all, pass{Forward, start, start + t.Forward})
	}
	if r.weights[stage] < r.inputs[stage] {
		all = append(all, pass{BackwardWeight, free, free + t.Weight})
	}
	return all
}

// extend appends the run with each pass that may come next in an active order and end before a time.
func (r *splitRun) extend(p Split, below Nanos, children []*splitRun) []*splitRun {
	var buffer [3]pass
	stage, first := -1, Nanos(0)
	for s := range r.free {
		for _, n := range r.ready(p, s, buffer[:0]) {
			if n.op == Recompute {
				if len(r.gradients[s]) == 0 {
					continue
				}
				n.end = max(n.end, r.gradients[s][0]) + p.Costs.Stages[s].Input
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
			child := r.clone()
			child.begin(p, s, n)
			if child.least = child.bound(p); child.least < below {
				children = append(children, child)
			}
		}
	}
	return children
}

// clone returns the run to go on from, with everything its own that begin changes in place.
func (r *splitRun) clone() *splitRun {
	c, n := *r, len(r.free)
	c.parent = r
	counts, times, tensors := make([]int, 0, 3*n), make([]Nanos, 0, 3*n), make([][]Nanos, 0, 2*n)
	counts = append(append(append(counts, r.forwards...), r.inputs...), r.weights...)
	times = append(append(times, r.free...), r.sent...)
	tensors = append(append(tensors, r.activations...), r.gradients...)
	c.forwards, c.inputs, c.weights = counts[:n], counts[n:2*n], counts[2*n:]
	c.free, c.sent = times[:n], times[n:]
	c.activations, c.gradients = tensors[:n], tensors[n:]
	return &c
}

// orders returns by stage the passes of the run.
func (r *splitRun) orders() []StageOrder {
	letters := make([][]byte, len(r.free))
	for ; r.parent != nil; r = r.parent {
		if at := slices.Index(orderedOps, r.op); at >= 0 {
			letters[r.stage] = append(letters[r.stage], orderOps[at])
		}
	}
	orders := make([]StageOrder, len(letters))
	for s := range letters {
		slices.Reverse(letters[s])
		orders[s] = StageOrder(letters[s])
	}
	return orders
}

// restore notes whether a stage has recomputed for its next input gradient.
func (r *splitRun) restore(stage int, done bool) {
	if r.restored[stage] != done {
		r.restored = slices.Clone(r.restored)
		r.restored[stage] = done
	}
}

// begin has a stage do a pass.
func (r *splitRun) begin(p Split, stage int, n pass) {
	r.idle += n.start - r.free[stage]
	r.free[stage], r.op, r.stage = n.end, n.op, stage
	switch n.op {
	case Recompute:
		r.restore(stage, true)
	case Forward:
		r.forwards[stage]++
		r.activations[stage] = r.activations[stage][1:]
		if last := len(r.free) - 1; stage == last {
			r.gradients[stage] = append(slices.Clip(r.gradients[stage]), n.end)
		} else {
			at := r.send(stage, p.Costs.Boundaries[stage].Activation, n.end)
			r.activations[stage+1] = append(slices.Clip(r.activations[stage+1]), at)
		}
	case BackwardInput:
		r.restore(stage, false)
		r.inputs[stage]++
		r.gradients[stage] = r.gradients[stage][1:]
		if stage > 0 {
			at := r.send(len(r.free)+stage-1, p.Costs.Boundaries[stage-1].Gradient, n.end)
			r.gradients[stage-1] = append(slices.Clip(r.gradients[stage-1]), at)
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

// counts names how far each stage is.
func (r *splitRun) counts() string {
	key := make([]byte, 0, 6*len(r.free))
	for s := range r.free {
		for _, n := range []int{r.forwards[s], r.inputs[s], r.weights[s]} {
			key = append(key, byte(n), byte(n>>8))
		}
		if r.restored[s] {
			key = append(key, 'R')
		}
	}
	return string(key)
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
		if !noLater(r.activations[s], o.activations[s]) || !noLater(r.gradients[s], o.gradients[s]) {
			return false
		}
	}
	return true
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
		if len(r.activations[s]) > 0 {
			begin[s] = max(begin[s], r.activations[s][0])
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
		case len(r.gradients[s]) > 0:
			first = max(first, r.gradients[s][0])
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
