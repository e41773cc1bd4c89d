package pipeline

import (
	"errors"
	"maps"
	"math"
	"sync"
	"testing"

	"pnode/planner"
)

// withCodec puts a codec on every boundary of a plan.
func withCodec(p planner.Plan, codec string) planner.Plan {
	for r := range p.Replicas {
		stages := p.Replicas[r].Stages
		for s := range stages[:len(stages)-1] {
			stages[s].Codec = codec
		}
	}
	return p
}

// uses adds up what a run's stages say of their messages.
func uses(t *testing.T, run planner.RunSpec, plan planner.Plan) (out result, use CodecUse) {
	t.Helper()
	out = result{losses: map[planner.Step]uint64{}, heldOut: map[planner.Step]uint64{}}
	var mu sync.Mutex // guards out and use
	trainWith(t, run, plan, from{&memoryKeeper{}, 0}, func(r StepResult) {
		mu.Lock()
		defer mu.Unlock()
		if r.Final {
			return
		}
		agree(t, out.losses, r.Step, false, r.Loss)
		for _, s := range r.Stages {
			use.Messages += s.Codec.Messages
			use.FellBack += s.Codec.FellBack
			use.RelError = max(use.RelError, s.Codec.RelError)
		}
	})
	return out, use
}

// TestCodecsTrain: a boundary in fewer bits costs little accuracy, and the same bits come out
// whenever the same boundary is crossed: again, in another generation, under another schedule.
func TestCodecsTrain(t *testing.T) {
	run := testRun()
	plain, exact := uses(t, run, cut(run, "1f1b", []int{0, 2, 3}))
	if exact.RelError != 0 || exact.FellBack != 0 || exact.Messages == 0 {
		t.Errorf("f32: %+v", exact)
	}
	for codec, bound := range map[string]float64{"bf16": 0.01, "int8": 0.05} {
		first, use := uses(t, run, withCodec(cut(run, "1f1b", []int{0, 2, 3}), codec))
		if use.RelError == 0 || use.RelError > bound || use.Messages != exact.Messages {
			t.Errorf("%s: %+v", codec, use)
		}
		if maps.Equal(first.losses, plain.losses) {
			t.Errorf("%s changes nothing", codec)
		}
		for step, bits := range first.losses {
			got, want := math.Float64frombits(bits), math.Float64frombits(plain.losses[step])
			if math.Abs(got-want) > 0.02*want {
				t.Errorf("%s: loss of step %d is %v, %v without", codec, step, got, want)
			}
		}
		other := withCodec(cut(run, "gpipe", []int{0, 2, 3}), codec)
		other.Generation = 9
		if again, _ := uses(t, run, other); !maps.Equal(again.losses, first.losses) {
			t.Errorf("%s: other bits under another schedule and generation", codec)
		}
	}
}

// TestEachBoundaryHasItsCodec: the last stage, whose one boundary is exact, sends nothing that
// is not.
func TestEachBoundaryHasItsCodec(t *testing.T) {
	run := testRun()
	plan := cut(run, "1f1b", []int{0, 2, 3})
	plan.Replicas[0].Stages[0].Codec = "int8"
	var mu sync.Mutex // guards inexact
	var inexact [3]float64
	trainWith(t, run, plan, from{&memoryKeeper{}, 0}, func(r StepResult) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range r.Stages {
			inexact[s.Stage] = max(inexact[s.Stage], s.Codec.RelError)
		}
	})
	if inexact[0] == 0 || inexact[1] == 0 || inexact[2] != 0 {
		t.Errorf("relative errors by stage: %v", inexact)
	}
}

func TestUnknownCodecIsRefused(t *testing.T) {
	run := testRun()
	plan := withCodec(cut(run, "1f1b", []int{0, 2}), "fp4")
	if _, err := boundaryCodecs(plan.Replicas[0]); !errors.Is(err, ErrBadConfig) {
		t.Errorf("got %v", err)
	}
}
