package pipeline

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// given is a keeper of initial weights: every parameter of the model is its number.
type given struct {
	config model.Config
	fail   error
}

func (given) Save(context.Context, State) error { return nil }

func (g given) Load(_ context.Context, layer int, _ Part, dst io.Writer) error {
	if g.fail != nil {
		return g.fail
	}
	_, err := dst.Write(kernels.Float32Bytes(g.params(layer)))
	return err
}

func (g given) params(layer int) []float32 {
	params := make([]float32, g.config.LayerLen(layer))
	for i := range params {
		params[i] = float32(layer*100_000 + i)
	}
	if layer == g.config.Layers()-1 { // the tied matrix is the embedding's
		tied := g.config.TiedLen()
		copy(params[len(params)-tied:], g.params(0)[:tied])
	}
	return params
}

func initialWorker(t *testing.T, run plan.RunSpec, keeper Keeper) *Worker {
	t.Helper()
	plan := cut(run, "1f1b", []int{0})
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(usual(Config{
		Worker: plan.Workers()[0], Run: run, Plan: plan, Device: device, Keeper: keeper,
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		device.Close()
	})
	return w
}

// TestARunStartsFromGivenWeights: they reach as far as the model without adapters does, or to
// its end.
func TestARunStartsFromGivenWeights(t *testing.T) {
	for name, lora := range map[string]model.LoRA{"plain": {}, "adapters": {Rank: 2, Alpha: 4, Targets: "c_attn"}, "given adapters": {Rank: 2, Alpha: 4, Targets: "c_attn"}} {
		t.Run(name, func(t *testing.T) {
			run := testRun()
			run.Init = &plan.InitSpec{Adapters: name == "given adapters"}
			run.Model.LoRA = lora
			keeper := given{config: run.Model.Base()}
			if run.Init.Adapters {
				keeper.config = run.Model
			}
			w := initialWorker(t, run, keeper)
			if err := w.load(t.Context(), Whole); err != nil {
				t.Fatal(err)
			}
			for layer := range run.Model.Layers() {
				want := make([]float32, run.Model.LayerLen(layer))
				run.Model.InitLayer(layer, run.Train.Seed, want)
				copy(want, keeper.params(layer))
				got := make([]float32, len(want))
				w.queue.Read(kernels.Float32Bytes(got), w.stages[0].stack.Params(layer))
				if err := w.queue.Sync(); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want) {
					t.Errorf("layer %d is not as given", layer)
				}
			}
		})
	}
}

func TestGivenWeightsOfAnotherSizeAreRefused(t *testing.T) {
	for name, keeper := range map[string]given{
		"shorter": {config: model.Config{Vocab: 64, Context: 16, Blocks: 3, Heads: 2, Channels: 16}},
		"longer":  {config: model.Config{Vocab: 64, Context: 16, Blocks: 3, Heads: 2, Channels: 64}},
		"absent":  {fail: fmt.Errorf("nobody has them")},
	} {
		run := testRun()
		run.Init = &plan.InitSpec{}
		if err := initialWorker(t, run, keeper).load(t.Context(), Whole); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
