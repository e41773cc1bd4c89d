package cost

import (
	"math/bits"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Longest is what one time saturates at, 2^40 ns = 18 minutes: 4096 layers of three such
// times add up to less than 2^54.
const Longest schedule.Nanos = 1 << 40

// Device is the measured speed of a device.
type Device struct {
	MatMulFLOPS, MemoryBytesPerS int64
}

// DeviceOf returns a device's speed for stages of a storage: the rate measured for it, or that
// of float32 where nobody measured it.
func DeviceOf(d plan.DeviceProfile, s model.Storage) Device {
	speed := Device{MatMulFLOPS: d.MatMulFLOPS, MemoryBytesPerS: d.MemoryBytesPerS}
	if rate := d.Products(s); rate > 0 {
		speed.MatMulFLOPS = rate
	}
	return speed
}

// LayerTime is what one layer takes per micro-batch on a device, and Update once a step.
type LayerTime struct {
	Forward, Input, Weight, Update schedule.Nanos
}

// Micro is the time of one forward and one full backward.
func (t LayerTime) Micro() schedule.Nanos { return t.Forward + t.Input + t.Weight }

// Add gives the time of two layers, one after the other.
func (t LayerTime) Add(o LayerTime) LayerTime {
	return LayerTime{t.Forward + o.Forward, t.Input + o.Input, t.Weight + o.Weight, t.Update + o.Update}
}

// Sub takes a layer's time away again.
func (t LayerTime) Sub(o LayerTime) LayerTime {
	return LayerTime{t.Forward - o.Forward, t.Input - o.Input, t.Weight - o.Weight, t.Update - o.Update}
}

// Layer times one layer. Operations run at the speed of the matrix product, which is
// nearly all of them. Besides, memory is streamed: forward writes what it saves; the
// input gradient reads that and writes as much; the weight gradient is read and written
// once a micro-batch; the update reads parameter, gradient and two moments, writes three
// of them, and the norm reads the gradient: 8 times the parameters. A copy in halves is written
// from parameters of twice its size.
func (d Device) Layer(c model.LayerCost) LayerTime {
	compute := func(flops, bytes int64) schedule.Nanos {
		return min(Duration(flops, d.MatMulFLOPS)+Duration(bytes, d.MemoryBytesPerS), Longest)
	}
	return LayerTime{
		Forward: compute(c.ForwardFLOPs, c.SavedBytes),
		Input:   compute(c.InputFLOPs, 2*c.SavedBytes),
		Weight:  compute(c.WeightFLOPs, 2*(c.ParamBytes-c.FrozenBytes)),
		Update:  compute(0, 8*(c.ParamBytes-c.FrozenBytes)+3*c.CopyBytes),
	}
}

// Again times what a level of recomputation computes again of a layer: it writes what was
// dropped once more.
func (d Device) Again(c model.LayerCost, level model.Recompute) schedule.Nanos {
	lean := c.Lean[level]
	return min(Duration(lean.RecomputeFLOPs, d.MatMulFLOPS)+Duration(c.SavedBytes-lean.SavedBytes, d.MemoryBytesPerS), Longest)
}

// Link is the measured speed of one direction between two nodes. The zero value is not
// a link.
type Link struct {
	BytesPerS, RTTNanos int64
}

// Local joins two devices of one node: what is exchanged stays in memory.
var Local = Link{BytesPerS: 1 << 62}

// Hop is what a message takes: its transfer occupies the link, half a round trip
// follows. Local takes no time.
func (l Link) Hop(bytes int64) schedule.Hop {
	if l == Local {
		return schedule.Hop{}
	}
	latency := schedule.Nanos(max(l.RTTNanos, 0) / 2)
	return schedule.Hop{Transfer: Duration(bytes, l.BytesPerS), Latency: min(latency, Longest)}
}

// Duration is amount / perSecond in nanoseconds, rounded up, at most Longest.
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
