package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/model"
)

// StorageRule says how stages store what matrix products read: one storage for all, or, on
// auto, for each the one that suits its device. The zero value is float32 for all.
type StorageRule struct {
	auto    bool
	storage model.Storage
}

// StorageAuto has the planner choose: float32, and BF16 on devices whose profiles say that they
// multiply it faster, or where nothing would fit otherwise; F16 in its place on devices whose matrix
// units do not know BF16. A device whose products of neither anybody measured, such as the processor,
// has float32.
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

// Halves tells whether some stage may have other storage than float32.
func (r StorageRule) Halves() bool { return r.auto || r.storage != model.StorageF32 }

// always tells whether all stages have one of these.
func (r StorageRule) always(storages ...model.Storage) bool {
	return !r.auto && slices.Contains(storages, r.storage)
}

// Allows tells whether some stage may have a storage.
func (r StorageRule) Allows(s model.Storage) bool { return r.auto || r.storage == s }

// storing is how stages on a device store what products read.
type storing func(PeerID, DeviceProfile) model.Storage

// storings are the ways to store that a plan may have, the best first: of those the first is
// taken with which anything fits. A stage in halves has more per parameter, for their copies, and
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
	return []storing{in.storesBySpeed(), in.storesHalves(), always(model.StorageF32)}
}

// measuredHalves tells whether there is anything to choose between.
func (in Input) measuredHalves() bool {
	return in.HalfCosts != nil && slices.ContainsFunc(in.Members, func(m Member) bool {
		return slices.ContainsFunc(m.Profile.Devices, func(d DeviceProfile) bool { return max(d.MatMulBF16FLOPS, d.MatMulF16FLOPS) > 0 })
	})
}

// half is what a device stores where it does not store float32, by what was measured: BF16, or F16
// where that is worth its narrow range; the zero value where neither was. now is what it stores in the
// plan in force.
func (d DeviceProfile) half(now model.Storage) model.Storage {
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
func (in Input) inForce() map[Seat]model.Storage {
	now := map[Seat]model.Storage{}
	if in.Previous == nil {
		return now
	}
	for _, pipe := range in.Previous.Replicas {
		for _, place := range pipe.Stages {
			now[place.Seat()] = place.Storage
		}
	}
	return now
}

// storesHalves has a half wherever one was measured.
func (in Input) storesHalves() storing {
	now := in.inForce()
	return func(peer PeerID, d DeviceProfile) model.Storage { return d.half(now[Seat{peer, d.Name}]) }
}

// storesBySpeed has it where the device multiplies it faster than float32.
func (in Input) storesBySpeed() storing {
	now := in.inForce()
	return func(peer PeerID, d DeviceProfile) model.Storage {
		is := now[Seat{peer, d.Name}]
		if half := d.half(is); outruns(d.Products(half), d.MatMulFLOPS, is == half) {
			return half
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

// errNoHalfCosts: a stage should store halves, and nobody reckoned what that takes.
var errNoHalfCosts = errors.New("costs in halves are missing")

// storageText says why a unit's stages store as they do; empty where the run fixes it.
func (c *cluster) storageText(unit int) string {
	if !c.in.Run.Train.Storage.auto {
		return ""
	}
	u := c.units[unit]
	if max(u.profile.MatMulBF16FLOPS, u.profile.MatMulF16FLOPS) <= 0 {
		return fmt.Sprintf(", in %v: halves were not measured", u.storage)
	}
	why := ":"
	if (u.storage == model.StorageF32) != (c.in.storesBySpeed()(u.peer, u.profile) == model.StorageF32) {
		why = " for its memory, although"
	}
	return fmt.Sprintf(", in %v%s it multiplies %s", u.storage, why, u.profile.productsText())
}

// productsText tells how fast a device multiplies what was measured.
func (d DeviceProfile) productsText() string {
	var rates []string
	for _, s := range []model.Storage{model.StorageF16, model.StorageBF16, model.StorageF32} {
		if flops := d.Products(s); flops > 0 {
			rates = append(rates, fmt.Sprintf("%v at %d.%d GFLOP/s", s, flops/1e9, flops%1e9/1e8))
		}
	}
	return strings.Join(rates, ", ")
}

// storageCounts are how many stages have each storage.
type storageCounts map[model.Storage]int

// PrecisionText tells in how many stages of a plan halves were chosen; empty where they were in none.
func (p Plan) PrecisionText() string {
	counts := storageCounts{}
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			counts[place.Storage]++
		}
	}
	return counts.text()
}

func (n storageCounts) text() string {
	floats := n[model.StorageF32]
	stages := floats + n[model.StorageBF16] + n[model.StorageF16]
	var parts []string
	for _, half := range []model.Storage{model.StorageBF16, model.StorageF16} {
		switch n[half] {
		case 0:
		case stages:
			return fmt.Sprintf("%v in all stages", half)
		default:
			parts = append(parts, fmt.Sprintf("%v in %d", half, n[half]))
		}
	}
	switch {
	case parts == nil:
		return ""
	case floats == 0:
		return fmt.Sprintf("mixed precision, %s of %s", strings.Join(parts, " and "), Count(stages, "stage"))
	default:
		return fmt.Sprintf("mixed precision, %s of %s and f32 in the others", strings.Join(parts, ", "), Count(stages, "stage"))
	}
}

// storageLines tell of a candidate that has halves by the planner's choice what that means for
// losses.
func (c *cluster) storageLines(k *candidate) []Reason {
	counts := storageCounts{}
	for _, row := range k.rows() {
		for _, at := range row {
			counts[c.units[at.unit].storage]++
		}
	}
	text := counts.text()
	if text == "" || !c.in.Run.Train.Storage.auto {
		return nil
	}
	return []Reason{{Kind: Precision, Text: text + ": losses differ from those in f32 by rounding, and otherwise after a plan that has layers in another precision; parameters, gradients, their sums and checkpoints are f32 in every stage"}}
}
