package planner

import (
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/model"
)

// StorageRule says how stages store what matrix products read: one storage for all, or, on
// auto, for each the one that suits its device. The zero value is float32 for all.
type StorageRule struct {
	auto    bool
	storage model.Storage
}

// StorageAuto has the planner choose: float32, and BF16 on devices whose profiles say that they
// multiply it faster, or where nothing would fit otherwise. A device whose products of BF16
// nobody measured, such as the processor, has float32.
var StorageAuto = StorageRule{auto: true}

// autoStorage is the text of StorageAuto.
const autoStorage = "auto"

// Storage is the rule of one storage for all stages.
func Storage(s model.Storage) StorageRule { return StorageRule{storage: s} }

// StorageRules are the texts of all rules, the usual one first.
func StorageRules() []string { return append([]string{autoStorage}, model.StorageNames()...) }

// ParseStorage reads a rule; the error wraps model.ErrBadConfig.
func ParseStorage(text string) (StorageRule, error) {
	if text == autoStorage {
		return StorageAuto, nil
	}
	storage, err := model.ParseStorage(text)
	return Storage(storage), err
}

func (r StorageRule) String() string {
	if r.auto {
		return autoStorage
	}
	return r.storage.String()
}

// MarshalText is the rule's text.
func (r StorageRule) MarshalText() ([]byte, error) {
	if r.auto {
		return []byte(autoStorage), nil
	}
	return r.storage.MarshalText()
}

// UnmarshalText reads a rule's text.
func (r *StorageRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseStorage(string(text))
	return err
}

// Of is the storage of a stage in its place.
func (r StorageRule) Of(p Placement) model.Storage {
	if r.auto {
		return p.Storage
	}
	return r.storage
}

// Rounds tells whether a stage of replica 0 of a plan, which evaluates the model, does not compute
// in float32: then the model's held-out loss is not what it is in float32 throughout.
func (r StorageRule) Rounds(p Plan) bool {
	return len(p.Replicas) > 0 && slices.ContainsFunc(p.Replicas[0].Stages, func(at Placement) bool { return r.Of(at) != model.StorageF32 })
}

// Allows tells whether some stage may have a storage.
func (r StorageRule) Allows(s model.Storage) bool { return r.auto || r.storage == s }

// storing is how stages on a device store what products read.
type storing func(PeerID, DeviceProfile) model.Storage

// storings are the ways to store that a plan may have, the best first: of those the first is
// taken with which anything fits. A stage in BF16 has more per parameter, for their copies, and
// less per micro-batch in flight.
func (in Input) storings() []storing {
	rule := in.Run.Train.Storage
	always := func(s model.Storage) storing { return func(PeerID, DeviceProfile) model.Storage { return s } }
	switch {
	case !rule.auto:
		return []storing{always(rule.storage)}
	case !in.measuredHalves():
		return []storing{always(model.StorageF32)}
	}
	return []storing{in.storesBySpeed(), storesHalves, always(model.StorageF32)}
}

// measuredHalves tells whether there is anything to choose between.
func (in Input) measuredHalves() bool {
	return in.HalfCosts != nil && slices.ContainsFunc(in.Members, func(m Member) bool {
		return slices.ContainsFunc(m.Profile.Devices, func(d DeviceProfile) bool { return d.MatMulBF16FLOPS > 0 })
	})
}

// storesHalves has BF16 wherever it was measured.
func storesHalves(_ PeerID, d DeviceProfile) model.Storage {
	if d.MatMulBF16FLOPS > 0 {
		return model.StorageBF16
	}
	return model.StorageF32
}

// storesBySpeed has BF16 on devices that multiply it half as fast again as float32, which takes
// matrix units. One that has it in the plan in force keeps it for half of that: bits should not
// change because a measurement did.
func (in Input) storesBySpeed() storing {
	now := map[Seat]bool{}
	if in.Previous != nil {
		for _, pipe := range in.Previous.Replicas {
			for _, place := range pipe.Stages {
				now[place.Seat()] = place.Storage == model.StorageBF16
			}
		}
	}
	return func(peer PeerID, d DeviceProfile) model.Storage {
		// Quotients: products of rates that somebody made up could overflow.
		if gain := d.MatMulBF16FLOPS/4 - d.MatMulFLOPS/4; gain >= d.MatMulFLOPS/8 || now[Seat{peer, d.Name}] && gain >= d.MatMulFLOPS/16 {
			return storesHalves(peer, d)
		}
		return model.StorageF32
	}
}

// storingOf is how a plan's stages store, and float32 elsewhere.
func (in Input) storingOf(p Plan) storing {
	at := map[Seat]model.Storage{}
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			at[place.Seat()] = in.Run.Train.Storage.Of(place)
		}
	}
	return func(peer PeerID, d DeviceProfile) model.Storage { return at[Seat{peer, d.Name}] }
}

// stored is the cluster in which the stages of a plan store as it says.
func (c *cluster) stored(p Plan) (*cluster, error) {
	as := c.in.storingOf(p)
	if !slices.ContainsFunc(p.Seats(), func(s Seat) bool {
		u := c.find(s.Peer, s.Device)
		return u >= 0 && c.units[u].storage != as(s.Peer, DeviceProfile{Name: s.Device})
	}) {
		return c, nil
	}
	other, err := newCluster(c.in, as)
	if err == nil {
		other.order = c.order
	}
	return other, err
}

// checkStorage wants one storage on each seat of a plan: it is its device's.
func (p Plan) checkStorage() error {
	at := map[Seat]model.Storage{}
	for r, pipe := range p.Replicas {
		for s, place := range pipe.Stages {
			if before, ok := at[place.Seat()]; ok && before != place.Storage {
				return fmt.Errorf("%w: replica %d stage %d stores %v, another stage on %s of %s %v: want one storage a device", ErrBadPlan, r, s, place.Storage, place.Device, place.Peer, before)
			}
			at[place.Seat()] = place.Storage
		}
	}
	return nil
}

// errNoHalfCosts: a stage should store BF16, and nobody reckoned what that takes.
var errNoHalfCosts = errors.New("costs in bf16 are missing")

// storageText says why a unit's stages store as they do; empty where the run fixes it.
func (c *cluster) storageText(unit int) string {
	if !c.in.Run.Train.Storage.auto {
		return ""
	}
	u := c.units[unit]
	rate := func(flops int64) string { return fmt.Sprintf("%d.%d GFLOP/s", flops/1e9, flops%1e9/1e8) }
	fast := c.in.storesBySpeed()(u.peer, u.profile) == model.StorageBF16
	switch half := u.storage == model.StorageBF16; {
	case u.profile.MatMulBF16FLOPS <= 0:
		return fmt.Sprintf(", in %v: bf16 was not measured", u.storage)
	case half == fast:
		return fmt.Sprintf(", in %v: it multiplies bf16 at %s, f32 at %s", u.storage, rate(u.profile.MatMulBF16FLOPS), rate(u.profile.MatMulFLOPS))
	default:
		return fmt.Sprintf(", in %v for its memory, although it multiplies bf16 at %s, f32 at %s", u.storage, rate(u.profile.MatMulBF16FLOPS), rate(u.profile.MatMulFLOPS))
	}
}

// PrecisionText tells in how many stages of a plan BF16 was chosen; empty where it was in none.
func (p Plan) PrecisionText() string {
	halves, stages := 0, 0
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			if stages++; place.Storage == model.StorageBF16 {
				halves++
			}
		}
	}
	return precisionText(halves, stages)
}

func precisionText(halves, stages int) string {
	switch halves {
	case 0:
		return ""
	case stages:
		return "bf16 in all stages"
	default:
		return fmt.Sprintf("mixed precision, bf16 in %d of %s and f32 in the others", halves, Count(stages, "stage"))
	}
}

// storageLines tell of a candidate that has BF16 by the planner's choice what that means for
// losses.
func (c *cluster) storageLines(k *candidate) []Reason {
	halves, stages := 0, 0
	for _, row := range k.rows() {
		for _, at := range row {
			if stages++; c.units[at.unit].storage == model.StorageBF16 {
				halves++
			}
		}
	}
	if halves == 0 || !c.in.Run.Train.Storage.auto {
		return nil
	}
	return []Reason{{Kind: Precision, Text: precisionText(halves, stages) + ": losses differ from those in f32 by rounding, and otherwise after a plan that has layers in another precision; parameters, gradients, their sums and checkpoints are f32 in every stage"}}
}
