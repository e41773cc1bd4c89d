package nanogpt

import (
	"errors"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// TestPublishedSteps wants both steps that the contest has published within 1%.
func TestPublishedSteps(t *testing.T) {
	for _, e := range Entries() {
		got, err := e.Step()
		if err != nil {
			t.Fatal(err)
		}
		off := float64(got)/float64(e.Published) - 1
		t.Logf("%s: %.3f s, published %.3f: %+.2f%%", e.Name, float64(got)/1e9, float64(e.Published)/1e9, 100*off)
		if off < -0.01 || off > 0.01 {
			t.Errorf("%s takes %v ns, published are %v: %+.2f%%", e.Name, got, e.Published, 100*off)
		}
	}
}

// TestModelFits wants no more parameters than the contest allows.
func TestModelFits(t *testing.T) {
	all := int64(0)
	for _, c := range Model(4*Channels).Costs(1, model.StorageF32) {
		all += c.ParamBytes / 4
	}
	// The contest's model has a norm after the embedding and a bias of the head besides.
	if want := int64(ParameterLimit - Channels - 50304); all != want {
		t.Errorf("%d parameters, want %d", all, want)
	}
}

// TestWireTakesOneMessageAtATime works two stages and three micro-batches out by hand.
func TestWireTakesOneMessageAtATime(t *testing.T) {
	s, err := schedule.GPipe(schedule.Shape{Stages: 2, Micros: 3})
	if err != nil {
		t.Fatal(err)
	}
	times := []schedule.StageTime{{Forward: 1, Input: 1, Weight: 1}, {Forward: 2, Input: 2, Weight: 2}}
	// Activations are made at 1, 2 and 3 and arrive at 11, 21 and 31. Stage 1 ends its forwards at 33 and its backwards at 37, 41 and 45,
	// whose gradients arrive at 47, 57 and 67.
	if got, err := Step(s, times, 10); err != nil || got != 69 {
		t.Errorf("a step takes %d (%v), want 69", got, err)
	}
	// In between one wire takes what comes from both sides: three stages, one micro-batch.
	s, err = schedule.GPipe(schedule.Shape{Stages: 3, Micros: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Step(s, make([]schedule.StageTime, 3), 10); err != nil || got != 40 || Bound(3, 1, 10) != 40 {
		t.Errorf("a step takes %d (%v), want 40, bound %d", got, err, Bound(3, 1, 10))
	}
}

// TestNoScheduleBeatsTheBound tries every schedule, and finds 1F1B at the bound where passes take no time.
func TestNoScheduleBeatsTheBound(t *testing.T) {
	names := Schedules()
	if !slices.Contains(names, Plain) || !slices.Contains(names, "zb-h1") || slices.Contains(names, "chimera") || slices.Contains(names, "zb-v") {
		t.Fatalf("schedules are %v", names)
	}
	for _, name := range names {
		for _, codec := range []plan.Codec{plan.CodecF32, plan.CodecInt8} {
			got, err := Try(codec, name, 16)
			if err != nil {
				t.Fatal(err)
			}
			if got.Step < got.Bound {
				t.Errorf("%s in %s takes %d ns, no schedule takes less than %d", name, codec, got.Step, got.Bound)
			}
		}
	}
	for _, micros := range []int{1, 8, 64} {
		s, err := build(Plain, micros)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Step(s, make([]schedule.StageTime, Stages), 7); micros >= Stages && (err != nil || got != Bound(Stages, micros, 7)) {
			t.Errorf("%d micro-batches take %d (%v), want %d", micros, got, err, Bound(Stages, micros, 7))
		}
	}
}

func TestRefused(t *testing.T) {
	for _, n := range []int{0, -8, 3, 1024} {
		if _, err := Try(plan.CodecBF16, Plain, n); err == nil {
			t.Errorf("micro-batches of %d sequences are accepted", n)
		}
	}
	if _, err := Try(plan.CodecBF16, "nonsense", 8); !errors.Is(err, schedule.ErrBadSpec) {
		t.Error(err)
	}
	if _, err := Try(plan.CodecBF16, "zb-v", 8); err == nil {
		t.Error("a schedule of two stages a worker is accepted")
	}
	s, err := schedule.GPipe(schedule.Shape{Stages: 2, Micros: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Step(s, make([]schedule.StageTime, 3), 1); !errors.Is(err, ErrStuck) {
		t.Error(err)
	}
	slices.Reverse(s.Workers[0]) // the backward before its forward
	if _, err := Step(s, make([]schedule.StageTime, 2), 1); !errors.Is(err, ErrStuck) {
		t.Error(err)
	}
}
