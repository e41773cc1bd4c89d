package sim

import (
	"cmp"
	"slices"

	"pnode/pipeline/schedule"
)

// Stage has what a stage does besides its passes.
type Stage struct {
	Device int
	// Last is its last pass: gradients of its layers come one after the other until that ends.
	Last   schedule.Nanos
	Layers int
	// Commit is the time until the coordinator's commit has come, Update that of the device's optimizer. Report is the time until the
	// coordinator has its report.
	Commit, Update, Report schedule.Nanos
}

// Part is a range of layers that the same stages hold in all replicas. Each replica owns a share of it.
type Part struct {
	// Stages are by replica, and Before has by replica how many layers of that stage are in front of the part's.
	Stages, Before []int
	Layers         int
	// Vectors are by replica the sums of gradients that it sends.
	Vectors []int
	// Bytes are the gradients'. Of these Later are no parameters that are handed out summed: updated ones are, before the next step.
	Bytes, Later int64
	// Rounds counts how many exchanges follow one another, since not all of the part goes on at a time.
	Rounds int
}

// Tail holds what follows the passes of a step, and goes on beside them.
type Tail struct {
	// Stages are by replica and stage.
	Stages [][]Stage
	Parts  []Part
	// Tied are the bytes that the first and the last stage of each replica exchange; 0 for none.
	Tied int64
	// Send returns the time of a message from one device to another.
	Send func(from, to int, bytes int64) schedule.Hop
}

// without returns what follows without exchanges, and without updates unless these are wanted.
func (t Tail) without(updates bool) Tail {
	t.Parts, t.Tied = nil, 0
	if updates {
		return t
	}
	stages := make([][]Stage, len(t.Stages))
	for r, row := range t.Stages {
		stages[r] = slices.Clone(row)
		for s := range row {
			stages[r][s].Update = 0
		}
	}
	t.Stages = stages
	return t
}

// lines hold when links, and the devices at their ends, have sent everything.
type lines struct {
	send    func(from, to int, bytes int64) schedule.Hop
	link    map[[2]int]schedule.Nanos
	devices map[int]schedule.Nanos
}

// message sends bytes from a time on and returns when the link is done with them, and when they are there. A device sends all that it does
// over the fastest of its links to others: quickest is what the message takes there.
func (l *lines) message(from, to int, bytes int64, at, quickest schedule.Nanos) (sent, there schedule.Nanos) {
	hop := l.send(from, to, bytes)
	if hop == (schedule.Hop{}) {
		return at, at
	}
	start := max(at, l.link[[2]int{from, to}], l.devices[from])
	l.link[[2]int{from, to}], l.devices[from] = start+hop.Transfer, start+min(quickest, hop.Transfer)
	return start + hop.Transfer, start + hop.Transfer + hop.Latency
}

// event is a replica's turn to send its part of something to all others.
type event struct {
	at      schedule.Nanos
	part, r int
	sums    bool // what all have added up, to all; else its gradients, to the owners
}

// After returns the step of passes that begin and end at some times by replica and stage, counted from when all may begin: a step lasts
// from one commit to the next. A pipeline is late by as much as the stage is that waits longest for its update.
func (t Tail) After(passes [][]schedule.Interval) schedule.Nanos {
	l := &lines{t.Send, map[[2]int]schedule.Nanos{}, map[int]schedule.Nanos{}}
	ready := make([][]schedule.Nanos, len(passes))
	for r, row := range t.Stages {
		ready[r] = make([]schedule.Nanos, len(row))
		for s, st := range row {
			ready[r][s] = st.Commit + st.Update
		}
	}
	t.exchange(l, ready, true)
	done := make([][]schedule.Nanos, len(passes))
	for r, row := range passes {
		late := schedule.Nanos(0)
		for s, pass := range row {
			late = max(late, ready[r][s]-pass.Begin)
		}
		for _, pass := range row {
			done[r] = append(done[r], late+pass.End)
		}
	}
	t.exchange(l, done, false)
	step := schedule.Nanos(0)
	for r, row := range t.Stages {
		if first, last := row[0], row[len(row)-1]; t.Tied > 0 && first.Device != last.Device {
			_, forth := l.message(first.Device, last.Device, t.Tied, done[r][0], schedule.MaxNanos)
			_, back := l.message(last.Device, first.Device, t.Tied, done[r][len(row)-1], schedule.MaxNanos)
			both := max(forth, back)
			done[r][0], done[r][len(row)-1] = max(done[r][0], both), max(done[r][len(row)-1], both)
		}
		for s, st := range row {
			step = max(step, done[r][s]+st.Report)
		}
	}
	return step
}

// keepPercent is how much longer an update takes whose state of before is copied: 24 bytes a parameter beside 32.
const keepPercent = 75

// PostValidated returns the step of a single pipeline whose workers apply each step, and begin with the next one, before its commit: the period of
// steps that all are as the given one. A worker's passes of two steps do not overlap. What is no forward waits for the commit of the
// step before. Passes of the next step may come earlier than in this one, so that a real period may be a little shorter.
func (t Tail) PostValidated(passes []schedule.Interval) (period schedule.Nanos) {
	type span struct{ begin, back, end, update, commit schedule.Nanos }
	row, ends := t.Stages[0], make([]schedule.Nanos, len(passes))
	for s, pass := range passes {
		ends[s] = pass.End
	}
	if first, last := row[0], row[len(row)-1]; t.Tied > 0 && first.Device != last.Device {
		l := &lines{t.Send, map[[2]int]schedule.Nanos{}, map[int]schedule.Nanos{}}
		_, forth := l.message(first.Device, last.Device, t.Tied, ends[0], schedule.MaxNanos)
		_, back := l.message(last.Device, first.Device, t.Tied, ends[len(ends)-1], schedule.MaxNanos)
		ends[0], ends[len(ends)-1] = max(ends[0], forth, back), max(ends[len(ends)-1], forth, back)
	}
	devices, committed := map[int]span{}, schedule.Nanos(0)
	for s, st := range row {
		w, seen := devices[st.Device]
		if !seen {
			w = span{passes[s].Begin, passes[s].Back, ends[s], st.Update + st.Update*keepPercent/100, st.Commit}
		}
		w.begin, w.back, w.end = min(w.begin, passes[s].Begin), min(w.back, passes[s].Back), max(w.end, ends[s])
		devices[st.Device] = w
		committed = max(committed, ends[s]+st.Report)
	}
	for _, w := range devices {
		period = max(period, w.end-w.begin+w.update, committed+w.commit-w.back)
	}
	return period
}

// exchange has replicas exchange their parts once the stages are done that hold them, and moves those times on. Updated ones hand out
// parameters; others add gradients up first.
func (t Tail) exchange(l *lines, done [][]schedule.Nanos, updated bool) {
	replicas := len(t.Stages)
	if replicas == 1 {
		return
	}
	before := make([][]schedule.Nanos, replicas)
	for r := range before {
		before[r] = slices.Clone(done[r])
	}
	var events []event
	push := func(e event) {
		i, _ := slices.BinarySearchFunc(events, e, func(a, b event) int {
			return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.part, a.part), cmp.Compare(b.r, a.r)) // the earliest one last
		})
		events = slices.Insert(events, i, e)
	}
	// summed is by part and replica when it has all of its own share.
	summed, missing := make([][]schedule.Nanos, len(t.Parts)), make([]int, len(t.Parts)*replicas)
	for i, p := range t.Parts {
		summed[i] = make([]schedule.Nanos, replicas)
		for r, s := range p.Stages {
			missing[i*replicas+r] = replicas - 1
			first, last := t.Stages[r][s].within(p, r, before[r][s])
			if updated {
				first = before[r][s]
			}
			if summed[i][r] = last; !updated || p.Later > 0 {
				push(event{first, i, r, updated})
			}
		}
	}
	for len(events) > 0 {
		e := events[len(events)-1]
		events = events[:len(events)-1]
		p := t.Parts[e.part]
		from := t.Stages[e.r][p.Stages[e.r]].Device
		bytes := p.Bytes / int64(replicas)
		switch {
		case !e.sums:
			bytes *= int64(p.Vectors[e.r])
		case updated:
			bytes = p.Later / int64(replicas)
		default:
			bytes = (p.Bytes - p.Later) / int64(replicas)
		}
		_, last := t.Stages[e.r][p.Stages[e.r]].within(p, e.r, before[e.r][p.Stages[e.r]])
		quickest := schedule.Nanos(schedule.MaxNanos)
		for to, s := range p.Stages {
			if hop := t.Send(from, t.Stages[to][s].Device, bytes); to != e.r && hop.Transfer > 0 {
				quickest = min(quickest, hop.Transfer)
			}
		}
		for i := 1; i < replicas && bytes > 0; i++ {
			to := (e.r + i) % replicas
			s := p.Stages[to]
			device := t.Stages[to][s].Device
			sent, there := l.message(from, device, bytes, e.at, quickest)
			if e.sums {
				done[to][s] = max(done[to][s], there+schedule.Nanos(2*(p.Rounds-1))*(there-sent))
				continue
			}
			if tail := t.Send(from, device, bytes/int64(p.Layers)); from != device { // the last layer's comes at its time
				there = max(there, last+tail.Transfer+tail.Latency)
			}
			at := &summed[e.part][to]
			*at = max(*at, there)
			done[to][s] = max(done[to][s], there)
			if missing[e.part*replicas+to]--; missing[e.part*replicas+to] == 0 && p.Bytes > p.Later {
				push(event{*at, e.part, to, true})
			}
		}
	}
}

// within returns when the first and the last gradient of a part's layers come in a stage that is done at a time.
func (s Stage) within(p Part, replica int, done schedule.Nanos) (first, last schedule.Nanos) {
	before, n := p.Before[replica], schedule.Nanos(max(s.Layers, 1))
	each := s.Last / n
	return done - each*schedule.Nanos(before+p.Layers-1), done - each*schedule.Nanos(before)
}
