package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/model"
)

// RecomputeRule says what blocks drop after the forward pass and recompute for the backward pass:
// less memory and more time for losses that are the same to the bit. The zero value lets the planner
// choose for each layer, from the memory of its device.
type RecomputeRule struct {
	fixed bool
	level model.Recompute
}

// auto is the text of the rules that leave a choice to the planner.
const auto = "auto"

// Recompute returns the rule of one level for all layers.
func Recompute(level model.Recompute) RecomputeRule { return RecomputeRule{true, level} }

// RecomputeRules returns the texts of all rules, the default first.
func RecomputeRules() []string { return append([]string{auto}, model.RecomputeNames()...) }

// ParseRecompute reads a rule; the error wraps model.ErrBadConfig.
func ParseRecompute(text string) (RecomputeRule, error) {
	if text == auto {
		return RecomputeRule{}, nil
	}
	level, err := model.ParseRecompute(text)
	return Recompute(level), err
}

// Level returns the level of all layers; not ok where the planner chooses.
func (r RecomputeRule) Level() (level model.Recompute, ok bool) { return r.level, r.fixed }

func (r RecomputeRule) String() string {
	if !r.fixed {
		return auto
	}
	return r.level.String()
}

// MarshalText returns the rule's text.
func (r RecomputeRule) MarshalText() ([]byte, error) {
	if !r.fixed {
		return []byte(auto), nil
	}
	return r.level.MarshalText()
}

// UnmarshalText reads a rule's text.
func (r *RecomputeRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRecompute(string(text))
	return err
}

// Of returns by layer of a valid placement what the stage recomputes.
func (r RecomputeRule) Of(p Placement) []model.Recompute {
	if r.fixed {
		return r.level.Uniform(p.Layers.Len())
	}
	levels, err := p.Recompute.Expand(p.Layers.Len())
	if err != nil {
		panic("planner: a placement that was not validated: " + err.Error())
	}
	return levels
}

// Levels are a stage's levels of recomputation by layer as text: runs of like layers joined
// by +, for example `block*2+outputs*9+none`. Empty is none for all.
type Levels string

// JoinLevels returns the text of levels.
func JoinLevels(levels []model.Recompute) Levels {
	if !slices.ContainsFunc(levels, func(l model.Recompute) bool { return l != model.RecomputeNothing }) {
		return ""
	}
	var b []byte
	for from := 0; from < len(levels); {
		end := from + 1
		for end < len(levels) && levels[end] == levels[from] {
			end++
		}
		if from > 0 {
			b = append(b, '+')
		}
		b = append(b, levels[from].String()...)
		if end-from > 1 {
			b = strconv.AppendInt(append(b, '*'), int64(end-from), 10)
		}
		from = end
	}
	return Levels(b)
}

// Expand returns the levels of a stage of that many layers. It accepts only what JoinLevels
// writes; errors wrap ErrBadPlan.
func (l Levels) Expand(layers int) ([]model.Recompute, error) {
	bad := func() ([]model.Recompute, error) {
		return nil, fmt.Errorf("%w: %.60q is not what %d layers recompute: want for example block*2+none", ErrBadPlan, string(l), layers)
	}
	if l == "" {
		return model.RecomputeNothing.Uniform(layers), nil
	}
	levels := make([]model.Recompute, 0, layers)
	for part := range strings.SplitSeq(string(l), "+") {
		name, times, repeated := strings.Cut(part, "*")
		level, err := model.ParseRecompute(name)
		n := 1
		if repeated && err == nil {
			n, err = strconv.Atoi(times)
		}
		if err != nil || n < 1 || n > layers-len(levels) {
			return bad()
		}
		levels = append(levels, level.Uniform(n)...)
	}
	if len(levels) != layers || JoinLevels(levels) != l {
		return bad()
	}
	return levels, nil
}

// ShardRule says whether the replicas hold the optimizer state of layers in parts, each
// replica one, for losses that are the same to the bit (ZeRO's first stage, Rajbhandari et al.
// 2020). A step's traffic is the same: in place of summed gradients the replicas exchange
// updated parameters. A checkpoint costs as much traffic as a step, to bring the parts
// together. The zero value lets the planner choose.
type ShardRule uint8

// The rules.
const (
	// ShardAuto shards the stages whose memory would keep a plan from fitting, or from the
	// step time that it has with the room.
	ShardAuto ShardRule = iota
	// ShardOn shards all layers where there are several replicas.
	ShardOn
	// ShardOff has every replica hold all.
	ShardOff
	shardRules
)

var shardNames = [shardRules]string{"auto", "on", "off"}

func (r ShardRule) String() string {
	if r >= shardRules {
		return "invalid"
	}
	return shardNames[r]
}

// ShardRules returns the texts of all rules, the default first.
func ShardRules() []string { return shardNames[:] }

// ParseShard reads a rule; the error wraps ErrBadInput.
func ParseShard(text string) (ShardRule, error) {
	for i, name := range shardNames {
		if name == text {
			return ShardRule(i), nil
		}
	}
	return 0, fmt.Errorf("%w: shard is %q: want one of %s", ErrBadInput, text, strings.Join(shardNames[:], ", "))
}

// MarshalText returns the rule's text.
func (r ShardRule) MarshalText() ([]byte, error) {
	if r >= shardRules {
		return nil, fmt.Errorf("%w: shard is %d: take a rule from %d to %d", ErrBadInput, uint8(r), ShardAuto, shardRules-1)
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads a rule's text.
func (r *ShardRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseShard(string(text))
	return err
}

// StorageRule says in which precision stages store what matrix products read: a given one or, on auto, the one that suits
// the devices that the run begins with. The zero value is float32.
type StorageRule struct {
	Auto    bool
	Storage model.Storage
}

// StorageAuto has the run's first plan choose: float32, and BF16 where the profiles say that the devices multiply it
// faster together, or where nothing would fit otherwise; F16 in its place where matrix units do not know BF16. Later plans
// keep that. Processors without measured products of either have float32.
var StorageAuto = StorageRule{Auto: true}

// Storage returns the rule of one storage for all stages.
func Storage(s model.Storage) StorageRule { return StorageRule{Storage: s} }

// StorageRules returns the texts of all rules, the usual one first.
func StorageRules() []string { return append([]string{auto}, model.StorageNames()...) }

// ParseStorage reads a rule; the error wraps model.ErrBadConfig.
func ParseStorage(text string) (StorageRule, error) {
	if text == auto {
		return StorageAuto, nil
	}
	storage, err := model.ParseStorage(text)
	return Storage(storage), err
}

func (r StorageRule) String() string {
	if r.Auto {
		return auto
	}
	return r.Storage.String()
}

// MarshalText returns the rule's text.
func (r StorageRule) MarshalText() ([]byte, error) {
	if r.Auto {
		return []byte(auto), nil
	}
	return r.Storage.MarshalText()
}

// UnmarshalText reads a rule's text.
func (r *StorageRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseStorage(string(text))
	return err
}

// Of returns the storage of a stage in its place.
func (r StorageRule) Of(p Placement) model.Storage {
	if r.Auto {
		return p.Storage
	}
	return r.Storage
}

// Rounds reports whether a stage of replica 0 of a plan, which evaluates the model, does not compute
// in float32: then the model's held-out loss differs from that of float32 throughout.
func (r StorageRule) Rounds(p Plan) bool {
	return len(p.Replicas) > 0 && slices.ContainsFunc(p.Replicas[0].Stages, func(at Placement) bool { return r.Of(at) != model.StorageF32 })
}

// Halves reports whether some stage may have other storage than float32.
func (r StorageRule) Halves() bool { return r.Auto || r.Storage != model.StorageF32 }

// Always reports whether all stages have one of these.
func (r StorageRule) Always(storages ...model.Storage) bool {
	return !r.Auto && slices.Contains(storages, r.Storage)
}

// Allows reports whether some stage may have a storage.
func (r StorageRule) Allows(s model.Storage) bool { return r.Auto || r.Storage == s }

// OneStorage returns an error unless all stages have one storage, as the plans of a run have.
func (p Plan) OneStorage() error {
	for r, pipe := range p.Replicas {
		for s, place := range pipe.Stages {
			if place.Storage != p.Storage() {
				return fmt.Errorf("%w: replica %d stage %d stores %v, the first stage %v: want one storage", ErrBadPlan, r, s, place.Storage, p.Storage())
			}
		}
	}
	return nil
}

// checkCodec returns an error unless all boundaries have the plan's codec, where it has one.
func (p Plan) checkCodec() error {
	if p.Codec == "" {
		return nil
	}
	if _, err := ParseCodec(p.Codec); err != nil {
		return fmt.Errorf("%w: %w", ErrBadPlan, err)
	}
	for r, pipe := range p.Replicas {
		for s, place := range pipe.Stages[:max(0, len(pipe.Stages)-1)] {
			if place.Codec != p.Codec {
				return fmt.Errorf("%w: replica %d boundary %d sends %q, the plan has %q for all", ErrBadPlan, r, s, place.Codec, p.Codec)
			}
		}
	}
	return nil
}

// PrecisionText says which halves were chosen for a plan; empty for none.
func (p Plan) PrecisionText() string {
	if s := p.Storage(); s != model.StorageF32 {
		return fmt.Sprintf("%v in all stages", s)
	}
	return ""
}
