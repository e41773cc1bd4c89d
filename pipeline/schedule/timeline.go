package schedule

// Span is when an action occupied its worker.
type Span struct {
	Action     Action
	Start, End Nanos
}

// Message is the way of a tensor from worker to worker.
type Message struct {
	// Action is the receive that it answers: 2RA0 goes to stage 2.
	Action   Action
	From, To int
	// Queued is when it was made, Sent when the link began to take it, Arrived when it was
	// there.
	Queued, Sent, Arrived Nanos
}

// Timeline is when everything happened, by worker in program order: as simulated, or as
// measured.
type Timeline struct {
	Workers [][]Span
	// Messages in no particular order.
	Messages []Message
	Makespan Nanos
	// PeakLive is by worker the most micro-batches whose activations were kept at once, on
	// all its stages; those that wait for a Recompute count as nothing.
	PeakLive []int
}

// Idle is how long a worker computed nothing before the end.
func (t Timeline) Idle(worker int) Nanos {
	idle := t.Makespan
	for _, s := range t.Workers[worker] {
		idle -= s.End - s.Start
	}
	return idle
}

// Wait is a time in which a worker computed nothing. From Exposed to End the message for
// the next action was under way; before, that had not been computed.
type Wait struct{ Start, Exposed, End Nanos }

// Waits lists, by worker, the times without computation before the end.
func (t Timeline) Waits() [][]Wait {
	queued := t.inbox()
	out := make([][]Wait, len(t.Workers))
	for w, spans := range t.Workers {
		var free Nanos
		for _, s := range spans {
			if s.End == s.Start {
				continue
			}
			if s.Start > free {
				wait := Wait{free, s.Start, s.Start}
				if m, ok := queued[receipt{w, s.Action.receive()}]; ok {
					wait.Exposed = min(max(m.Queued, free), s.Start)
				}
				out[w] = append(out[w], wait)
			}
			free = max(free, s.End)
		}
		if free < t.Makespan {
			out[w] = append(out[w], Wait{free, t.Makespan, t.Makespan})
		}
	}
	return out
}

// receipt distinguishes messages: a replica's stage is on one worker, but a measured
// timeline may say otherwise.
type receipt struct {
	worker int
	action Action
}

func (t Timeline) inbox() map[receipt]Message {
	in := make(map[receipt]Message, len(t.Messages))
	for _, m := range t.Messages {
		in[receipt{m.To, m.Action}] = m
	}
	return in
}

// receive is the receive of what the action needs.
func (a Action) receive() Action {
	switch a.Op {
	case Forward:
		a.Op = ReceiveActivation
	case Backward, BackwardInput:
		a.Op = ReceiveGradient
	}
	return a
}

// Leg is a part of a timeline's critical path: a computation of a worker, or a message.
type Leg struct {
	Span Span
	// Worker computed it, or received it from From.
	Worker, From int
	// Link: Span is a receive's, from when the tensor was made to when it was there.
	Link bool
}

// Path is the critical path, from the end to the start: each leg ends where the one before
// in the list begins, unless a worker stood still for a reason that the timeline does not
// tell.
func (t Timeline) Path() []Leg {
	inbox := t.inbox()
	w, i := t.last()
	var path []Leg
	for i >= 0 {
		s := t.Workers[w][i]
		path = append(path, Leg{Span: s, Worker: w, From: w})
		before := Nanos(-1)
		if i > 0 {
			before = t.Workers[w][i-1].End
		}
		if m, ok := inbox[receipt{w, s.Action.receive()}]; ok && m.Arrived > before && m.From != w {
			path = append(path, Leg{Span{m.Action, m.Queued, m.Arrived}, w, m.From, true})
			w, i = m.From, t.endingAt(m)
			continue
		}
		if next, k := t.neighbour(w, s, before); next >= 0 {
			w, i = next, k
			continue
		}
		i--
	}
	return path
}

// last is the action that ends last.
func (t Timeline) last() (worker, index int) {
	index = -1
	var end Nanos
	for w, spans := range t.Workers {
		for i, s := range spans {
			if s.End > end {
				worker, index, end = w, i, s.End
			}
		}
	}
	return worker, index
}

// endingAt is the action of the message's sender that made it.
func (t Timeline) endingAt(m Message) int {
	for i := len(t.Workers[m.From]) - 1; i >= 0; i-- {
		if s := t.Workers[m.From][i]; s.End > s.Start && s.End <= m.Queued {
			return i
		}
	}
	return -1
}

// neighbour finds what a step waited for: the action of another worker that ended when it
// began; -1 if it began when its own worker was free.
func (t Timeline) neighbour(w int, s Span, before Nanos) (worker, index int) {
	if s.Action.Op != Step || before >= s.Start {
		return -1, -1
	}
	for other, spans := range t.Workers {
		for i, o := range spans {
			if other != w && o.End == s.Start && o.End > o.Start {
				return other, i
			}
		}
	}
	return -1, -1
}

// Paired is a measured timeline, whose rows hold sends and waits for messages, in the form
// of a simulated one: each send and its receive are a Message, and receives are gone from
// the rows. A message that was waited for arrived when that wait ended; for others that is
// the latest it can have been.
func (t Timeline) Paired() Timeline {
	type sent struct {
		worker int
		span   Span
	}
	sends := map[Action]sent{}
	for w, spans := range t.Workers {
		for _, s := range spans {
			if a, ok := s.Action.Answered(); ok {
				sends[a] = sent{w, s}
			}
		}
	}
	out := t
	out.Workers = make([][]Span, len(t.Workers))
	for w, spans := range t.Workers {
		for _, s := range spans {
			if op := s.Action.Op; op != ReceiveActivation && op != ReceiveGradient {
				out.Workers[w] = append(out.Workers[w], s)
				continue
			}
			if from, ok := sends[s.Action]; ok {
				made := from.span.Start
				out.Messages = append(out.Messages, Message{s.Action, from.worker, w, made, made, max(s.End, made)})
			}
		}
	}
	return out
}

// Answered returns the receive that a send is for; not ok for another action.
func (a Action) Answered() (Action, bool) {
	switch a.Op {
	case SendActivation:
		a.Op, a.Stage = ReceiveActivation, a.Stage+1
	case SendGradient:
		a.Op, a.Stage = ReceiveGradient, a.Stage-1
	default:
		return a, false
	}
	return a, true
}
