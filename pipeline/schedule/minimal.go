package schedule

import (
	"fmt"
	"math"
)

// Nanos is a time in nanoseconds.
type Nanos int64

// StageTime holds the times of one stage: per micro-batch, and Reduce and Update once a step.
// A Backward takes Input + Weight.
type StageTime struct {
	Forward, Input, Weight, Recompute Nanos
	Reduce, Update                    Nanos
}

// Micro is the time of one forward and one full backward.
func (t StageTime) Micro() Nanos { return t.Forward + t.Input + t.Weight }

// Over is the time of one of n equal parts of a micro-batch.
func (t StageTime) Over(n int) StageTime {
	for _, d := range []*Nanos{&t.Forward, &t.Input, &t.Weight, &t.Recompute} {
		*d = (*d + Nanos(n) - 1) / Nanos(n)
	}
	return t
}

// busy returns how long a micro-batch occupies the stage's worker.
func (t StageTime) busy() Nanos { return t.Micro() + t.Recompute }

// Hop is one direction of a boundary: Transfer occupies the link, Latency follows.
type Hop struct{ Transfer, Latency Nanos }

// Boundary joins a stage with its successor: activations go forth, gradients back.
type Boundary struct{ Activation, Gradient Hop }

func (b Boundary) roundTrip() Nanos {
	return b.Activation.Transfer + b.Activation.Latency + b.Gradient.Transfer + b.Gradient.Latency
}

// Costs holds the times of one replica's pipeline: Boundaries[i] is between stage i and i+1.
type Costs struct {
	Stages     []StageTime
	Boundaries []Boundary
}

// MaxNanos bounds the sum of one replica's costs, 2^42 ns = 73 minutes for one
// micro-batch: MaxNumber = 2^20 of them, one after the other, stay within 63 bits.
const MaxNanos = 1 << 42

func (c Costs) check() error {
	if len(c.Stages) == 0 || len(c.Boundaries) != len(c.Stages)-1 {
		return fmt.Errorf("%w: %d stages with %d boundaries", ErrBadCosts, len(c.Stages), len(c.Boundaries))
	}
	sum := Nanos(0)
	within := func(times ...Nanos) bool {
		for _, t := range times {
			if t < 0 || t > MaxNanos-sum {
				return false
			}
			sum += t
		}
		return true
	}
	for i, t := range c.Stages {
		if !within(t.Forward, t.Input, t.Weight, t.Recompute, t.Reduce, t.Update) {
			return fmt.Errorf("%w: stage %d takes %+v, want 0 or more and at most %d ns in all", ErrBadCosts, i, t, int64(MaxNanos))
		}
	}
	for i, b := range c.Boundaries {
		if !within(b.Activation.Transfer, b.Activation.Latency, b.Gradient.Transfer, b.Gradient.Latency) {
			return fmt.Errorf("%w: boundary %d takes %+v, want 0 or more and at most %d ns in all", ErrBadCosts, i, b, int64(MaxNanos))
		}
	}
	return nil
}

// Floor is the period that no warm-up can beat: the slowest stage or the slowest
// transfer.
func (c Costs) Floor() Nanos {
	p := Nanos(1)
	for _, t := range c.Stages {
		p = max(p, t.busy())
	}
	for _, b := range c.Boundaries {
		p = max(p, b.Activation.Transfer, b.Gradient.Transfer)
	}
	return p
}

// prefix is by stage the time of all stages and boundaries before it, and their total.
func (c Costs) prefix() []Nanos {
	sum := make([]Nanos, len(c.Stages)+1)
	for i, t := range c.Stages {
		sum[i+1] = sum[i] + t.Micro()
		if i < len(c.Boundaries) {
			sum[i+1] += c.Boundaries[i].roundTrip()
		}
	}
	return sum
}

// round is the round trip from stage r to stage q >= r. What is recomputed shows where it
// turns back: the stages before recompute while they wait for the gradient.
func (c Costs) round(sum []Nanos, r, q int) Nanos {
	t := sum[q+1] - sum[r] + c.Stages[q].Recompute
	if q < len(c.Boundaries) {
		t -= c.Boundaries[q].roundTrip()
	}
	return t
}

// Period is the time per micro-batch of 1F1B with the given warm-ups once it is under
// way, rounded up (schedules: elastic in-flight schedule, case c). Warm-ups that
// increase along the pipeline have no period: math.MaxInt64.
func (c Costs) Period(warmups []int) Nanos { return c.Critical(warmups).Period }

// Critical names the cause of a period: one stage (From == To), one message between neighbours
// (Link), or the round trip between two stages, which too few micro-batches in flight share.
type Critical struct {
	Period   Nanos
	From, To Stage
	Link     bool
}

// Critical says what sets the period of given warm-ups; of several, computing before
// messages before round trips.
func (c Costs) Critical(warmups []int) Critical {
	worst := Critical{Period: 1}
	note := func(p Nanos, from, to int, link bool) {
		if p > worst.Period {
			worst = Critical{p, Stage(from), Stage(to), link}
		}
	}
	for i, t := range c.Stages {
		note(t.busy(), i, i, false)
	}
	for i, b := range c.Boundaries {
		note(max(b.Activation.Transfer, b.Gradient.Transfer), i, i+1, true)
	}
	sum := c.prefix()
	for r := range c.Stages {
		for q := r + 1; q < len(c.Stages); q++ {
			depth := Nanos(warmups[r] - warmups[q] + 1)
			if depth <= 0 {
				return Critical{math.MaxInt64, Stage(r), Stage(q), false}
			}
			note(ceilDiv(c.round(sum, r, q), depth), r, q, false)
		}
	}
	return worst
}

// WarmupsFor are the smallest warm-ups that reach a period p >= Floor.
func (c Costs) WarmupsFor(p Nanos) []int { return c.warmups(max(p, 1)) }

// MinimalWarmups are the smallest warm-ups that reach the least period possible when
// worker r may keep caps[r] activations (warm-up + 1); nil caps are no limit. It returns
// that period too. With caps stages-r it gives ordinary 1F1B, without caps full overlap
// of communication; every point between is exact.
func MinimalWarmups(c Costs, caps []int) (warmups []int, period Nanos, err error) {
	if err := c.check(); err != nil {
		return nil, 0, err
	}
	if caps != nil && len(caps) != len(c.Stages) {
		return nil, 0, fmt.Errorf("%w: %d caps for %d stages", ErrBadCosts, len(caps), len(c.Stages))
	}
	for r, n := range caps {
		if n < 1 {
			return nil, 0, fmt.Errorf("%w: stage %d may keep %d activations, at least 1 is needed", ErrBadCosts, r, n)
		}
	}
	low, high := c.Floor(), c.Floor()+c.prefix()[len(c.Stages)] // at high every warm-up is 0
	for low < high {
		mid := low + (high-low)/2
		if c.fits(mid, caps) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return c.warmups(low), low, nil
}

// RoundTrip returns the time of one micro-batch alone, from its forward on the first stage to
// its backward there.
func (c Costs) RoundTrip() Nanos {
	last := len(c.Stages) - 1
	return c.prefix()[last+1] + c.Stages[last].Recompute
}

// warmups are the smallest that reach period p.
func (c Costs) warmups(p Nanos) []int {
	n := len(c.Stages)
	w := make([]int, n)
	d := DemandOf(c.Stages[n-1], p)
	for r := n - 2; r >= 0; r-- {
		d = d.Before(c.Stages[r], c.Boundaries[r], p)
		w[r] = d.Warmup
	}
	return w
}

// fits reports whether the warm-ups of period p are less than the caps; nil caps are no limit.
func (c Costs) fits(p Nanos, caps []int) bool {
	if caps == nil {
		return true
	}
	n := len(c.Stages)
	d := DemandOf(c.Stages[n-1], p)
	for r := n - 2; r >= 0; r-- {
		if d = d.Before(c.Stages[r], c.Boundaries[r], p); d.Warmup >= caps[r] {
			return false
		}
	}
	return true
}

func ceilDiv(a, b Nanos) Nanos { return (a + b - 1) / b }
