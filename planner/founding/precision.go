package founding

import (
	"math"
	"math/bits"
	"slices"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// Precision holds in which types the stages of a run's first plan may store what products read, and what speaks for them.
type Precision struct {
	// Storages are tried in this order: the first with which anything fits is taken. A stage in halves has more per
	// parameter, for their copies, and less per micro-batch in flight.
	Storages []model.Storage
	// Half is the type of halves that was weighed against float32; float32 where none was.
	Half model.Storage
	// Gain is how fast all devices together multiply Half, in thousandths of their rate in float32: Measured of them by
	// their own rate, the others as in float32.
	Gain     int64
	Measured int
	// Without is the index of the first processor without instructions for Half where another processor has them; -1 for
	// none. With one, all processors count as in float32.
	Without int
}

// LeastGain is the gain from which on a run computes in halves: it takes matrix units, or instructions for them.
const LeastGain = 1500

// PrecisionOf weighs the types of a run's first plan on devices. Where the model has no costs in halves, none are taken on auto.
func PrecisionOf(rule plan.StorageRule, devices []plan.DeviceProfile, halves bool) Precision {
	only := func(s model.Storage) Precision { return Precision{Storages: []model.Storage{s}, Without: -1} }
	if !rule.Auto {
		return only(rule.Storage)
	}
	bf16, f16 := weigh(devices, model.StorageBF16), weigh(devices, model.StorageF16)
	best := bf16
	if f16.Measured > 0 && (bf16.Measured == 0 || permille(f16.Gain, bf16.Gain) >= LeastGain) { // worth its narrow range
		best = f16
	}
	switch {
	case !halves || best.Measured == 0 && best.Without < 0:
		return only(model.StorageF32)
	case best.Measured == 0:
		best.Storages = []model.Storage{model.StorageF32}
	case best.Gain >= LeastGain:
		best.Storages = []model.Storage{best.Half, model.StorageF32}
	default:
		best.Storages = []model.Storage{model.StorageF32, best.Half}
	}
	return best
}

// weigh compares a type of halves with float32. Processors with instructions for it add up a product in another order than
// those without, so that a run on both would have losses that depend on who computes what: it gets no part of its gain from them.
func weigh(devices []plan.DeviceProfile, half model.Storage) Precision {
	p := Precision{Half: half, Without: -1}
	lacks := func(d plan.DeviceProfile) bool { return d.Processor() && d.Products(half) <= 0 }
	if slices.ContainsFunc(devices, func(d plan.DeviceProfile) bool { return d.Processor() && d.Products(half) > 0 }) {
		p.Without = slices.IndexFunc(devices, lacks)
	}
	var rate, full int64
	for _, d := range devices {
		own := d.Products(half)
		if own <= 0 || d.Processor() && p.Without >= 0 {
			own = d.MatMulFLOPS
		} else {
			p.Measured++
		}
		rate, full = rate+units(own), full+units(d.MatMulFLOPS)
	}
	p.Gain = permille(rate, full)
	return p
}

// units returns a rate in units of which those of all devices of a run can be added up.
func units(flops int64) int64 { return min(flops, plan.MaxFLOPS) >> 10 }

// permille returns how many thousandths of another a rate is, to the nearest; 0 where there is no other.
func permille(rate, other int64) int64 {
	high, low := bits.Mul64(uint64(max(rate, 0)), 1000)
	low, carry := bits.Add64(low, uint64(max(other, 0)/2), 0)
	high += carry
	switch {
	case other <= 0:
		return 0
	case high >= uint64(other):
		return math.MaxInt64
	}
	n, _ := bits.Div64(high, low, uint64(other))
	return int64(min(n, math.MaxInt64))
}
