package schedule

// engine runs every worker's program as far as its data edges allow. With all costs 0 it
// is the validator's dry run, with real ones the simulator: both walk the same list.
//
// It needs no event queue. Each worker runs its list in order and each link has one
// sending worker, so a message's place on its link is known when it is sent, and the
// times are the longest paths through the schedule, whatever order workers are advanced
// in.
type engine struct {
	s      Schedule
	l      *layout
	timing Timing
	span   func(worker int, a Action, start, end Nanos)
	// message, if any, is told of each tensor that goes to another worker.
	message func(Message)

	pos  []int   // by worker: the next action
	free []Nanos // by worker: when the last action ended
	// activation, gradient: by cell, when the stage's input or output gradient is
	// there; -1 while unknown. The last stage's forward makes its own gradient.
	activation, gradient []Nanos
	links                map[[2]int]Nanos // (from, to) worker -> when the link is free again
	// step has how many actions are left before the steps, and when the last of them ended.
	step struct {
		left int
		at   Nanos
	}
	wake   []int
	queued []bool
}

func newEngine(s Schedule, l *layout, t Timing, span func(int, Action, Nanos, Nanos)) *engine {
	e := &engine{
		s: s, l: l, timing: t, span: span,
		pos: make([]int, len(s.Workers)), free: make([]Nanos, len(s.Workers)),
		activation: make([]Nanos, l.cells), gradient: make([]Nanos, l.cells),
		links:  map[[2]int]Nanos{},
		queued: make([]bool, len(s.Workers)),
	}
	for i := range e.activation {
		e.activation[i], e.gradient[i] = -1, -1
	}
	for _, actions := range s.Workers {
		for _, a := range actions {
			if a.Op != Step {
				e.step.left++
			}
		}
	}
	return e
}

// accumulates reports whether the op adds to the stage's weight gradient.
func accumulates(o Op) bool { return o == Backward || o == BackwardWeight }

// run advances all workers; it reports whether every program came to its end.
func (e *engine) run() bool {
	for w := range e.s.Workers {
		e.push(w)
	}
	for len(e.wake) > 0 {
		w := e.wake[len(e.wake)-1]
		e.wake = e.wake[:len(e.wake)-1]
		e.queued[w] = false
		e.advance(w)
	}
	for w, actions := range e.s.Workers {
		if e.pos[w] < len(actions) {
			return false
		}
	}
	return true
}

func (e *engine) push(w int) {
	if !e.queued[w] {
		e.queued[w] = true
		e.wake = append(e.wake, w)
	}
}

func (e *engine) advance(w int) {
	for e.pos[w] < len(e.s.Workers[w]) {
		a := e.s.Workers[w][e.pos[w]]
		ready, ok := e.ready(a)
		if !ok {
			return
		}
		start := max(e.free[w], ready)
		end := start + e.timing.duration(a)
		e.free[w] = end
		e.pos[w]++
		if e.span != nil {
			e.span(w, a, start, end)
		}
		e.finish(w, a, end)
	}
}

// ready says when the data that the action waits for is there, if that is known.
func (e *engine) ready(a Action) (Nanos, bool) {
	switch a.Op {
	case Forward:
		if a.Stage > 0 {
			at := e.activation[e.l.at(a)]
			return at, at >= 0
		}
	case Backward, BackwardInput:
		at := e.gradient[e.l.at(a)]
		return at, at >= 0
	case Step:
		return e.step.at, e.step.left <= 0
	}
	return 0, true
}

// finish hands the action's result on and wakes whoever may wait for it.
func (e *engine) finish(w int, a Action, end Nanos) {
	switch a.Op {
	case Forward:
		switch to := e.l.neighbour(a, +1); {
		case to < 0:
			e.gradient[e.l.at(a)] = end
		case to == w || !e.l.explicit:
			e.deliver(a, w, +1, end)
		}
	case SendActivation:
		e.deliver(a, w, +1, end)
	case Backward, BackwardInput:
		if to := e.l.neighbour(a, -1); to == w || (to >= 0 && !e.l.explicit) {
			e.deliver(a, w, -1, end)
		}
	case SendGradient:
		e.deliver(a, w, -1, end)
	}
	if a.Op == Step {
		return
	}
	e.step.at = max(e.step.at, end)
	if e.step.left--; e.step.left == 0 {
		for other := range e.s.Workers {
			e.push(other)
		}
	}
}

// deliver moves the action's output to the neighbouring stage, over the link when
// another worker holds it.
func (e *engine) deliver(a Action, from int, step Stage, at Nanos) {
	to := e.l.neighbour(a, step)
	m := Message{Action: a, From: from, To: to, Queued: at}
	if to != from {
		hop := e.timing.hop(a, step)
		link := [2]int{from, to}
		m.Sent = max(at, e.links[link])
		e.links[link] = m.Sent + hop.Transfer
		at = m.Sent + hop.Transfer + hop.Latency + e.timing.Jitter.of(a, step)
	}
	m.Action.Stage += step
	if step > 0 {
		m.Action.Op = ReceiveActivation
		e.activation[e.l.at(m.Action)] = at
	} else {
		m.Action.Op = ReceiveGradient
		e.gradient[e.l.at(m.Action)] = at
	}
	if m.Arrived = at; to != from && e.message != nil {
		e.message(m)
	}
	e.push(to)
}
