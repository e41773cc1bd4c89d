package replay

import (
	"context"
	"maps"
	"slices"
	"sync"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Log keeps the messages that workers here have sent to other nodes in one generation. Over its budget it forgets
// the oldest step: a replay needs all steps after the state that it begins with.
type Log struct {
	self plan.PeerID

	mu     sync.Mutex // guards the rest
	budget int64
	steps  map[plan.Step]*sent
	bytes  int64
	// first is the oldest step of which nothing was forgotten.
	first plan.Step
}

// sent holds one step's messages.
type sent struct {
	frames map[plan.PeerID][]wire.Frame // by receiver
	bytes  int64
}

// NewLog returns the empty log of a node in a generation whose first step is start+1. A budget of 0 keeps nothing.
func NewLog(self plan.PeerID, start plan.Step, budget int64) *Log {
	return &Log{self: self, budget: budget, steps: map[plan.Step]*sent{}, first: start + 1}
}

// First returns the oldest step of which all messages are kept, or would be if there were any.
func (l *Log) First() plan.Step {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// Full reports whether half of the budget is used, so that a checkpoint is wanted, after which older steps may go.
func (l *Log) Full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes > l.budget/2
}

// Bytes returns what is kept.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Grow has the log keep so many bytes more.
func (l *Log) Grow(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget += bytes
}

// Forget drops the steps up to one whose state is in a checkpoint.
func (l *Log) Forget(through plan.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(through)
}

// forget is Forget for callers that hold mu.
func (l *Log) forget(through plan.Step) {
	for step, s := range l.steps {
		if step <= through {
			l.bytes -= s.bytes
			delete(l.steps, step)
		}
	}
	l.first = max(l.first, through+1)
}

// Sent returns what was sent to some peers in a step, in order; false where that step was forgotten.
func (l *Log) Sent(step plan.Step, to []plan.PeerID) ([]Message, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	l.mu.Lock()
	defer l.mu.Unlock()
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
	if agrees := f.Tag.Kind == wire.KindReport || f.Tag.Kind == wire.KindCommit; to == l.self || !replayed(f.Tag.Kind) && !agrees {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
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
	l.bytes += size
	for l.bytes > l.budget {
		oldest := f.Tag.Step
		for step := range l.steps {
			oldest = min(oldest, step)
		}
		l.forget(oldest)
	}
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

// Moved passes pipeline.Movement through.
func (k keeping) Moved(step plan.Step) uint64 {
	if m, ok := k.Exchange.(interface{ Moved(plan.Step) uint64 }); ok {
		return m.Moved(step)
	}
	return 0
}
