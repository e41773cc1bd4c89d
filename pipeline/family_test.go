package pipeline

import (
	"math"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// families are runs of other models than testRun's.
func families() map[string]plan.RunSpec {
	llama := testRun()
	llama.Model = model.Config{
		Vocab: 64, Context: 16, Blocks: 3, Heads: 4, KVHeads: 2, Channels: 32, MLP: 48, ResidualDropout: 0.1, EmbedDropout: 0.1,
		Norm: model.RMSNorm, Activation: model.SwiGLU, Positions: model.RoPE, NoQKVBias: true, NoOutputBias: true, NoMLPBias: true, UntiedHead: true,
	}
	lora := llama
	lora.Model.LoRA = model.LoRA{Rank: 4, Alpha: 8, Targets: "q_proj,v_proj,down_proj"}
	lora.Train.LR, lora.Train.MinLR = 3e-2, 3e-3
	tied := testRun()
	tied.Model.LoRA = model.LoRA{Rank: 4, Alpha: 8, Targets: "c_attn"}
	return map[string]plan.RunSpec{"llama": llama, "lora": lora, "lora of tied": tied}
}

func TestFamiliesDoNotDependOnTheCut(t *testing.T) {
	for name, run := range families() {
		t.Run(name, func(t *testing.T) {
			keeper := &memoryKeeper{}
			want := train(t, run, cut(run, "1f1b", []int{0}), keeper)
			if first, last := math.Float64frombits(want.losses[1]), math.Float64frombits(want.losses[run.Train.Steps]); !(last < first) {
				t.Errorf("the loss went from %v to %v: nothing was learnt", first, last)
			}
			equal(t, "three stages", train(t, run, cut(run, "1f1b", []int{0, 1, 3}), &memoryKeeper{}), want)
			for l, state := range keeper.layers[run.Train.Steps] {
				if len(state) != LayerStateBytes(run, l) {
					t.Errorf("the state of layer %d has %d bytes, want %d", l, len(state), LayerStateBytes(run, l))
				}
			}
		})
	}
}

func TestFamiliesResume(t *testing.T) {
	for name, run := range families() {
		t.Run(name, func(t *testing.T) {
			keeper := &memoryKeeper{}
			want := train(t, run, cut(run, "1f1b", []int{0}, []int{0, 2}), keeper)
			again := cut(run, "1f1b", []int{0, 1, 4}, []int{0})
			again.Start = run.Train.CheckpointEvery
			got := train(t, run, again, keeper)
			for step := plan.Step(1); step <= again.Start; step++ {
				delete(want.losses, step)
				delete(want.heldOut, step)
			}
			equal(t, "resumed", got, want)
		})
	}
}
