package planner

import (
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// storing is how stages on a device store what products read.
type storing func(plan.PeerID, plan.DeviceProfile) model.Storage

// storings are the ways to store that a plan may have, the best first: of those the first is
// taken with which anything fits. A stage in halves has more per parameter, for their copies, and
// less per micro-batch in flight.
func (in Input) storings() []storing {
	rule := in.Run.Train.Storage
	always := func(s model.Storage) storing { return func(plan.PeerID, plan.DeviceProfile) model.Storage { return s } }
	switch {
	case !rule.Auto:
		return []storing{always(rule.Storage)}
	case !in.measuredHalves():
		return []storing{always(model.StorageF32)}
	}
	return []storing{in.storesBySpeed(), in.storesHalves(), always(model.StorageF32)}
}

// measuredHalves tells whether there is anything to choose between.
func (in Input) measuredHalves() bool {
	return in.HalfCosts != nil && slices.ContainsFunc(in.Members, func(m Member) bool {
		return slices.ContainsFunc(m.Profile.Devices, func(d plan.DeviceProfile) bool { return max(d.MatMulBF16FLOPS, d.MatMulF16FLOPS) > 0 })
	})
}

// half is what a device stores where it does not store float32, by what was measured: BF16, or F16
// where that is worth its narrow range; the zero value where neither was. now is what it stores in the
// plan in force.
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

// outruns tells whether a rate is half as fast again as another, which takes matrix units. What is
// so in the plan in force stays so for half of that: bits should not change because a measurement did.
func outruns(rate, other int64, now bool) bool {
	// Quotients: products of rates that somebody made up could overflow.
	gain := rate/4 - other/4
	return gain >= other/8 || now && gain >= other/16
}

// inForce is what is stored on each seat of the plan in force.
func (in Input) inForce() map[plan.WorkerID]model.Storage {
	now := map[plan.WorkerID]model.Storage{}
	if in.Previous == nil {
		return now
	}
	for _, pipe := range in.Previous.Replicas {
		for _, place := range pipe.Stages {
			now[place.Worker()] = place.Storage
		}
	}
	return now
}

// storesHalves has a half wherever one was measured.
func (in Input) storesHalves() storing {
	now := in.inForce()
	return func(peer plan.PeerID, d plan.DeviceProfile) model.Storage {
		return half(d, now[plan.WorkerID{Peer: peer, Device: d.Name}])
	}
}

// storesBySpeed has it where the device multiplies it faster than float32.
func (in Input) storesBySpeed() storing {
	now := in.inForce()
	return func(peer plan.PeerID, d plan.DeviceProfile) model.Storage {
		is := now[plan.WorkerID{Peer: peer, Device: d.Name}]
		if h := half(d, is); outruns(d.Products(h), d.MatMulFLOPS, is == h) {
			return h
		}
		return model.StorageF32
	}
}

// storingOf is how a plan's stages store, and float32 elsewhere.
func (in Input) storingOf(p plan.Plan) storing {
	at := map[plan.WorkerID]model.Storage{}
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			at[place.Worker()] = in.Run.Train.Storage.Of(place)
		}
	}
	return func(peer plan.PeerID, d plan.DeviceProfile) model.Storage {
		return at[plan.WorkerID{Peer: peer, Device: d.Name}]
	}
}

// storageText says why a unit's stages store as they do; empty where the run fixes it.
func (c *cluster) storageText(unit int) string {
	if !c.in.Run.Train.Storage.Auto {
		return ""
	}
	u := c.units[unit]
	if max(u.profile.MatMulBF16FLOPS, u.profile.MatMulF16FLOPS) <= 0 {
		return fmt.Sprintf(", in %v: halves were not measured", u.Storage)
	}
	why := ":"
	if (u.Storage == model.StorageF32) != (c.in.storesBySpeed()(u.peer, u.profile) == model.StorageF32) {
		why = " for its memory, although"
	}
	return fmt.Sprintf(", in %v%s it multiplies %s", u.Storage, why, productsText(u.profile))
}

// productsText tells how fast a device multiplies what was measured.
func productsText(d plan.DeviceProfile) string {
	var rates []string
	for _, s := range []model.Storage{model.StorageF16, model.StorageBF16, model.StorageF32} {
		if flops := d.Products(s); flops > 0 {
			rates = append(rates, fmt.Sprintf("%v at %d.%d GFLOP/s", s, flops/1e9, flops%1e9/1e8))
		}
	}
	return strings.Join(rates, ", ")
}

// storageLines tell of a candidate that has halves by the planner's choice what that means for
// losses.
func (c *cluster) storageLines(k *candidate) []plan.Reason {
	counts := plan.StorageCounts{}
	for _, row := range k.rows() {
		for _, at := range row {
			counts[c.units[at.Unit].Storage]++
		}
	}
	text := counts.Text()
	if text == "" || !c.in.Run.Train.Storage.Auto {
		return nil
	}
	return []plan.Reason{{Kind: plan.ReasonPrecision, Text: text + ": losses differ from those in f32 by rounding, and otherwise after a plan that has layers in another precision; parameters, gradients, their sums and checkpoints are f32 in every stage"}}
}
