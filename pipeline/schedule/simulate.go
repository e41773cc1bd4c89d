package schedule

import (
	"fmt"
	"math/rand/v2"
)

// Timing holds the costs of a simulation, by replica.
type Timing struct {
	Replicas []Costs
	Jitter   Jitter
}

// Jitter adds to each message an exponentially distributed latency of the given mean. It
// depends on the seed and the message only. The zero value is none.
type Jitter struct {
	Seed uint64
	Mean Nanos
}

// of is the extra latency of the message that an action sends.
func (j Jitter) of(a Action, step Stage) Nanos {
	if j.Mean == 0 {
		return 0
	}
	message := uint64(a.Replica)<<44 ^ uint64(a.Stage)<<24 ^ uint64(a.Micro)<<2 ^ uint64(step+1)
	draw := rand.New(rand.NewPCG(j.Seed, message)).ExpFloat64()
	return Nanos(float64(j.Mean) * draw)
}

// duration returns how long the action occupies its worker. Sends and receives occupy the
// link only; Gather takes no time.
func (t Timing) duration(a Action) Nanos {
	if t.Replicas == nil || a.Op == Step {
		return 0 // a step's duration is its worker's: see Simulate
	}
	st := t.Replicas[a.Replica].Stages[a.Stage]
	switch a.Op {
	case Forward:
		return st.Forward
	case Backward:
		return st.Input + st.Weight
	case BackwardInput:
		return st.Input
	case BackwardWeight:
		return st.Weight
	case Recompute:
		return st.Recompute
	case Reduce:
		return st.Reduce
	}
	return 0
}

func (t Timing) hop(a Action, step Stage) Hop {
	if t.Replicas == nil {
		return Hop{}
	}
	if step > 0 {
		return t.Replicas[a.Replica].Boundaries[a.Stage].Activation
	}
	return t.Replicas[a.Replica].Boundaries[a.Stage-1].Gradient
}

// Simulate times a schedule. Messages on one directed link between two workers follow
// each other: each occupies it for its transfer time and arrives a latency later. A
// reduction hands its stage's gradient in and waits for nobody; a step starts when
// everything else is done, and it takes the sum of its worker's stages' Update.
func Simulate(s Schedule, t Timing) (Timeline, error) {
	out := Timeline{Workers: make([][]Span, len(s.Workers)), PeakLive: make([]int, len(s.Workers))}
	for w, actions := range s.Workers {
		out.Workers[w] = make([]Span, 0, len(actions))
		out.PeakLive[w] = int(Limits{}.peak(actions))
	}
	err := t.simulate(s, func(m Message) { out.Messages = append(out.Messages, m) }, func(w int, a Action, start, end Nanos) {
		out.Workers[w] = append(out.Workers[w], Span{a, start, end})
		out.Makespan = max(out.Makespan, end)
	})
	if err != nil {
		return Timeline{}, err
	}
	return out, nil
}

// Makespan is Simulate's makespan alone, without the memory for a timeline.
func Makespan(s Schedule, t Timing) (last Nanos, err error) {
	err = t.simulate(s, nil, func(_ int, _ Action, _, end Nanos) { last = max(last, end) })
	return last, err
}

// simulate calls span for each action of a schedule and message for each tensor that goes to another
// worker; message may be nil.
func (t Timing) simulate(s Schedule, message func(Message), span func(worker int, a Action, start, end Nanos)) error {
	l, err := newLayout(s)
	if err == nil {
		err = t.check(l)
	}
	if err != nil {
		return err
	}
	e := newEngine(s, l, t, func(w int, a Action, start, end Nanos) {
		if a.Op == Step {
			for r, rl := range l.replicas {
				for st, holder := range rl.holder {
					if holder == w {
						end += t.Replicas[r].Stages[st].Update
					}
				}
			}
		}
		span(w, a, start, end)
	})
	if e.message = message; !e.run() {
		return e.stuck()
	}
	return nil
}

func (t Timing) check(l *layout) error {
	if len(t.Replicas) != len(l.replicas) {
		return fmt.Errorf("%w: costs of %d replicas for %d", ErrBadCosts, len(t.Replicas), len(l.replicas))
	}
	for r, c := range t.Replicas {
		if err := c.check(); err != nil {
			return fmt.Errorf("replica %d: %w", r, err)
		}
		if len(c.Stages) != l.replicas[r].stages {
			return fmt.Errorf("%w: replica %d: costs of %d stages for %d", ErrBadCosts, r, len(c.Stages), l.replicas[r].stages)
		}
	}
	if t.Jitter.Mean < 0 || t.Jitter.Mean > MaxNanos {
		return fmt.Errorf("%w: jitter of mean %d ns, want 0 to %d", ErrBadCosts, t.Jitter.Mean, int64(MaxNanos))
	}
	return nil
}

// Interval is from when something begins until it ends. Back is when passes begin that are no forwards.
type Interval struct{ Begin, End, Back Nanos }

// Intervals returns by replica and stage when the first pass and the first one that is no forward begin, and when the last one ends.
func Intervals(s Schedule, t Timing) ([][]Interval, error) {
	out := make([][]Interval, len(t.Replicas))
	for r, c := range t.Replicas {
		out[r] = make([]Interval, len(c.Stages))
		for i := range out[r] {
			out[r][i].Begin, out[r][i].Back = -1, -1
		}
	}
	err := t.simulate(s, nil, func(_ int, a Action, start, end Nanos) {
		if a.Op == Step {
			return
		}
		at := &out[a.Replica][a.Stage]
		if at.End = max(at.End, end); at.Begin < 0 && a.Op == Forward {
			at.Begin = start
		} else if at.Back < 0 && (a.Op == Backward || a.Op == BackwardInput || a.Op == BackwardWeight || a.Op == Recompute) {
			at.Back = start
		}
	})
	return out, err
}
