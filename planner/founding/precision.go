package founding

import (
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// Storages returns in which precision the stages of a run's first plan may store what products read, the best first: the first with
// which anything fits is taken. A stage in halves has more per parameter, for their copies, and less per micro-batch in
// flight. Where the model has no costs in halves, none are taken on auto.
func Storages(rule plan.StorageRule, devices []plan.DeviceProfile, halves bool) []model.Storage {
	on := profiles(devices)
	half := on.half()
	switch {
	case !rule.Auto:
		return []model.Storage{rule.Storage}
	case !halves || half == model.StorageF32:
		return []model.Storage{model.StorageF32}
	case outruns(on.rate(half), on.rate(model.StorageF32)):
		return []model.Storage{half, model.StorageF32}
	}
	return []model.Storage{model.StorageF32, half}
}

// profiles are the devices of a run.
type profiles []plan.DeviceProfile

// rate returns how fast the devices multiply in a storage together, in operations a second: one on which nobody measured it
// as fast as in float32.
func (p profiles) rate(s model.Storage) (sum int64) {
	for _, d := range p {
		rate := d.Products(s)
		if rate <= 0 {
			rate = d.MatMulFLOPS
		}
		sum += min(rate, plan.MaxFLOPS)
	}
	return sum
}

// half returns what a run stores that does not store float32, by what was measured: BF16, or F16 where that is worth its
// narrow range, or float32 where neither was measured.
func (p profiles) half() model.Storage {
	known := func(s model.Storage) bool {
		for _, d := range p {
			if d.Products(s) > 0 {
				return true
			}
		}
		return false
	}
	switch {
	case known(model.StorageF16) && (!known(model.StorageBF16) || outruns(p.rate(model.StorageF16), p.rate(model.StorageBF16))):
		return model.StorageF16
	case known(model.StorageBF16):
		return model.StorageBF16
	}
	return model.StorageF32
}

// outruns reports whether a rate is at least 1.5 times another, which takes matrix units.
func outruns(rate, other int64) bool {
	// Quotients: products of rates that somebody made up could overflow.
	return rate/4-other/4 >= other/8
}
