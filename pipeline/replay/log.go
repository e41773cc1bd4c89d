package replay

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Logs keep the messages that workers here have sent to other nodes, each generation's in a Log of its own, within one budget. Over it they
// forget the oldest step of the oldest generation: a replay needs all steps after the state that it begins with.
type Logs struct {
	self plan.PeerID

	mu     sync.Mutex // guards the rest, and what is in the logs
	budget int64
	bytes  int64
	logs   []*Log // the oldest generation first
}

// Log keeps the messages of one generation.
type Log struct {
	in         *Logs
	generation plan.Generation
	start      plan.Step // of the generation
	steps      map[plan.Step]*sent
	// first is the oldest step of which nothing was forgotten.
	first plan.Step
}

// sent holds one step's messages.
type sent struct {
	frames map[plan.PeerID][]wire.Frame // by receiver
	bytes  int64
}

// NewLogs returns the logs of a node, which has none.
func NewLogs(self plan.PeerID) *Logs { return &Logs{self: self} }

// Begin returns the empty log of a generation whose first step is start+1. Of those before only some stay, with their steps up to start. A
// budget of 0 keeps nothing.
func (l *Logs) Begin(g plan.Generation, start plan.Step, budget int64, stay ...plan.Generation) *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget = budget
	l.drop(func(log *Log) bool { return !slices.Contains(stay, log.generation) })
	for _, log := range l.logs {
		for step := range log.steps {
			if step > start {
				log.remove(step)
			}
		}
	}
	log := &Log{in: l, generation: g, start: start, steps: map[plan.Step]*sent{}, first: start + 1}
	l.logs = append(l.logs, log)
	l.trim()
	return log
}

// Of returns the log of a generation; nil where there is none.
func (l *Logs) Of(g plan.Generation) *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.logs, func(log *Log) bool { return log.generation == g }); i >= 0 {
		return l.logs[i]
	}
	return nil
}

// First returns the oldest step since which all messages are kept, over generations; 0 before the first.
func (l *Logs) First() (first plan.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.logs) - 1; i >= 0 && (first == 0 || first == l.logs[i+1].start+1); i-- {
		first = l.logs[i].first
	}
	return first
}

// Forget drops the steps before one whose state is in a checkpoint, and the generations that ended with it. That step's own messages
// stay while their generation goes on.
func (l *Logs) Forget(checkpoint plan.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, log := range l.logs {
		log.forget(checkpoint - min(checkpoint, 1))
	}
	ended := 0
	for i := 1; i < len(l.logs) && l.logs[i].start <= checkpoint; i++ {
		ended = i
	}
	old := l.logs[:ended]
	l.drop(func(log *Log) bool { return slices.Contains(old, log) })
}

// drop drops some logs, for callers that hold mu. Nothing more is kept in them.
func (l *Logs) drop(goes func(*Log) bool) {
	for _, log := range l.logs {
		if goes(log) {
			log.forget(math.MaxUint64 - 1)
		}
	}
	l.logs = slices.DeleteFunc(l.logs, goes)
}

// trim forgets the oldest steps that are over the budget, for callers that hold mu.
func (l *Logs) trim() {
	for _, log := range l.logs {
		for l.bytes > l.budget && len(log.steps) > 0 {
			log.forget(slices.Min(slices.Collect(maps.Keys(log.steps))))
		}
	}
}

// First returns the oldest step of which all messages are kept, or would be if there were any.
func (l *Log) First() plan.Step {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	return l.first
}

// Full reports whether the steps after a checkpoint use half of the budget, so that another one is wanted.
func (l *Log) Full(checkpoint plan.Step) bool {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	bytes := int64(0)
	for step, s := range l.steps {
		if step > checkpoint {
			bytes += s.bytes
		}
	}
	return bytes > l.in.budget/2
}

// forget drops the steps up to one, for callers that hold mu.
func (l *Log) forget(through plan.Step) {
	for step := range l.steps {
		if step <= through {
			l.remove(step)
		}
	}
	l.first = max(l.first, through+1)
}

// remove drops a step's messages, for callers that hold mu.
func (l *Log) remove(step plan.Step) {
	l.in.bytes -= l.steps[step].bytes
	delete(l.steps, step)
}

// Sent returns what was sent to some peers in a step, in order; false where that step was forgotten.
func (l *Log) Sent(step plan.Step, to []plan.PeerID) ([]Message, bool) {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	if step < l.first {
		return nil, false
	}
	var messages []Message
	if s := l.steps[step]; s != nil {
		for _, peer := range to {
			for _, f := range s.frames[peer] {
				if replayed(f.Tag.Kind) {
					messages = append(messages, Message{To: peer, Frame: f})
				}
			}
		}
	}
	return messages, true
}

// After returns what was sent to a peer in the steps after one, reports and commits too, by step and in order; false where one of these
// steps was forgotten.
func (l *Log) After(step plan.Step, to plan.PeerID) (frames []wire.Frame, kept bool) {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	if step+1 < l.first {
		return nil, false
	}
	for _, s := range slices.Sorted(maps.Keys(l.steps)) {
		if s > step {
			frames = append(frames, l.steps[s].frames[to]...)
		}
	}
	return frames, true
}

// add keeps a message if a replay or a substitute needs it.
func (l *Log) add(to plan.PeerID, f wire.Frame) {
	if agrees := f.Tag.Kind == wire.KindReport || f.Tag.Kind == wire.KindCommit; to == l.in.self || !replayed(f.Tag.Kind) && !agrees {
		return
	}
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	if f.Tag.Step < l.first {
		return
	}
	s := l.steps[f.Tag.Step]
	if s == nil {
		s = &sent{frames: map[plan.PeerID][]wire.Frame{}}
		l.steps[f.Tag.Step] = s
	}
	s.frames[to] = append(s.frames[to], f)
	size := int64(len(f.Payload)) + wire.HeaderBytes
	s.bytes += size
	l.in.bytes += size
	l.in.trim()
}

// replayed reports whether a step's state depends on messages of a kind.
func replayed(k wire.Kind) bool {
	return slices.Contains([]wire.Kind{wire.Activation, wire.Gradient, wire.TiedGrad, wire.ReducePart, wire.GatherPart}, k)
}

// Keep returns an exchange that also keeps what it sends.
func (l *Log) Keep(e collective.Exchange) collective.Exchange { return keeping{e, l} }

// keeping is an exchange whose messages go into a log.
type keeping struct {
	collective.Exchange
	log *Log
}

// Send keeps the message first: who has got it may be lost before Send returns.
func (k keeping) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	k.log.add(to, f)
	return k.Exchange.Send(ctx, to, f)
}

// Brought passes collective.Brought through.
func (k keeping) Brought(from plan.PeerID, tag wire.Tag) plan.PeerID {
	return collective.Brought(k.Exchange, from, tag)
}

// DropActivations passes pipeline.Dropper through.
func (k keeping) DropActivations(step plan.Step, below int32) {
	if d, ok := k.Exchange.(interface {
		DropActivations(plan.Step, int32)
	}); ok {
		d.DropActivations(step, below)
	}
}

// Moved passes pipeline.Movement through.
func (k keeping) Moved(step plan.Step) uint64 {
	if m, ok := k.Exchange.(interface{ Moved(plan.Step) uint64 }); ok {
		return m.Moved(step)
	}
	return 0
}
