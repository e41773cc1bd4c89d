package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// halved runs evaluate before each step and at the end, with parameters that checkpoints hold.
func halved(run plan.RunSpec) plan.RunSpec {
	run.Train.Storage = plan.Storage(model.StorageBF16)
	run.Train.HeldOutEvery, run.Train.CheckpointEvery, run.Train.Steps = 1, 1, 3
	if testing.Short() {
		run.Train.Steps = 2
	}
	return run
}

// measuredInFloats are the held-out losses that a run of one stage in float32 finds for the
// parameters that another has saved after each step.
func measuredInFloats(t *testing.T, run plan.RunSpec, keeper *memoryKeeper, as func(kernels.Device) kernels.Device) map[plan.Step]uint64 {
	t.Helper()
	run.Train.Storage = plan.StorageRule{}
	found := map[plan.Step]uint64{}
	last := run.Train.Steps
	for start := range last + 1 {
		p := cut(run, "1f1b", []int{0})
		p.Start, p.Generation = start, 2
		run.Train.Steps = min(start+1, last)
		saved := map[plan.Step]map[int][]byte{start: keeper.layers[start]}
		r := trainAs(t, run, p, &memoryKeeper{layers: saved}, as)
		at := start + 1
		if start == last { // the closing evaluation
			at = last + 1<<32
		}
		found[at] = r.heldOut[at]
		if len(r.floats) > 0 {
			t.Errorf("a run in float32 throughout measures %d times what others cost", len(r.floats))
		}
	}
	return found
}

func asItIs(d kernels.Device) kernels.Device { return d }

// checkFloats trains and wants the held-out losses in float32 throughout that a run in float32
// finds for the same parameters, beside others.
func checkFloats(t *testing.T, name string, run plan.RunSpec, plan plan.Plan) result {
	t.Helper()
	keeper := &memoryKeeper{}
	got := train(t, run, plan, keeper)
	equalFloats(t, name, got.floats, measuredInFloats(t, run, keeper, asItIs))
	if maps.Equal(got.floats, got.heldOut) {
		t.Errorf("%s: lower precision changes no held-out loss", name)
	}
	for step, bits := range got.floats {
		f32, loss := math.Float64frombits(bits), math.Float64frombits(got.heldOut[step])
		if math.Abs(f32-loss) > 5e-3*f32 {
			t.Errorf("%s: held-out loss of step %d is %v, in float32 throughout %v", name, step, loss, f32)
		}
	}
	return got
}

// TestWhatHalvesCostIsMeasured, in runs of every family, with whatever else stages do.
func TestWhatHalvesCostIsMeasured(t *testing.T) {
	t.Parallel()
	runs := families()
	runs["gpt2"], runs["gpt2, rounded by chance"] = testRun(), testRun()
	masked := families()["llama"]
	masked.Train.DocumentMask, masked.Model.Window = true, 5
	runs["llama, document mask"] = masked
	windowed := families()["llama"]
	windowed.Model.Window = 5
	runs["llama, window"] = windowed
	for i, name := range slices.Sorted(maps.Keys(runs)) {
		run := halved(runs[name])
		run.Train.StochasticRounding = strings.Contains(name, "chance")
		checkFloats(t, name, run, cut(run, "1f1b", []int{0}))
		checkFloats(t, name+" in three stages", run, offloaded(cut(run, "1f1b", []int{0, 1, 3})))
		checkFloats(t, name+" in turns", run, spread(cut(run, "gpipe", []int{0, 1, 2, 3}), []int{0, 1, 0, 1}))
		for k, level := range lean {
			if !meets(i, k, len(lean)) {
				continue
			}
			run.Train.Recompute = plan.Recompute(level)
			checkFloats(t, fmt.Sprint(name, ", recompute ", level), run, cut(run, "1f1b", []int{0, 2}))
		}
	}
}

// TestWhatHalvesCostBesideFloats: only some stages are in bf16, or round what they send; replicas
// are cut alike or not.
func TestWhatHalvesCostBesideFloats(t *testing.T) {
	run := halved(testRun())
	run.Train.Storage = plan.StorageAuto
	for first := range 2 {
		name := fmt.Sprint("every second from ", first)
		checkFloats(t, name, run, mixed(cut(run, "1f1b", []int{0, 2}), first))
		checkFloats(t, name+" of four", run, mixed(cut(run, "gpipe", []int{0, 1, 2, 4}), first))
		for _, codec := range []string{"int8", "bf16"} {
			checkFloats(t, name+" and "+codec, run, withCodec(mixed(cut(run, "1f1b", []int{0, 2}), first), codec))
		}
	}
	checkFloats(t, "in replicas", run, mixed(cut(run, "1f1b", []int{0, 2}, []int{0, 1, 4}), 0))
	if got := train(t, run, mixed(cut(run, "1f1b", []int{0}, []int{0}), 1), &memoryKeeper{}); len(got.floats) > 0 {
		t.Error("a replica in float32 evaluates, and is compared with itself")
	}
}

// TestWhatCodecsCostIsMeasured where all stages are in float32, and nothing else is between them.
func TestWhatCodecsCostIsMeasured(t *testing.T) {
	run := halved(testRun())
	run.Train.Storage = plan.StorageRule{}
	for _, codec := range []string{"bf16", "int8", "int4"} {
		checkFloats(t, codec, run, withCodec(cut(run, "1f1b", []int{0, 2}), codec))
		checkFloats(t, codec+" in turns", run, withCodec(spread(cut(run, "gpipe", []int{0, 1, 2, 3}), []int{0, 1, 0, 1}), codec))
	}
	together := withCodec(spread(cut(run, "1f1b", []int{0, 2}), []int{0, 0}), "int8")
	if got := train(t, run, together, &memoryKeeper{}); len(got.floats) > 0 {
		t.Error("nothing crosses, and is measured")
	}
}

// TestWhatHalvesCostUnderEverySchedule, also where it changes on the way.
func TestWhatHalvesCostUnderEverySchedule(t *testing.T) {
	t.Parallel()
	run := halved(deep())
	want := map[int]result{}
	for _, text := range deepSchedules {
		plan := scheduled(t, run, text, 2)
		n := len(plan.Replicas)
		if want[n].floats == nil {
			want[n] = checkFloats(t, text, run, plan)
		}
		equal(t, text, train(t, run, plan, &memoryKeeper{}), want[n])
	}
	along := &choices{texts: []string{"zb-h1", "seq1f1b", "gpipe 1,0"}}
	equal(t, "changing", trainAlong(t, run, scheduled(t, run, "1f1b", 2), from{&memoryKeeper{}, 0}, along), want[1])
}

// TestMeasuringChangesNoTraining: losses and states are those of a run that never evaluates.
func TestMeasuringChangesNoTraining(t *testing.T) {
	run := halved(families()["llama"])
	for _, text := range []string{"1f1b", "zb-h1", "interleaved:v=2"} {
		plan, measured, never := scheduled(t, run, text, 2), &memoryKeeper{}, &memoryKeeper{}
		got := train(t, run, plan, measured)
		blind := run
		blind.Train.HeldOutEvery = 0
		want := train(t, blind, plan, never)
		want.heldOut, want.floats = got.heldOut, got.floats
		equal(t, text, got, want)
		equalStates(t, text, measured, never)
	}
}

// floatless is a device that neither multiplies nor looks up float32.
type floatless struct{ kernels.Device }

func (d floatless) Supports(c kernels.Call) error {
	factor := map[kernels.Op]int{kernels.OpMatMul: 2, kernels.OpEmbedForward: 2}[c.Op]
	if factor > 0 && c.Args[factor].Buf.DType() == kernels.F32 {
		return kernels.ErrUnsupported
	}
	return d.Device.Supports(c)
}

// TestAStageThatCannotIsNotMeasured: wherever it is, the run goes on, and says so there.
func TestAStageThatCannotIsNotMeasured(t *testing.T) {
	run := halved(testRun())
	for _, turns := range [][]int{{0, 1, 2, 3}, {0, 1, 0, 1}} {
		plan := spread(cut(run, "1f1b", []int{0, 1, 2, 3}), turns)
		want := train(t, run, plan, &memoryKeeper{})
		clear(want.floats)
		for without := range plan.Workers() {
			n, said := 0, &bytes.Buffer{}
			got := trainLogged(t, run, plan, &memoryKeeper{}, slog.New(slog.NewTextHandler(said, nil)), func(d kernels.Device) kernels.Device {
				if n++; n-1 == without {
					return floatless{d}
				}
				return d
			})
			equal(t, fmt.Sprintf("without floats on device %d", without), got, want)
			if strings.Count(said.String(), "will not be measured") != 1 || strings.Contains(said.String(), "cost=") {
				t.Errorf("without floats on device %d: %s", without, said)
			}
		}
	}
}

// TestMessagesThatNoLinkTakesAreNotMeasured: training sends half as much, and goes on.
func TestMessagesThatNoLinkTakesAreNotMeasured(t *testing.T) {
	for stages, want := range map[int]error{1: nil, 2: errTooLarge} {
		run := halved(testRun())
		run.Train.MicroBatch = wire.MaxTensorBytes / run.Model.Context / run.Model.Channels
		bounds := []int{0, 2}
		w := &Worker{program: program{spec: run, plan: cut(run, "1f1b", bounds[:stages])}, cfg: Config{Log: slog.New(slog.DiscardHandler)}}
		w.takeShadows()
		if !errors.Is(w.shadowErr, want) || len(w.shadows) > 0 {
			t.Errorf("%d stages: %v, want %v", stages, w.shadowErr, want)
		}
	}
}
