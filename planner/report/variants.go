package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"pnode/planner"
	"pnode/planner/plan"
)

// Variant is a run with other settings on the same members.
type Variant struct {
	// Flags replace those of the run.
	Flags string `json:"flags"`
	// TokensPerS is Factor times as many as without them, on Devices devices.
	TokensPerS float64 `json:"tokens_per_s"`
	Factor     float64 `json:"factor"`
	Devices    int     `json:"devices"`
	// BatchFactor is how many times the tokens a step has.
	BatchFactor int `json:"batch_factor"`
	// Lossy reports that losses change a little, because messages are rounded or replicas make local steps.
	Lossy bool `json:"lossy"`
	// Every counts the steps after which replicas with local steps meet; 0 for those that come together in each.
	Every int64 `json:"every,omitempty"`
}

// Planner makes the plan of a run with other settings on the same members.
type Planner func(context.Context, plan.RunSpec) (planner.Details, error)

const (
	// mostVariants are reported, a variant that makes tokens gainPercent quicker at least.
	mostVariants = 3
	gainPercent  = 5
	// mostMicros bounds the micro-batches that are tried.
	mostMicros = 4096
	// fewMicros are tried with 4 and 16 times as many, more with 2 and 8 times.
	fewMicros = 4
	// mostParts is into how many a micro-batch is cut.
	mostParts = 8
	// deviceTries bounds the work: so many devices are planned with in all tries together, though leastTries of them
	// are made.
	deviceTries = 128
	leastTries  = 6
)

// change is a setting that is tried.
type change struct {
	flags string
	apply func(*plan.TrainSpec)
	batch int
	lossy bool
}

// and returns both changes as one.
func (c change) and(d change) change {
	return change{
		flags: c.flags + " " + d.flags, batch: c.batch * d.batch, lossy: c.lossy || d.lossy,
		apply: func(t *plan.TrainSpec) { c.apply(t); d.apply(t) },
	}
}

// Variants plans a run with other settings and returns the ones that use more devices than its plan does, or as many
// where it has all, and train on clearly more tokens a second. Of several like that it takes the one that changes
// least, the quickest, and one in between, and says in any case what local steps would bring: see otherSync. How many it tried depends
// on the run and the number of devices alone. The error is ctx's.
func Variants(ctx context.Context, run plan.RunSpec, base planner.Details, again Planner) (best []Variant, tried int, err error) {
	now, used := tokensPerS(run, base.Step), len(base.Devices)
	var found []Variant
	all := changes(run.Train, base)
	for _, c := range all {
		other := run
		c.apply(&other.Train)
		d, err := again(ctx, other)
		if ctx.Err() != nil {
			return nil, 0, fmt.Errorf("try %s: %w", c.flags, context.Cause(ctx))
		}
		if err != nil || len(d.Devices) < used || len(d.Devices) == used && used < base.All {
			continue // other settings may not fit
		}
		v := Variant{Flags: c.flags, TokensPerS: tokensPerS(other, d.Step), Devices: len(d.Devices), BatchFactor: c.batch, Lossy: c.lossy}
		v.Factor = v.TokensPerS / now
		found = append(found, v)
	}
	best, tried = fewest(found), len(all)
	other, ok, err := otherSync(ctx, run, base, again)
	if err != nil || !ok {
		return best, tried, err
	}
	if other.Flags != "" {
		best = append(best, other)
	}
	return best, tried + 1, nil
}

// everyStepPercent is how much of the tokens a second of local steps every-step has to reach to be worth a word: its losses are better.
const everyStepPercent = 97

// otherSync plans a run that adds gradients in every step with local steps, and one with local steps without, where there may be several
// replicas. The variant has no flags where that is not worth a word: local steps have to be clearly quicker.
func otherSync(ctx context.Context, run plan.RunSpec, base planner.Details, again Planner) (v Variant, tried bool, err error) {
	t := &run.Train
	now, local := tokensPerS(run, base.Step), !t.Sync.Local
	switch {
	case local && (t.Shard == plan.ShardOn || t.Replicas == 1 || t.Sums().Groups < 2 || base.All < 2):
		return v, false, nil
	case !local && base.Plan.Local == nil:
		return v, false, nil
	}
	rule := plan.SyncRule{Local: local}
	t.Sync = rule
	d, err := again(ctx, run)
	if ctx.Err() != nil {
		return v, false, fmt.Errorf("try --sync %v: %w", rule, context.Cause(ctx))
	}
	least := float64(100 + gainPercent)
	if !local {
		least = everyStepPercent
	}
	if err != nil || local && d.Plan.Local == nil || tokensPerS(run, d.Step)*100 < now*least {
		return v, true, nil
	}
	v = Variant{Flags: "--sync " + rule.String(), TokensPerS: tokensPerS(run, d.Step), Devices: len(d.Devices), BatchFactor: 1, Lossy: local}
	v.Factor = v.TokensPerS / now
	if local {
		v.Every = int64(d.Plan.Local.Every)
	}
	return v, true, nil
}

// Fitting returns the flags under which a run fits that does not fit as it is, empty where no change that is tried
// does it. The error is ctx's.
func Fitting(ctx context.Context, run plan.RunSpec, again Planner) (flags string, err error) {
	t := run.Train
	one := change{"--sum-groups 1", func(t *plan.TrainSpec) { t.SumGroups = 1 }, 1, false}
	tries := []change{one}
	if t.MicroBatch > 1 && t.Micros*t.MicroBatch <= mostMicros {
		small := smaller(t, t.MicroBatch)
		tries = []change{small, one, small.and(one)}
	}
	if forced := freed(t); forced != nil {
		tries = append([]change{*forced}, tries...)
	}
	for _, c := range tries {
		other := run
		c.apply(&other.Train)
		_, err := again(ctx, other)
		if ctx.Err() != nil {
			return "", fmt.Errorf("try %s: %w", c.flags, context.Cause(ctx))
		}
		if err == nil {
			return c.flags, nil
		}
	}
	return "", nil
}

// changes lists what is tried, what mostly helps first.
func changes(t plan.TrainSpec, base planner.Details) (all []change) {
	if c := freed(t); c != nil {
		all = append(all, *c)
	}
	var sizes []change
	if parts := min(t.MicroBatch, mostParts); parts > 1 && t.MicroBatch%parts == 0 && t.Micros*parts <= mostMicros {
		sizes = append(sizes, smaller(t, parts))
	}
	ladder := []int{8, 2}
	if t.Micros <= fewMicros {
		ladder = []int{16, 4}
	}
	for _, times := range ladder {
		if t.Micros*times <= mostMicros {
			sizes = append(sizes, more(t, times))
		}
	}
	narrow := change{"--codec int8", func(t *plan.TrainSpec) { t.Codec = plan.OneCodec(plan.CodecInt8) }, 1, true}
	if _, narrowest := t.Codec.Bounds(); narrowest < plan.CodecInt8 && base.All > 1 {
		all = append(all, narrow)
		for _, size := range sizes {
			all = append(all, size, size.and(narrow))
		}
	} else {
		all = append(all, sizes...)
	}
	if n := min(t.Micros, base.All); base.SumGroups < n {
		all = append(all, change{fmt.Sprintf("--sum-groups %d", n), func(t *plan.TrainSpec) { t.SumGroups = n }, 1, false})
	}
	return all[:min(len(all), max(leastTries, deviceTries/max(base.All, 1)))]
}

// smaller cuts micro-batches into so many parts: the step has the same tokens.
func smaller(t plan.TrainSpec, parts int) change {
	size, micros := t.MicroBatch/parts, t.Micros*parts
	return change{fmt.Sprintf("--micro-batch %d --micros %d", size, micros), func(t *plan.TrainSpec) { t.MicroBatch, t.Micros = size, micros }, 1, false}
}

// more takes so many times the micro-batches.
func more(t plan.TrainSpec, times int) change {
	micros := t.Micros * times
	return change{fmt.Sprintf("--micros %d", micros), func(t *plan.TrainSpec) { t.Micros = micros }, times, false}
}

// freed leaves to the planner what a run fixes of the cut and of memory, nil where it fixes nothing.
func freed(t plan.TrainSpec) *change {
	var flags []string
	if t.Replicas > 0 {
		flags = append(flags, "--replicas auto")
	}
	if t.Stages > 0 {
		flags = append(flags, "--stages auto")
	}
	if t.Schedule != "" {
		flags = append(flags, "--schedule auto")
	}
	if _, fixed := t.Recompute.Level(); fixed {
		flags = append(flags, "--recompute auto")
	}
	if t.Shard == plan.ShardOff {
		flags = append(flags, "--shard auto")
	}
	if len(flags) == 0 {
		return nil
	}
	return &change{strings.Join(flags, " "), func(t *plan.TrainSpec) {
		t.Replicas, t.Stages, t.Schedule, t.Recompute, t.Shard = 0, 0, "", plan.RecomputeRule{}, plan.ShardAuto
	}, 1, false}
}

// fewest drops variants that gain little over ones that change less, and all but mostVariants.
func fewest(found []Variant) (out []Variant) {
	slices.SortStableFunc(found, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(a.BatchFactor, b.BatchFactor), cmp.Compare(lossy(a), lossy(b)), cmp.Compare(len(a.Flags), len(b.Flags)), cmp.Compare(b.Factor, a.Factor))
	})
	best := 1.0
	for _, v := range found {
		if v.Factor*100 >= best*(100+gainPercent) {
			out, best = append(out, v), v.Factor
		}
	}
	if len(out) > mostVariants {
		out = []Variant{out[0], out[len(out)/2], out[len(out)-1]}
	}
	return out
}

func lossy(v Variant) int {
	if v.Lossy {
		return 1
	}
	return 0
}

// text says what a variant brings and what it costs.
func (v Variant) text() string {
	digits := 1
	if v.Factor < 2 {
		digits = 2
	}
	text := fmt.Sprintf("%.*fx tokens/s (%s) on %s", digits, v.Factor, rate(v.TokensPerS), plan.Count(v.Devices, "device"))
	if v.BatchFactor > 1 {
		text += fmt.Sprintf("; %d times the batch", v.BatchFactor)
	}
	if v.Every > 0 {
		text += fmt.Sprintf(", whose replicas meet every %s", plan.Count(int(v.Every), "step"))
	}
	switch {
	case v.Lossy:
		text += "; losses change a little"
	case v.Flags == "--sync "+plan.SyncRule{}.String():
		text += "; losses are those of one machine"
	}
	return text
}
