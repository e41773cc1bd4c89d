package simulate

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// ErrOptions is wrapped by errors about what was asked for.
var ErrOptions = errors.New("simulate: bad options")

// Synthetic says what a trace without a file is like: machines are lost at random, and others come for them.
type Synthetic struct {
	// Nodes is how many machines the run begins with.
	Nodes int
	// SpanNanos is how long the trace is, EveryNanos the mean time from one loss of the fleet to the next.
	SpanNanos, EveryNanos int64
	// BackNanos is the mean time until another machine comes for one that was lost; 0 is never.
	BackNanos int64
	Seed      uint64
}

// Trace makes the trace: the times between losses, and until a machine comes for a lost one, are exponentially distributed.
// Which machine is lost is even chance. Errors wrap ErrOptions.
func (s Synthetic) Trace() (Trace, error) {
	switch {
	case s.Nodes < 1 || s.Nodes > MaxMachines:
		return Trace{}, fmt.Errorf("%w: nodes are %d: want 1 to %d", ErrOptions, s.Nodes, MaxMachines)
	case s.SpanNanos < second || s.SpanNanos > maxTraceMillis*milli:
		return Trace{}, fmt.Errorf("%w: span is %g s: want 1s to 8784h, 366 days", ErrOptions, float64(s.SpanNanos)/float64(second))
	case s.EveryNanos < milli || s.EveryNanos > maxTraceMillis*milli:
		return Trace{}, fmt.Errorf("%w: --every is %g s, the time from one loss to the next: want 1ms to 8784h", ErrOptions, float64(s.EveryNanos)/float64(second))
	case s.BackNanos < 0 || s.BackNanos > maxTraceMillis*milli:
		return Trace{}, fmt.Errorf("%w: back is %g s, the time until another machine comes: want 0s for never, to 8784h", ErrOptions, float64(s.BackNanos)/float64(second))
	case s.SpanNanos/s.EveryNanos > maxTraceEvents/4:
		return Trace{}, fmt.Errorf("%w: about %d losses, at most %d: lose machines less often or for a shorter time", ErrOptions, s.SpanNanos/s.EveryNanos, maxTraceEvents/4)
	}
	rng := rand.New(rand.NewPCG(s.Seed, 0x51b1a7e))
	t, living, returns := Trace{EndNanos: s.SpanNanos}, []string{}, []int64{}
	add := func(at int64) {
		name := fmt.Sprintf("node%d", len(t.Events)+1)
		t.Events = append(t.Events, Event{at, Add, name})
		living = append(living, name)
	}
	for range s.Nodes {
		add(0)
	}
	next := whole(exponential(rng, s.EveryNanos))
	for {
		i := earliest(returns)
		switch {
		case i >= 0 && returns[i] <= min(next, s.SpanNanos):
			add(returns[i])
			returns = append(returns[:i], returns[i+1:]...)
			continue
		case next > s.SpanNanos:
			return t, nil
		}
		if len(living) > 0 {
			v := rng.IntN(len(living))
			t.Events = append(t.Events, Event{next, Remove, living[v]})
			living = append(living[:v], living[v+1:]...)
			if s.BackNanos > 0 {
				returns = append(returns, next+whole(exponential(rng, s.BackNanos)))
			}
		}
		next += whole(exponential(rng, s.EveryNanos))
	}
}

// whole returns a time in whole milliseconds, at least one, as traces have them.
func whole(nanos int64) int64 { return max(nanos/milli, 1) * milli }

// earliest returns the place of the least of some times, -1 for none.
func earliest(times []int64) int {
	first := -1
	for i, at := range times {
		if first < 0 || at < times[first] {
			first = i
		}
	}
	return first
}

// exponential draws an exponentially distributed time with that mean, in integers: every architecture draws the same.
func exponential(rng *rand.Rand, mean int64) int64 {
	const (
		fraction = 24                 // bits after the point
		ln2      = uint64(11_629_080) // in units of 2^-24
	)
	x := rng.Uint64() | 1
	zeros := bits.LeadingZeros64(x)
	m, log := x<<zeros, uint64(0) // x is m * 2^-zeros, and m/2^63 is from 1 to 2
	for range fraction {          // squaring gives the logarithm's next bit
		high, _ := bits.Mul64(m, m)
		log <<= 1
		if high>>63 != 0 {
			log, m = log|1, high
		} else {
			m = high << 1
		}
	}
	inverse := (uint64(zeros)+1)<<fraction - log // -log2 of x/2^64
	high, low := bits.Mul64(uint64(mean), inverse*ln2>>fraction)
	return int64(high<<(64-fraction) | low>>fraction)
}
