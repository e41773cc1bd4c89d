package planner

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// precision returns in which precision a device's stages store what products read.
type precision func(plan.PeerID, plan.DeviceProfile) model.Storage

// precisions returns what a plan may have, the best first: the first with which anything fits is
// taken. A stage in halves has more per parameter, for their copies, and less per micro-batch in
// flight.
func (p *problem) precisions() []precision {
	rule := p.in.Run.Train.Storage
	always := func(s model.Storage) precision {
		return func(plan.PeerID, plan.DeviceProfile) model.Storage { return s }
	}
	switch {
	case !rule.Auto:
		return []precision{always(rule.Storage)}
	case p.in.HalfCosts == nil || !slices.ContainsFunc(p.in.Members, func(m Member) bool {
		return slices.ContainsFunc(m.Profile.Devices, func(d plan.DeviceProfile) bool { return max(d.MatMulBF16FLOPS, d.MatMulF16FLOPS) > 0 })
	}):
		return []precision{always(model.StorageF32)}
	}
	now := func(plan.PeerID, plan.DeviceProfile) model.Storage { return model.StorageF32 }
	if p.in.Previous != nil {
		now = p.precisionOf(*p.in.Previous)
	}
	halves := func(peer plan.PeerID, d plan.DeviceProfile) model.Storage { return half(d, now(peer, d)) }
	return []precision{p.fastest(), halves, always(model.StorageF32)}
}

// fastest has halves where a device multiplies them faster than float32.
func (p *problem) fastest() precision {
	now := func(plan.PeerID, plan.DeviceProfile) model.Storage { return model.StorageF32 }
	if p.in.Previous != nil {
		now = p.precisionOf(*p.in.Previous)
	}
	return func(peer plan.PeerID, d plan.DeviceProfile) model.Storage {
		is := now(peer, d)
		if h := half(d, is); outruns(d.Products(h), d.MatMulFLOPS, is == h) {
			return h
		}
		return model.StorageF32
	}
}

// half returns what a device stores where it does not store float32, by what was measured: BF16, or
// F16 where that is worth its narrow range, or float32 where neither was measured. now is what it
// stores in the plan in force.
func half(d plan.DeviceProfile, now model.Storage) model.Storage {
	switch {
	case d.MatMulF16FLOPS > 0 && outruns(d.MatMulF16FLOPS, d.MatMulBF16FLOPS, now == model.StorageF16):
		return model.StorageF16
	case d.MatMulBF16FLOPS > 0:
		return model.StorageBF16
	default:
		return model.StorageF32
	}
}

// outruns reports whether a rate is at least 1.5 times another, which takes matrix units. What is
// so in the plan in force stays so down to 1.25 times: bits should not change because a measurement
// did.
func outruns(rate, other int64, now bool) bool {
	// Quotients: products of rates that somebody made up could overflow.
	gain := rate/4 - other/4
	return gain >= other/8 || now && gain >= other/16
}

// precisionOf returns the precision of a plan's stages, and float32 elsewhere.
func (p *problem) precisionOf(of plan.Plan) precision {
	at := map[plan.WorkerID]model.Storage{}
	for _, pipe := range of.Replicas {
		for _, place := range pipe.Stages {
			at[place.Worker()] = p.in.Run.Train.Storage.Of(place)
		}
	}
	return func(peer plan.PeerID, d plan.DeviceProfile) model.Storage {
		return at[plan.WorkerID{Peer: peer, Device: d.Name}]
	}
}
