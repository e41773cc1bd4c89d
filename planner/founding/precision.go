package founding

import (
	"fmt"
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
	// Without is the index of the first processor that keeps the others from Half, for it has no instructions for it; -1 for
	// none. With one, all processors count as in float32.
	Without int
}

// Times returns the gain for people, as in "1.95", rounded down.
func (p Precision) Times() string { return fmt.Sprintf("%d.%02d", p.Gain/1000, p.Gain%1000/10) }

// LeastGain is the gain from which on a run computes in halves: it takes matrix units, or instructions for them.
const LeastGain = 1500

// leastShare is the share of all products in float32 from which on a processor has a say: one in so many.
const leastShare = 20

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
	case best.Gain >= LeastGain:
		best.Storages = []model.Storage{best.Half, model.StorageF32}
	default:
		best.Storages = []model.Storage{model.StorageF32, best.Half}
	}
	return best
}

// weigh compares a type of halves with float32. A processor without instructions for them widens them, which is slower, and rounds
// less than the others, so that losses would depend on who computes what. Where one is to compute a part that counts, processors
// are taken to compute in float32.
func weigh(devices []plan.DeviceProfile, half model.Storage) Precision {
	p := Precision{Half: half, Without: -1}
	p.Gain, p.Measured = gain(devices, half, true)
	cards, measured := gain(devices, half, false)
	if p.Gain < LeastGain || p.Measured == measured {
		return p
	}
	var full int64
	for _, d := range devices {
		full += units(d.MatMulFLOPS)
	}
	p.Without = slices.IndexFunc(devices, func(d plan.DeviceProfile) bool {
		return d.Processor() && d.Products(half) <= 0 && units(d.MatMulFLOPS) >= full/leastShare
	})
	if p.Without >= 0 {
		p.Gain, p.Measured = cards, measured
	}
	return p
}

// gain returns how fast devices together multiply halves, in thousandths of their rate in float32, and how many count with their own
// rate: cards, and processors if these are to.
func gain(devices []plan.DeviceProfile, half model.Storage, processors bool) (permilles int64, measured int) {
	var rate, full int64
	for _, d := range devices {
		own := d.Products(half)
		if own > 0 && (processors || !d.Processor()) {
			measured++
		} else {
			own = d.MatMulFLOPS
		}
		rate, full = rate+units(own), full+units(d.MatMulFLOPS)
	}
	return permille(rate, full), measured
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
