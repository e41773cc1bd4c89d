package holders

import (
	"math"
	"math/bits"

	"pnode/planner/plan"
)

const (
	// LeastNanos is the least time from the begin of a checkpoint to that of the next one.
	LeastNanos = int64(2e9)
	// replayNanos is how much of a run's time is to be computed again after a death at most, where steps lose little by checkpoints;
	// mostReplayNanos, where they lose more.
	replayNanos, mostReplayNanos = int64(5e9), int64(30e9)
	// lostShare is the part of the time that steps may lose by checkpoints, one in so many: a hundredth, unless nodes are lost often. At
	// mostReplayNanos they may lose one in mostLostShare, a twentieth.
	lostShare, mostLostShare = 100, 20
	// busyShare is the part of the time for which copies are on lines and disks at most, one in so many.
	busyShare = 2
	// A checkpoint costs steps savedNanos for what is agreed upon about it, and the time in which a core reads, hashes and writes its state at
	// savedBytesPerS. With lostShare that spares disks, too: they write 10 MB/s in the mean where nodes are hardly ever lost.
	savedNanos, savedBytesPerS = 10 * milli, int64(1e9)
	// SlowNanos is how long a copy may take before a member counts as too far away to keep one.
	SlowNanos = int64(600e9)
	// leftOverShare is the part of a line, in one of so many, that copies have where activations need all of it.
	leftOverShare = 20

	milli = int64(1e6)
	// mostMillis bounds times so that no product of two overflows: 11 days.
	mostMillis = int64(1e9)
)

// Checkpoint is one checkpoint with its copies, as predicted or as measured.
type Checkpoint struct {
	// StateBytes is the size of the largest stage's state; 0 is unknown.
	StateBytes int64
	// TookNanos is how long it takes in the background; 0 is unknown.
	TookNanos int64
	// LostNanos is how much longer all steps beside one were seen to take by it, in sum; 0 where nothing was seen.
	LostNanos int64
}

// Cadence says how often checkpoints are made, and why.
type Cadence struct {
	// EveryNanos is the time from the begin of a checkpoint to that of the next one. The next one begins at the end of a step.
	EveryNanos int64 `json:"every_nanos"`
	// TookNanos is how long one takes in the background, LostNanos what steps lose by it.
	TookNanos int64 `json:"took_nanos"`
	LostNanos int64 `json:"lost_nanos"`
	// StepNanos is how long steps take of late, where who says this makes steps.
	StepNanos int64 `json:"step_nanos,omitempty"`
	Why       Why   `json:"why"`
	// Saving is the step of the checkpoint under way, 0 without one; SavingNanos is since when.
	Saving      plan.Step `json:"saving,omitempty"`
	SavingNanos int64     `json:"saving_nanos,omitempty"`
	// Late is how many steps went by from the newest checkpoint but one until the newest was committed, where these are more than
	// were told; else 0. LateBy is a stage's node that was among the last.
	Late   plan.Step   `json:"late,omitempty"`
	LateBy plan.PeerID `json:"late_by,omitempty"`
}

// Why names the reason that decides how often checkpoints are made.
type Why string

const (
	ForReplay Why = "replay" // a death is to cost little time
	ForSteps  Why = "steps"  // steps are to lose a hundredth of their time at most
	ForMost   Why = "most"   // a death is to cost no more than mostReplayNanos
	ForCost   Why = "cost"   // steps are to lose a twentieth of their time at most
	ForLosses Why = "losses" // what steps lose by checkpoints and what deaths cost is the least in sum
	ForRisk   Why = "risk"   // the same, before a node was lost
	ForLines  Why = "lines"  // lines and disks allow no more
	ForLeast  Why = "least"  // nothing speaks for more time than LeastNanos
	// ForMessages: those that a replay needs are about to be forgotten. No rule here says so.
	ForMessages Why = "messages"
)

// texts say why, after how often.
var texts = map[Why]string{
	ForReplay:   "so that a death costs little to replay",
	ForSteps:    "so that steps lose no more than 1% of the time by them",
	ForMost:     "so that a death costs at most 30 s of steps to replay, though steps lose more than 1% of the time by them",
	ForCost:     "so that steps lose no more than 5% of the time by them",
	ForLosses:   "as often as it pays where nodes are lost as often as here",
	ForRisk:     "as often as it pays where nodes are lost as seldom as is assumed: none was so far",
	ForLines:    "as often as lines and disks allow",
	ForLeast:    "which is as often as possible",
	ForMessages: "before messages are forgotten that a replay needs",
}

// Text returns the reason in words that follow how often checkpoints are made.
func (w Why) Text() string { return texts[w] }

// Valid reports whether w is one of the reasons.
func (w Why) Valid() bool { return texts[w] != "" }

// Cadence returns how often a checkpoint is made where nodes are lost at a rate. The time from one to the next, T, follows from what steps lose
// by one, c, and from the mean time between two losses, M, all in nanoseconds:
//
//   - T is replayNanos: a loss has half of that computed again in the mean, and all of it at most.
//   - T is lostShare*c where that is more, so that steps lose a hundredth of the time at most; but no more than mostReplayNanos, or
//     mostLostShare*c where one checkpoint costs that much.
//   - T is no more than the root of 2*c*M, which has checkpoints and losses cost the least in sum: c/T + T/2M (Young, "A first order
//     approximation to the optimum checkpoint interval", CACM 17(9), 1974). The next terms (Daly, "A higher order estimate of the
//     optimum checkpoint interval for restart dumps", FGCS 22(3), 2006) are of the size of c, which is small where this decides.
//   - T is no less than busyShare times what one takes in the background, and no less than LeastNanos.
func (c Checkpoint) Cadence(losses Rate) Cadence {
	read := Copy{StateBytes: max(c.StateBytes, 0), BytesPerS: savedBytesPerS}.Nanos()
	took, lost, between := millis(c.TookNanos), max(millis(c.LostNanos), millis(read)+savedNanos/milli), millis(losses.Between())
	every, why := replayNanos/milli, ForReplay
	if least := lost * lostShare; least > every {
		every, why = least, ForSteps
	}
	if most := mostReplayNanos / milli; most < every {
		every, why = most, ForMost
	}
	if least := lost * mostLostShare; least > every {
		every, why = least, ForCost
	}
	if best := root(2 * lost * between); best < every {
		if every, why = best, ForLosses; losses.Losses <= 0 {
			why = ForRisk
		}
	}
	if least := took * busyShare; least > every {
		every, why = least, ForLines
	}
	if least := LeastNanos / milli; least > every {
		every, why = least, ForLeast
	}
	return Cadence{EveryNanos: every * milli, TookNanos: took * milli, LostNanos: lost * milli, Why: why}
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

// Steps returns how many steps pass from one checkpoint to the next.
func (c Cadence) Steps(stepNanos int64) plan.Step {
	step := max(stepNanos, 1)
	return plan.Step(max(1, (c.EveryNanos+step-1)/step))
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
