package holders

import (
	"math"
	"math/bits"

	"pnode/planner/plan"
)

const (
	// Between two copies at least leastRests and at most mostRests times as long as a copy takes passes: copies have half
	// of the time at most, on what steps leave of lines, and a hundredth where losses are rare.
	leastRests, mostRests = 1, 99
	// costShare is which part of a copy's time steps are taken to lose by it, one in so many: it is made in the background and
	// goes over lines after everything that steps send. That is an estimate: docs/recovery.md has what was measured.
	costShare = 10
	// LeastNanos is the least time between two copies.
	LeastNanos = int64(2e9)
	// SlowNanos is how long a copy may take before a member counts as too far away to keep one.
	SlowNanos = int64(600e9)
	// leftOverShare is the part of a line, in one of so many, that copies have where activations need all of it.
	leftOverShare = 20

	milli = int64(1e6)
	// mostMillis bounds times so that no product of two overflows: 11 days.
	mostMillis = int64(1e9)
)

// Every returns how long to wait from one copy to the next where one takes copyNanos and a node is lost every lossNanos.
// It is the interval that loses the least time where a copy costs a part of its own, one in costShare (Young, "A first order
// approximation to the optimum checkpoint interval", 1974): the root of twice the cost times lossNanos. That part is an
// estimate, and a replay makes up for what a copy lacks, so the rest is bounded on both sides.
func Every(copyNanos, lossNanos int64) int64 {
	took, losses := millis(copyNanos), millis(lossNanos)
	best := root(2 * took * losses / costShare)
	return max(LeastNanos, min(max(best, leastRests*took), mostRests*took)*milli)
}

// millis returns a time in milliseconds, bounded.
func millis(nanos int64) int64 { return min(max(nanos, 0)/milli, mostMillis) }

// root returns the integer square root of n, which is at least 0.
func root(n int64) int64 {
	r := int64(math.Sqrt(float64(n))) // off by one at most, on any machine
	for r > 0 && r*r > n {
		r--
	}
	for (r+1)*(r+1) <= n {
		r++
	}
	return r
}

// Copy is a stage's state and the line to its holder.
type Copy struct {
	StateBytes int64
	// BytesPerS is what the line carries, BusyBytesPerS how much of that the steps need.
	BytesPerS, BusyBytesPerS int64
}

// LeftOver returns how many bytes a second are left for copies, at least a twentieth of the line.
func (c Copy) LeftOver() int64 {
	return max(c.BytesPerS-c.BusyBytesPerS, c.BytesPerS/leftOverShare, 1)
}

// Nanos returns how long a copy takes.
func (c Copy) Nanos() int64 {
	left := c.LeftOver()
	whole, rest := c.StateBytes/left, c.StateBytes%left
	if whole >= math.MaxInt64/int64(1e9) {
		return math.MaxInt64
	}
	high, low := bits.Mul64(uint64(rest), 1e9)
	part, _ := bits.Div64(high, low, uint64(left)) // less than a second, since rest < left
	return whole*1e9 + int64(part)
}

// Steps returns how many steps pass from one copy to the next.
func Steps(everyNanos, stepNanos int64) plan.Step {
	step := max(stepNanos, 1)
	return plan.Step(max(1, (everyNanos+step-1)/step))
}

// Rate is how often nodes are lost, as far as one has seen.
type Rate struct {
	// SeenNanos is for how long one has looked, Losses how many nodes were lost in that time.
	SeenNanos int64
	Losses    int
	// AgoNanos is how long ago the newest of these were, the newest first.
	AgoNanos []int64
}

const (
	// priorNanos is in what time a node is expected to be lost before any was seen.
	priorNanos = int64(4 * 3600e9)
	// priorWeight is how many losses that expectation counts as, one in so many: it moves with the first one that is seen.
	priorWeight = 8
)

// Between returns the mean time between two losses: of those that were seen and an eighth of one in an eighth of priorNanos, which
// is the mean of a gamma prior with that weight. Losses come in bursts, as where a provider takes its machines back: where two or
// more of the newest came faster, it is the mean time between those.
func (r Rate) Between() int64 {
	seen := min(max(r.SeenNanos, 0), math.MaxInt64/2/priorWeight) + priorNanos/priorWeight
	between := seen / (priorWeight*int64(min(max(r.Losses, 0), math.MaxInt32)) + 1) * priorWeight
	for i, ago := range r.AgoNanos {
		if i > 0 {
			between = min(between, max(ago, 0)/int64(i+1))
		}
	}
	return between
}
