package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// byMuon is a run whose matrices are updated by Muon.
func byMuon(run plan.RunSpec) plan.RunSpec {
	run.Train.Optimizer, run.Train.Momentum = plan.Muon, 0.95
	return run
}

// TestMuonGivesTheSameLossesOnAnyCut trains by Muon in every storage, on replicas too, and goes on from a checkpoint on another cut.
func TestMuonGivesTheSameLossesOnAnyCut(t *testing.T) {
	t.Parallel()
	runs := map[string]plan.RunSpec{"gpt2, rounded by chance": byChance(testRun())}
	if !testing.Short() {
		maps.Copy(runs, families())
		runs["gpt2"], runs["gpt2 in f16"] = testRun(), stores(testRun(), model.StorageF16)
	}
	for name, run := range runs {
		run = byMuon(run)
		keeper := &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", []int{0}), keeper)
		equal(t, name+" in three stages", train(t, run, cut(run, "gpipe", []int{0, 1, 3}), &memoryKeeper{}), want)
		equal(t, name+" resumed", resume(t, run, keeper), want.after(run.Train.CheckpointEvery))
		for l, state := range keeper.layers[run.Train.Steps] {
			if len(state) != LayerStateBytes(run, l) {
				t.Errorf("%s: the state of layer %d has %d bytes, want %d", name, l, len(state), LayerStateBytes(run, l))
			}
		}
	}
	run := byMuon(testRun())
	want := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), &memoryKeeper{})
	equal(t, "replicas of unlike cuts", train(t, run, cut(run, "1f1b", []int{0, 2}, []int{0, 1, 4}), &memoryKeeper{}), want)
}

// TestSharesOfMuonHaveWholeMatrices: losses and states do not depend on whether replicas have their state in parts, of which some have no matrix of
// a layer; nor do they after a checkpoint of either.
func TestSharesOfMuonHaveWholeMatrices(t *testing.T) {
	t.Parallel()
	cuts := [][][]int{{{0, 2}, {0, 1, 4}, {0}}, {{0, 3}, {0, 2}}, {{0}, {0}, {0}, {0}, {0, 2}, {0}}}
	runs := map[string]plan.RunSpec{"gpt2, rounded by chance": byChance(testRun()), "lora": families()["lora"], "llama": families()["llama"]}
	for i, name := range slices.Sorted(maps.Keys(runs)) {
		run := byMuon(runs[name])
		run.Train.Micros = 12
		for k, starts := range cuts {
			if !meets(i, k, len(cuts)) {
				continue
			}
			whole, parts := &memoryKeeper{}, &memoryKeeper{}
			p := cut(run, "1f1b", starts...)
			about := fmt.Sprintf("%s, %v", name, starts)
			want := train(t, run, p, whole)
			equal(t, about, train(t, run, sharded(p), parts), want)
			equalStates(t, about, parts, whole)
			p.Start, p.Generation = run.Train.CheckpointEvery, 2
			equal(t, about+" resumed whole", train(t, run, p, parts), want.after(p.Start))
			equal(t, about+" resumed in parts", train(t, run, sharded(p), whole), want.after(p.Start))
		}
	}
}

// TestMuonIsUndoneWithAStep: updates that were made before their commit, and are rolled back, leave no trace.
func TestMuonIsUndoneWithAStep(t *testing.T) {
	t.Parallel()
	run, text := calmRun()
	run = byMuon(run)
	run.Train.ClipNorm = 6
	none := func(d kernels.Device) kernels.Device { return d }
	p := scheduled(t, run, "zb-h2", 4)
	plain, keeper := &memoryKeeper{}, &memoryKeeper{}
	want, _ := trainOptimistic(t, Config{Run: run, Plan: p, Keeper: from{plain, 0}, Data: text}, none)
	got, count := trainOptimistic(t, Config{Run: run, Plan: validated(p), Keeper: from{keeper, 0}, Data: text}, none)
	equal(t, "losses", got, want)
	sameStates(t, "states", keeper, plain)
	if count.optimistic == 0 || count.rolledBack == 0 {
		t.Errorf("%d updates were made before their commit, %d rolled back", count.optimistic, count.rolledBack)
	}
}

// TestMuonLearnsFaster: the loss after so many steps at the same learning rate lies below AdamW's.
func TestMuonLearnsFaster(t *testing.T) {
	if testing.Short() {
		t.Skip("80 steps")
	}
	t.Parallel()
	last := func(run plan.RunSpec) (loss float64) {
		run.Train.Steps, run.Train.WarmupSteps, run.Train.LR = 40, 2, 1e-2
		trainWith(t, run, cut(run, "1f1b", []int{0}), from{&memoryKeeper{}, 0}, func(r StepResult) {
			if r.Step == run.Train.Steps && !r.Final {
				loss = r.Loss
			}
		})
		return loss
	}
	adamW, muon := last(testRun()), last(byMuon(testRun()))
	if t.Logf("AdamW %.3f, Muon %.3f", adamW, muon); muon >= adamW {
		t.Errorf("the loss is %v with Muon, %v with AdamW", muon, adamW)
	}
}
