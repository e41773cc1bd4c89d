package schedule

// lister makes programs by running them: in a model of time with unit costs each worker
// that is free takes the ready action of least rank. The result keeps its order under any
// other costs.
type lister struct {
	shape  Shape
	holder []int // by stage: the worker
	// rank orders actions; of equal ranks a backward goes first, then the lower stage.
	rank func(op Op, stage, micro int) int
	// strict: a worker's forwards come in rank order, and so do its backwards, even when
	// the next one is not ready and another is.
	strict bool
	// split: backwards are input gradients, and weight gradients fill what is idle.
	split bool
	// cap is how many activations of all its stages a worker may keep, inFlight how many
	// micro-batches may be between the first stage's forward and backward; 0 is no limit.
	cap, inFlight int

	forward, backward []int      // by stage: how many were started
	done              [2][][]int // forward, backward: by stage, micro: end time; 0 is not yet
	workers           []lane
}

// lane is a worker under way.
type lane struct {
	program
	stages []int
	until  int
	live   int
	owed   []tableEntry // weight gradients: micro, and stage as chunk
}

// unit times of the model; a full backward is an input and a weight gradient.
const unitTime = 1

func (l *lister) run(workers int) Schedule {
	l.workers = make([]lane, workers)
	for s, w := range l.holder {
		l.workers[w].stages = append(l.workers[w].stages, s)
	}
	for w := range l.workers {
		l.workers[w].shape = l.shape
	}
	l.forward, l.backward = make([]int, len(l.holder)), make([]int, len(l.holder))
	for d := range l.done {
		l.done[d] = make([][]int, len(l.holder))
		for s := range l.done[d] {
			l.done[d][s] = make([]int, l.shape.Micros)
		}
	}
	left := 2 * len(l.holder) * l.shape.Micros
	if l.split {
		left += len(l.holder) * l.shape.Micros
	}
	for now := 0; left > 0; now++ {
		for w := range l.workers {
			if l.workers[w].until <= now && l.start(&l.workers[w], now) {
				left--
			}
		}
	}
	out := Schedule{Workers: make([][]Action, workers)}
	for w := range out.Workers {
		out.Workers[w] = l.workers[w].actions
	}
	return out
}

// choice is an action that a worker might take.
type choice struct {
	op                 Op
	stage, micro, rank int
}

// start lets a worker take an action if there is any.
func (l *lister) start(w *lane, now int) bool {
	var best *choice
	for _, op := range []Op{Backward, Forward} {
		if c := l.first(w, op, now); c != nil && (best == nil || c.rank < best.rank) {
			best = c
		}
	}
	switch {
	case best == nil && len(w.owed) == 0:
		return false
	case best == nil:
		e := w.owed[0]
		w.owed = w.owed[1:]
		w.put(BackwardWeight, e.chunk, e.micro)
		w.live--
		w.until = now + unitTime
	case best.op == Forward:
		w.put(Forward, best.stage, best.micro)
		w.live++
		l.forward[best.stage]++
		w.until = now + unitTime
		l.done[0][best.stage][best.micro] = w.until
	default:
		l.goBack(w, best, now)
	}
	return true
}

func (l *lister) goBack(w *lane, c *choice, now int) {
	l.backward[c.stage]++
	if l.split {
		w.put(BackwardInput, c.stage, c.micro)
		w.owed = append(w.owed, tableEntry{c.micro, c.stage})
		w.until = now + unitTime
	} else {
		w.put(Backward, c.stage, c.micro)
		w.live--
		w.until = now + 2*unitTime
	}
	l.done[1][c.stage][c.micro] = w.until
}

// first is the worker's ready action of least rank with the op, forward or backward.
func (l *lister) first(w *lane, op Op, now int) *choice {
	var best *choice
	ready := false
	for _, s := range w.stages {
		m := l.forward[s]
		if op == Backward {
			m = l.backward[s]
		}
		if m >= l.shape.Micros {
			continue
		}
		ok := l.ready(w, op, s, m, now)
		if c := (choice{op, s, m, l.rank(op, s, m)}); (ok || l.strict) && (best == nil || c.rank < best.rank) {
			best, ready = &c, ok
		}
	}
	if !ready {
		return nil
	}
	return best
}

func (l *lister) ready(w *lane, op Op, s, m, now int) bool {
	ended := func(direction, stage int) bool {
		at := l.done[direction][stage][m]
		return at > 0 && at <= now
	}
	if op == Backward {
		return ended(0, s) && (s == len(l.holder)-1 || ended(1, s+1))
	}
	if (l.cap > 0 && w.live >= l.cap) || (s == 0 && l.inFlight > 0 && m-l.backward[0] >= l.inFlight) {
		return false
	}
	return s == 0 || ended(0, s-1)
}
