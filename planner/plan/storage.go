package plan

import (
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/model"
)

// StorageRule says how stages store what matrix products read: one storage for all, or, on
// auto, for each the one that suits its device. The zero value is float32 for all.
type StorageRule struct {
	Auto    bool
	Storage model.Storage
}

// StorageAuto has the planner choose: float32, and BF16 on devices whose profiles say that they
// multiply it faster, or where nothing would fit otherwise; F16 in its place on devices whose matrix
// units do not know BF16. A device whose products of neither anybody measured, such as the processor,
// has float32.
var StorageAuto = StorageRule{Auto: true}

// autoStorage is the text of StorageAuto.
const autoStorage = "auto"

// Storage is the rule of one storage for all stages.
func Storage(s model.Storage) StorageRule { return StorageRule{Storage: s} }

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
	if r.Auto {
		return autoStorage
	}
	return r.Storage.String()
}

// MarshalText is the rule's text.
func (r StorageRule) MarshalText() ([]byte, error) {
	if r.Auto {
		return []byte(autoStorage), nil
	}
	return r.Storage.MarshalText()
}

// UnmarshalText reads a rule's text.
func (r *StorageRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseStorage(string(text))
	return err
}

// Of is the storage of a stage in its place.
func (r StorageRule) Of(p Placement) model.Storage {
	if r.Auto {
		return p.Storage
	}
	return r.Storage
}

// Rounds tells whether a stage of replica 0 of a plan, which evaluates the model, does not compute
// in float32: then the model's held-out loss is not what it is in float32 throughout.
func (r StorageRule) Rounds(p Plan) bool {
	return len(p.Replicas) > 0 && slices.ContainsFunc(p.Replicas[0].Stages, func(at Placement) bool { return r.Of(at) != model.StorageF32 })
}

// Halves tells whether some stage may have other storage than float32.
func (r StorageRule) Halves() bool { return r.Auto || r.Storage != model.StorageF32 }

// always tells whether all stages have one of these.
func (r StorageRule) Always(storages ...model.Storage) bool {
	return !r.Auto && slices.Contains(storages, r.Storage)
}

// Allows tells whether some stage may have a storage.
func (r StorageRule) Allows(s model.Storage) bool { return r.Auto || r.Storage == s }

// checkStorage wants one storage on each seat of a plan: it is its device's.
func (p Plan) checkStorage() error {
	at := map[WorkerID]model.Storage{}
	for r, pipe := range p.Replicas {
		for s, place := range pipe.Stages {
			if before, ok := at[place.Worker()]; ok && before != place.Storage {
				return fmt.Errorf("%w: replica %d stage %d stores %v, another stage on %s of %s %v: want one storage a device", ErrBadPlan, r, s, place.Storage, place.Device, place.Peer, before)
			}
			at[place.Worker()] = place.Storage
		}
	}
	return nil
}

// storageCounts are how many stages have each storage.
type StorageCounts map[model.Storage]int

// PrecisionText tells in how many stages of a plan halves were chosen; empty where they were in none.
func (p Plan) PrecisionText() string {
	counts := StorageCounts{}
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			counts[place.Storage]++
		}
	}
	return counts.Text()
}

func (n StorageCounts) Text() string {
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
