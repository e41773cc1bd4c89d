package schedule

// Limits are the memory that a schedule was made for. The zero value checks nothing.
type Limits struct {
	// Bytes is what one micro-batch's saved activations take on a stage; nil counts 1.
	Bytes func(Replica, Stage) int64
	// Input is what of them is kept until a Recompute restores the rest; nil counts 0.
	Input func(Replica, Stage) int64
	// CapBytes is by worker how much may be live at once; nil is no limit.
	CapBytes []int64
}

// Validate accepts a schedule that can be carried out, or says what is wrong, with the
// grid of programs and the offending action marked:
//
//  1. per (replica, stage) one forward and one backward (or input and weight gradient)
//     of each micro-batch, in that order, on one worker; a recompute lies between;
//     weight gradients accumulate in ascending micro-batch order, with segments in
//     ascending order of sequences and descending order of each one's segments, whose
//     forwards ascend;
//  2. every send has exactly one receive of the same message, or none is written at all;
//  3. a dry run over program order and data edges comes to the end;
//  4. activations stay within the limits on every worker;
//  5. reductions, if any, are there once for every stage and follow its last weight
//     gradient; steps, if any, end every program.
func Validate(s Schedule, limits Limits) error {
	if len(s.Workers) == 0 {
		return s.fail(nil, "no workers")
	}
	l, err := newLayout(s)
	if err != nil {
		return err
	}
	v := &validator{s: s, l: l, seen: make([]opSet, l.cells), accumulated: map[Action]Micro{}, reduced: map[Action]bool{}}
	for w := range s.Workers {
		if err := v.program(w); err != nil {
			return err
		}
	}
	if err := v.complete(); err != nil {
		return err
	}
	if err := v.memory(limits); err != nil {
		return err
	}
	if e := newEngine(s, l, Timing{}, nil); !e.run() {
		return e.stuck()
	}
	return nil
}

// opSet is a set of ops, one bit each.
type opSet uint16

func (o opSet) has(op Op) bool { return o&(1<<op) != 0 }

type validator struct {
	s    Schedule
	l    *layout
	seen []opSet // by cell: the ops that came already
	// accumulated, by the reduction of its stage: the newest micro-batch in the gradient.
	accumulated map[Action]Micro
	reduced     map[Action]bool
	steps       int
}

// program checks one worker's list in order. All ops of a cell are on one worker, so
// order among them is order in this list.
func (v *validator) program(w int) error {
	for i, a := range v.s.Workers[w] {
		if why := v.accept(w, i, a); why != "" {
			return v.s.fail(mark{w: i}, "worker %d: %v %s", w, a, why)
		}
		if a.Op.hasMicro() {
			v.seen[v.l.at(a)] |= 1 << a.Op
		}
	}
	return nil
}

// accept says why an action must not come here, or nothing.
func (v *validator) accept(w, i int, a Action) string {
	if a.Op == Step {
		v.steps++
		if a != (Action{Op: Step}) || i != len(v.s.Workers[w])-1 {
			return "is not the last action of its worker"
		}
		return ""
	}
	stage := a.reduction()
	if a.Op == Reduce {
		if v.reduced[stage] {
			return "comes twice"
		}
		v.reduced[stage] = true
	}
	if !a.Op.hasMicro() {
		return ""
	}
	if accumulates(a.Op) {
		turn := v.s.turn(a.Micro)
		if last, ok := v.accumulated[stage]; ok && last >= turn {
			return "adds to the gradient after a later micro-batch"
		}
		if v.accumulated[stage] = turn; v.reduced[stage] {
			return "comes after the reduction of its stage"
		}
	}
	if why := v.segment(a); why != "" {
		return why
	}
	return v.order(w, a, v.seen[v.l.at(a)])
}

// turn numbers micro-batches in the order in which their gradients add up.
func (s Schedule) turn(m Micro) Micro {
	if n := Micro(s.Segments); n > 1 {
		return m/n*n + n - 1 - m%n
	}
	return m
}

// segment checks an action against those of its sequence's other segments.
func (v *validator) segment(a Action) string {
	n := Micro(v.s.Segments)
	if n < 2 {
		return ""
	}
	cell := v.l.at(a)
	switch a.Op {
	case Forward:
		if a.Micro%n > 0 && !v.seen[cell-1].has(Forward) {
			return "comes before the segment ahead of it"
		}
	case Backward, BackwardInput:
		if a.Micro%n < n-1 && !v.seen[cell+1].has(Backward) && !v.seen[cell+1].has(BackwardInput) {
			return "comes before the segment behind it"
		}
	}
	return ""
}

// order checks an action about a micro-batch against what came before it.
func (v *validator) order(w int, a Action, before opSet) string {
	next, previous := v.l.neighbour(a, +1), v.l.neighbour(a, -1)
	backward := before.has(Backward) || before.has(BackwardInput)
	switch {
	case before.has(a.Op):
		return "comes twice"
	case a.Op != Forward && a.Op != ReceiveActivation && a.Op != ReceiveGradient && !before.has(Forward):
		return "comes before its forward"
	}
	switch a.Op {
	case Forward:
		if v.l.explicit && previous >= 0 && previous != w && !before.has(ReceiveActivation) {
			return "comes before the receive of its input"
		}
	case Recompute:
		if backward {
			return "comes after its backward"
		}
	case Backward, BackwardInput:
		if backward || (a.Op == Backward && before.has(BackwardWeight)) {
			return "is a second backward"
		}
		if v.l.explicit && next >= 0 && next != w && !before.has(ReceiveGradient) {
			return "comes before the receive of its gradient"
		}
	case BackwardWeight:
		if !before.has(BackwardInput) {
			return "comes before its input gradient"
		}
	case SendGradient:
		if !backward {
			return "comes before its backward"
		}
	}
	if needsNext := a.Op == SendActivation || a.Op == ReceiveGradient; needsNext && (next < 0 || next == w) {
		return "has no next stage on another worker"
	}
	if needsPrevious := a.Op == ReceiveActivation || a.Op == SendGradient; needsPrevious && (previous < 0 || previous == w) {
		return "has no previous stage on another worker"
	}
	return ""
}

// complete checks that nothing is missing.
func (v *validator) complete() error {
	if v.steps != 0 && v.steps != len(v.s.Workers) {
		return v.s.fail(nil, "%d of %d workers make a step", v.steps, len(v.s.Workers))
	}
	for r, rl := range v.l.replicas {
		for st := range rl.stages {
			a := Action{Op: Reduce, Replica: Replica(r), Stage: Stage(st)}
			if len(v.reduced) > 0 && !v.reduced[a] {
				return v.s.fail(mark{rl.holder[st]: -1}, "worker %d: %v is missing", rl.holder[st], a)
			}
			for m := range rl.micros {
				a.Micro = rl.first + Micro(m)
				if op := v.missing(a); op != 0 {
					a.Op = op
					return v.s.fail(mark{rl.holder[st]: -1}, "worker %d: %v is missing", rl.holder[st], a)
				}
			}
		}
	}
	return nil
}

// missing is an op that the cell of the action lacks, or 0.
func (v *validator) missing(a Action) Op {
	seen := v.seen[v.l.at(a)]
	w := v.l.neighbour(a, 0)
	switch next, previous := v.l.neighbour(a, +1), v.l.neighbour(a, -1); {
	case !seen.has(Forward):
		return Forward
	case !seen.has(Backward) && !seen.has(BackwardInput):
		return Backward
	case seen.has(BackwardInput) && !seen.has(BackwardWeight):
		return BackwardWeight
	case v.l.explicit && next >= 0 && next != w && !seen.has(SendActivation):
		return SendActivation
	case v.l.explicit && previous >= 0 && previous != w && !seen.has(SendGradient):
		return SendGradient
	}
	return 0 // receives are checked where the message is used
}

func (v *validator) memory(limits Limits) error {
	if limits.CapBytes == nil {
		return nil
	}
	if len(limits.CapBytes) != len(v.s.Workers) {
		return v.s.fail(nil, "%d memory limits for %d workers", len(limits.CapBytes), len(v.s.Workers))
	}
	for w, actions := range v.s.Workers {
		if peak := limits.peak(actions); peak > limits.CapBytes[w] {
			return v.s.fail(mark{w: -1}, "worker %d keeps activations of %d, at most %d fit", w, peak, limits.CapBytes[w])
		}
	}
	return nil
}

// peak is the most that a program keeps at once. A micro-batch's activations live from its
// forward to its last backward; where it has a Recompute, only its input lives from the end
// of the forward to that. So it depends on program order alone.
func (l Limits) peak(actions []Action) int64 {
	restored := map[Action]bool{} // by its Recompute
	for _, a := range actions {
		if a.Op == Recompute {
			restored[a] = true
		}
	}
	size := func(of func(Replica, Stage) int64, a Action, otherwise int64) int64 {
		if of == nil {
			return otherwise
		}
		return of(a.Replica, a.Stage)
	}
	var live, peak int64
	for _, a := range actions {
		if a.Op != Forward && a.Op != Recompute && !accumulates(a.Op) {
			continue
		}
		all, input := size(l.Bytes, a, 1), size(l.Input, a, 0)
		switch {
		case a.Op == Recompute:
			live += all - input
		case a.Op != Forward:
			live -= all
		default:
			live += all
		}
		peak = max(peak, live)
		if a.Op == Forward && restored[a.with(Recompute)] {
			live -= all - input
		}
	}
	return peak
}
