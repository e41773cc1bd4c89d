package report

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
)

// plans answers with so many devices and a step of so many milliseconds for each set of settings.
type plans struct {
	tried []plan.TrainSpec
	of    func(plan.TrainSpec) (devices int, ms int64, err error)
}

func (p *plans) plan(_ context.Context, run plan.RunSpec) (planner.Details, error) {
	p.tried = append(p.tried, run.Train)
	n, ms, err := p.of(run.Train)
	return planner.Details{Devices: make([]planner.DeviceDetails, n), Step: schedule.Nanos(ms * 1e6)}, err
}

// base is a plan on one device of four, in 100 ms.
func base(used int) planner.Details {
	return planner.Details{Devices: make([]planner.DeviceDetails, used), All: 4, Step: 100e6, SumGroups: 8}
}

func flagsOf(all []Variant) (flags []string) {
	for _, v := range all {
		flags = append(flags, v.Flags)
	}
	return flags
}

// TestVariantsUseMoreDevices and are quicker by the token; what changes less comes first.
func TestVariantsUseMoreDevices(t *testing.T) {
	int8 := plan.OneCodec(plan.CodecInt8)
	for _, c := range []struct {
		name string
		used int
		of   func(plan.TrainSpec) (int, int64, error)
		want []string
	}{
		{"nothing uses more", 1, func(t plan.TrainSpec) (int, int64, error) { return 1, 10 * int64(t.Micros) / 8, nil }, nil},
		{"more devices, and slower", 1, func(t plan.TrainSpec) (int, int64, error) { return 4, 105 * int64(t.Micros*t.MicroBatch) / 32, nil }, nil},
		{"nothing fits", 1, func(plan.TrainSpec) (int, int64, error) { return 0, 0, planner.ErrNoFit }, nil},
		{"a codec is enough", 1, func(t plan.TrainSpec) (int, int64, error) {
			if t.Codec == int8 {
				return 2, 50 * int64(t.Micros*t.MicroBatch) / 32, nil
			}
			return 1, 100 * int64(t.Micros*t.MicroBatch) / 32, nil
		}, []string{"--codec int8"}},
		{"each more is better", 1, func(t plan.TrainSpec) (int, int64, error) {
			ms := 50 + int64(t.Micros*t.MicroBatch)
			if t.Codec == int8 {
				ms = ms * 3 / 4
			}
			return 3, ms, nil
		}, []string{"--codec int8", "--micros 64", "--micros 64 --codec int8"}},
		{"smaller micro-batches keep the batch", 1, func(t plan.TrainSpec) (int, int64, error) {
			if t.MicroBatch == 1 {
				return 4, 40, nil
			}
			return 1, 100 * int64(t.Micros) / 8, nil
		}, []string{"--micro-batch 1 --micros 32"}},
		{"all are used, lines limit", 4, func(t plan.TrainSpec) (int, int64, error) {
			if t.Codec == int8 {
				return 4, 80 * int64(t.Micros*t.MicroBatch) / 32, nil
			}
			return 4, 100 * int64(t.Micros*t.MicroBatch) / 32, nil
		}, []string{"--codec int8"}},
	} {
		p := &plans{of: c.of}
		got, tried, err := Variants(t.Context(), run(t), base(c.used), p.plan)
		if err != nil || tried != len(p.tried) || tried < 6 || tried > 9 || len(got) > mostVariants {
			t.Errorf("%s: %d of %d tried: %v", c.name, tried, len(p.tried), err)
		}
		if c.name == "each more is better" {
			if len(got) != 3 || !strings.HasPrefix(got[0].Flags, "--micro") && got[0].BatchFactor != 1 || got[2].Flags != c.want[2] || got[2].Factor < 3 || !got[2].Lossy || got[2].BatchFactor != 8 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		if !slices.Equal(flagsOf(got), c.want) {
			t.Errorf("%s: %v, want %v", c.name, flagsOf(got), c.want)
		}
	}
}

// TestTheOtherSyncIsNamed where it is worth a word: local steps that are clearly quicker, and every-step where it is as fast.
func TestTheOtherSyncIsNamed(t *testing.T) {
	const local, together = "--sync local", "--sync every-step"
	for _, c := range []struct {
		name   string
		change func(*plan.TrainSpec)
		all    int
		ms     int64 // of a step with the other rule; 100 now
		alone  bool  // the plan with local steps has one replica
		want   string
		tried  bool
	}{
		{name: "local is quicker", all: 4, ms: 50, want: local, tried: true},
		{name: "local is hardly quicker", all: 4, ms: 97, tried: true},
		{name: "one replica is best", all: 4, ms: 50, alone: true, tried: true},
		{name: "one device", all: 1, ms: 50},
		{name: "one replica is asked for", change: func(t *plan.TrainSpec) { t.Replicas = 1 }, all: 4, ms: 50},
		{name: "parts are asked for", change: func(t *plan.TrainSpec) { t.Shard = plan.ShardOn }, all: 4, ms: 50},
		{name: "one micro-batch", change: func(t *plan.TrainSpec) { t.Micros = 1 }, all: 4, ms: 50},
		{name: "every-step is as fast", change: func(t *plan.TrainSpec) { t.Sync.Local = true }, all: 4, ms: 102, want: together, tried: true},
		{name: "every-step is slower", change: func(t *plan.TrainSpec) { t.Sync.Local = true }, all: 4, ms: 110, tried: true},
		{name: "one replica has no local steps", change: func(t *plan.TrainSpec) { t.Sync.Local = true }, alone: true, all: 4, ms: 100},
	} {
		spec, now := run(t), base(4)
		if c.change != nil {
			c.change(&spec.Train)
		}
		rounds := &plan.Local{Rounds: plan.Rounds{Every: 20}}
		if now.All = c.all; spec.Train.Sync.Local && !c.alone {
			now.Plan.Local = rounds
		}
		v, tried, err := otherSync(t.Context(), spec, now, func(_ context.Context, other plan.RunSpec) (d planner.Details, err error) {
			if other.Train.Sync.Local == spec.Train.Sync.Local {
				t.Errorf("%s: %v is tried", c.name, other.Train.Sync)
			}
			if d.Step = schedule.Nanos(c.ms * 1e6); other.Train.Sync.Local && !c.alone {
				d.Plan.Local = rounds
			}
			return d, nil
		})
		if err != nil || v.Flags != c.want || tried != c.tried || v.Lossy != (c.want == local) || (v.Every == 20) != (c.want == local) {
			t.Errorf("%s: %+v, tried: %t (%v)", c.name, v, tried, err)
		}
	}
}

func TestAfterWarmup(t *testing.T) {
	spec := run(t)
	spec.Train.Steps, spec.Train.Sync = 600, plan.SyncRule{Local: true, WarmupPercent: 10}
	make := func(_ context.Context, run plan.RunSpec) (planner.Details, error) {
		if run.Train.Sync != (plan.SyncRule{Local: true}) {
			t.Errorf("planned with %v", run.Train.Sync)
		}
		return planner.Details{Plan: plan.Plan{Local: &plan.Local{Rounds: plan.Rounds{Every: 20}, Codec: "int8"}}, Replicas: 2, Stages: 1, Step: 100e6}, nil
	}
	got, err := AfterWarmup(t.Context(), spec, make)
	if want := "the first 60 steps add gradients in each, to warm up; then the plan has 2 replicas of 1 stage with "; err != nil || !strings.HasPrefix(got, want) || !strings.HasSuffix(got, " tokens/s, which meet every 20 steps and send int8") {
		t.Errorf("%q, %v", got, err)
	}
	spec.Train.Sync.WarmupPercent = 0
	if got, err := AfterWarmup(t.Context(), spec, make); err != nil || got != "" {
		t.Errorf("without one: %q, %v", got, err)
	}
}

// TestTriesAreBounded by count: fewer of many devices. They differ from each other, and leave out what the run has.
func TestTriesAreBounded(t *testing.T) {
	for _, c := range []struct{ devices, most int }{{1, 9}, {4, 9}, {16, 8}, {64, leastTries}, {1000, leastTries}} {
		spec, of := run(t), base(1)
		of.All = c.devices
		all := changes(spec.Train, of)
		if len(all) > c.most || len(all) < 3 {
			t.Errorf("%d devices: %d tries", c.devices, len(all))
		}
		seen := map[string]bool{}
		for _, ch := range all {
			if seen[ch.flags] {
				t.Errorf("%s twice", ch.flags)
			}
			seen[ch.flags] = true
			if strings.Contains(ch.flags, "int8") && c.devices == 1 {
				t.Errorf("one device tries %s", ch.flags)
			}
		}
	}
	fixed := run(t)
	fixed.Train.Replicas, fixed.Train.Schedule, fixed.Train.Shard = 2, "gpipe", plan.ShardOff
	fixed.Train.Codec = plan.OneCodec(plan.CodecInt8)
	all := changes(fixed.Train, base(1))
	if want := "--replicas auto --schedule auto --shard auto"; all[0].flags != want {
		t.Errorf("the first try is %s, want %s", all[0].flags, want)
	}
	all[0].apply(&fixed.Train)
	if fixed.Train.Replicas != 0 || fixed.Train.Schedule != "" || fixed.Train.Shard != plan.ShardAuto {
		t.Errorf("%+v", fixed.Train)
	}
	for _, c := range all {
		if strings.Contains(c.flags, "codec") {
			t.Errorf("a run with int8 tries %s", c.flags)
		}
	}
}

// TestFittingFindsFlags with which a run has room, the least change of those.
func TestFittingFindsFlags(t *testing.T) {
	for _, c := range []struct {
		want string
		fits func(plan.TrainSpec) bool
	}{
		{"", func(plan.TrainSpec) bool { return false }},
		{"--micro-batch 1 --micros 32", func(t plan.TrainSpec) bool { return t.MicroBatch == 1 }},
		{"--sum-groups 1", func(t plan.TrainSpec) bool { return t.SumGroups == 1 }},
		{"--micro-batch 1 --micros 32 --sum-groups 1", func(t plan.TrainSpec) bool { return t.SumGroups == 1 && t.MicroBatch == 1 }},
		{"--stages auto", func(t plan.TrainSpec) bool { return t.Stages == 0 }},
	} {
		spec := run(t)
		spec.Train.Stages = 2
		p := &plans{of: func(t plan.TrainSpec) (int, int64, error) {
			if !c.fits(t) {
				return 0, 0, planner.ErrNoFit
			}
			return 1, 1, nil
		}}
		if got, err := Fitting(t.Context(), spec, p.plan); err != nil || got != c.want {
			t.Errorf("%q, %v: want %q", got, err, c.want)
		}
	}
}

// TestTriesEndWithTheirContext and say at what.
func TestTriesEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &plans{of: func(plan.TrainSpec) (int, int64, error) { cancel(); return 0, 0, context.Canceled }}
	if _, _, err := Variants(ctx, run(t), base(1), p.plan); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "try --codec int8") || len(p.tried) != 1 {
		t.Errorf("after %d tries: %v", len(p.tried), err)
	}
	if _, err := Fitting(ctx, run(t), p.plan); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
