package planner

import (
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// storages returns in which precision the stages of a plan may store what products read, the best first: the first with
// which anything fits is taken. A stage in halves has more per parameter, for their copies, and less per micro-batch in
// flight. The first plan of a run decides: later ones have its storage, so that no change of plan changes how steps round.
func (p *problem) storages() []model.Storage {
	rule := p.in.Run.Train.Storage
	half := p.half()
	switch {
	case !rule.Auto:
		return []model.Storage{rule.Storage}
	case p.in.Previous != nil:
		return []model.Storage{p.in.Previous.Storage()}
	case p.in.HalfCosts == nil || half == model.StorageF32:
		return []model.Storage{model.StorageF32}
	case outruns(p.rate(half), p.rate(model.StorageF32)):
		return []model.Storage{half, model.StorageF32}
	}
	return []model.Storage{model.StorageF32, half}
}

// rate returns how fast the devices multiply in a storage together, in operations a second: one on which nobody measured it
// as fast as in float32.
func (p *problem) rate(s model.Storage) (sum int64) {
	for _, d := range p.devices {
		rate := d.profile.Products(s)
		if rate <= 0 {
			rate = d.profile.MatMulFLOPS
		}
		sum += min(rate, plan.MaxFLOPS)
	}
	return sum
}

// half returns what a run stores that does not store float32, by what was measured: BF16, or F16 where that is worth its
// narrow range, or float32 where neither was measured.
func (p *problem) half() model.Storage {
	known := func(s model.Storage) bool {
		for _, d := range p.devices {
			if d.profile.Products(s) > 0 {
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
