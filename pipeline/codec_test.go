package pipeline

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// withCodec puts a codec on every boundary of a plan.
func withCodec(p plan.Plan, codec string) plan.Plan {
	for r := range p.Replicas {
		stages := p.Replicas[r].Stages
		for s := range stages[:len(stages)-1] {
			stages[s].Codec = codec
		}
	}
	return p
}

// uses adds up what a run's stages say of their messages.
func uses(t *testing.T, run plan.RunSpec, plan plan.Plan) (out result, use CodecUse) {
	t.Helper()
	out = newResult()
	var mu sync.Mutex // guards out and use
	trainWith(t, run, plan, from{&memoryKeeper{}, 0}, func(r StepResult) {
		mu.Lock()
		defer mu.Unlock()
		if r.Final {
			return
		}
		agree(t, out.losses, r.Step, false, r.Loss)
		for _, s := range r.Stages {
			use = use.Plus(s.SentForward).Plus(s.SentBack)
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
	for codec, bound := range map[string]float64{"bf16": 0.01, "int8": 0.05, "int4": 0.25} {
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
			inexact[s.Stage] = max(inexact[s.Stage], s.SentForward.Plus(s.SentBack).RelError)
		}
	})
	if inexact[0] == 0 || inexact[1] == 0 || inexact[2] != 0 {
		t.Errorf("relative errors by stage: %v", inexact)
	}
}

// TestCodecsRepeatAfterResuming: a run that comes back to its checkpoint rounds again what it
// rounded before, under another schedule and generation too.
func TestCodecsRepeatAfterResuming(t *testing.T) {
	run, bounds := testRun(), []int{0, 2, 3}
	for _, codec := range []string{"bf16", "int8", "int4"} {
		keeper := &memoryKeeper{}
		whole := train(t, run, withCodec(cut(run, "1f1b", bounds), codec), keeper)
		plan := withCodec(cut(run, "gpipe", bounds), codec)
		plan.Generation, plan.Start = 2, run.Train.CheckpointEvery
		again := train(t, run, plan, keeper)
		if len(again.losses) != int(run.Train.Steps-plan.Start) {
			t.Errorf("%s: %d steps after the checkpoint", codec, len(again.losses))
		}
		for step, bits := range again.losses {
			if bits != whole.losses[step] {
				t.Errorf("%s: other bits at step %d after resuming", codec, step)
			}
		}
	}
}

func TestUnknownCodecIsRefused(t *testing.T) {
	run := testRun()
	plan := withCodec(cut(run, "1f1b", []int{0, 2}), "fp4")
	if _, err := boundaryCodecs(plan.Replicas[0]); !errors.Is(err, ErrBadConfig) {
		t.Errorf("got %v", err)
	}
}

// TestCodecUseIsLogged: each link on which tensors are rounded has its line in the log, with
// what all the steps since the last one did.
func TestCodecUseIsLogged(t *testing.T) {
	run := testRun()
	p := cut(run, "1f1b", []int{0, 2, 3})
	p.Replicas[0].Stages[0].Codec = "int8"
	codecs, err := boundaryCodecs(p.Replicas[0])
	if err != nil {
		t.Fatal(err)
	}
	h := &StageRuntime{StageID: plan.StageID{Stage: 1}, pipe: p.Replicas[0], codecs: codecs}
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	for step := plan.Step(1); step <= 2*codecSteps; step++ {
		var times StageTimes
		times.sent(wire.Activation).add(wire.Encoded{Codec: wire.F32})
		e := wire.Encoded{Codec: wire.Int8, RelError: 0.01}
		if step == codecSteps/2 {
			e = wire.Encoded{Codec: wire.BF16, RelError: 0.002, Refused: math.NaN()}
		}
		times.sent(wire.Gradient).add(e)
		h.logCodecs(log, step, times)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want one for each %d steps:\n%s", len(lines), codecSteps, out.String())
	}
	for i, want := range []string{"step=50 replica=0 from=1 to=0", "step=100 replica=0 from=1 to=0"} {
		rest := fmt.Sprintf("codec=int8 messages=%d fell_back=%d rel_error=0.01", codecSteps, 1-i)
		if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], rest) {
			t.Errorf("line %d is %s, want %s and %s", i, lines[i], want, rest)
		}
	}
}
