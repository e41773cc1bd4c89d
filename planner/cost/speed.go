package cost

import (
	"math/bits"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Longest bounds every single time, 2^40 ns = 18 minutes: 4096 layers of three such times add up
// to less than 2^54.
const Longest schedule.Nanos = 1 << 40

// Speed is the measured speed of a device: products, attention and memory, and what each kernel call takes besides. Where
// Times were measured, passes take as long as their calls of each size.
type Speed struct {
	MatMulFLOPS, AttentionFLOPS, MemoryBytesPerS int64
	FullFLOPS                                    int64 // of products in float32
	Call                                         schedule.Nanos
	Times                                        kernels.WorkTimes
}

// SpeedOf returns a device's speed for stages of a storage. A rate of products that nobody
// measured for the storage is that of float32, of which processors that widen BF16 reach 0.85 to 0.92; attention that nobody
// measured runs like products.
func SpeedOf(d plan.DeviceProfile, s model.Storage) Speed {
	speed := Speed{MatMulFLOPS: d.MatMulFLOPS, FullFLOPS: d.MatMulFLOPS, AttentionFLOPS: d.AttentionFLOPS, MemoryBytesPerS: d.MemoryBytesPerS, Call: schedule.Nanos(d.CallNanos), Times: d.TimesIn(s)}
	if rate := d.Products(s); rate > 0 {
		speed.MatMulFLOPS = rate
	}
	if speed.AttentionFLOPS <= 0 {
		speed.AttentionFLOPS = speed.MatMulFLOPS
	}
	return speed
}

// Layer returns the times of one layer per micro-batch, and of its update once a step. Products and attention run
// at their own speeds. What else is computed takes as long as its memory is streamed. Each call takes some time besides, which small ones are bound by. Forward writes what it saves. The input gradient reads that and writes
// as much. The weight gradient is read and written once a micro-batch. The update reads parameter,
// gradient and two moments, writes three of them, and the norm reads the gradient: 8 times the
// parameters. A copy in halves is written from parameters of twice its size.
func (s *Speed) Layer(c *model.LayerCost) schedule.StageTime {
	if s.hasTimes(c) {
		t := schedule.StageTime{Forward: s.works(c.ForwardWorks), Input: s.works(c.InputWorks), Weight: s.works(c.WeightWorks)}
		if bytes := 8*(c.ParamBytes-c.FrozenBytes) + 3*c.CopyBytes; bytes > 0 {
			t.Update = s.call(kernels.WorkUpdate, bytes) + Duration(c.UpdateFLOPs, s.FullFLOPS)
		}
		return t
	}
	return schedule.StageTime{
		Forward: s.compute(c.ForwardFLOPs-c.ForwardElementwise, c.ForwardAttention, c.SavedBytes, c.ForwardCalls),
		Input:   s.compute(c.InputFLOPs-c.InputElementwise, c.InputAttention, 2*c.SavedBytes, c.InputCalls),
		Weight:  s.compute(c.WeightFLOPs-c.WeightElementwise, 0, 2*(c.ParamBytes-c.FrozenBytes), c.WeightCalls),
		Update:  s.compute(0, 0, 8*(c.ParamBytes-c.FrozenBytes)+3*c.CopyBytes, 0) + Duration(c.UpdateFLOPs, s.FullFLOPS),
	}
}

// compute returns the time of operations, some of them attention's, of streamed bytes, and of so many calls.
func (s *Speed) compute(flops, attention, bytes, calls int64) schedule.Nanos {
	return min(schedule.Nanos(calls)*s.Call+Duration(flops-attention, s.MatMulFLOPS)+Duration(attention, s.AttentionFLOPS)+Duration(bytes, s.MemoryBytesPerS), Longest)
}

// Again returns the time of recomputing a layer under a level: it writes what was dropped once more.
func (s *Speed) Again(c *model.LayerCost, level model.Recompute) schedule.Nanos {
	lean := &c.Lean[level]
	if s.hasTimes(c) {
		return s.works(lean.RecomputeWorks)
	}
	return s.compute(lean.RecomputeFLOPs-lean.RecomputeElementwise, lean.RecomputeAttention, c.SavedBytes-lean.SavedBytes, lean.RecomputeCalls)
}

// split returns the time of what the weight gradient computes again after the input's, where they are apart.
func (s *Speed) split(c *model.LayerCost) schedule.Nanos {
	if s.hasTimes(c) {
		return s.works(c.SplitWorks)
	}
	return Duration(c.SplitFLOPs, s.MatMulFLOPS) + schedule.Nanos(c.SplitCalls)*s.Call
}

// Link is the measured speed of one direction between two nodes. The zero value is no link.
type Link struct {
	BytesPerS, RTTNanos int64
}

// Local joins two devices of one node: messages stay in memory.
var Local = Link{BytesPerS: 1 << 62}

// Hop returns the time of a message of so many bytes: its transfer occupies the link, half a round
// trip follows. Local takes no time.
func (l Link) Hop(bytes int64) schedule.Hop {
	if l == Local {
		return schedule.Hop{}
	}
	latency := schedule.Nanos(max(l.RTTNanos, 0) / 2)
	return schedule.Hop{Transfer: Duration(bytes, l.BytesPerS), Latency: min(latency, Longest)}
}

// Duration returns amount / perSecond in nanoseconds, rounded up, at most Longest.
func Duration(amount, perSecond int64) schedule.Nanos {
	switch {
	case amount <= 0:
		return 0
	case perSecond <= 0:
		return Longest
	}
	high, low := bits.Mul64(uint64(amount), 1e9)
	if high >= uint64(perSecond) {
		return Longest // the quotient has more than 64 bits
	}
	n, rest := bits.Div64(high, low, uint64(perSecond))
	if rest > 0 && n < uint64(Longest) {
		n++
	}
	return schedule.Nanos(min(n, uint64(Longest)))
}

// MulDiv returns a*b/c for b <= c, rounded down; a/2 when c is 0.
func MulDiv(a, b, c schedule.Nanos) schedule.Nanos {
	if c <= 0 {
		return a / 2
	}
	high, low := bits.Mul64(uint64(a), uint64(b))
	n, _ := bits.Div64(high, low, uint64(c))
	return schedule.Nanos(n)
}
