package model

import (
	"math"
	"testing"

	"pnode/kernels"
)

// gradientsOf returns the gradients of one micro-batch of a step with so many tokens.
func gradientsOf(t *testing.T, c rigConfig, tokens int) [][]float32 {
	t.Helper()
	r := newRig(t, c).load()
	r.forward(0, 0)
	r.backward(0, 1/float32(tokens), (*Slot).Backward)
	r.unscale()
	return r.grads()
}

// TestScaleKeepsGradients: with a million tokens a step gradients by logits are below what F16 has.
// Without the scale they vanish, with it they are what they are for a few tokens.
func TestScaleKeepsGradients(t *testing.T) {
	const tokens = 1 << 20
	eachFamily(t, func(t *testing.T, ref reference) {
		c := rigConfig{model: ref.Config, batch: ref.Batch}
		want := gradientsOf(t, c, tokens)
		c.storage, c.scale = StorageF16, LossScaleBits(tokens)
		scaled := gradientsOf(t, c, tokens)
		c.scale = unscaled
		bare := gradientsOf(t, c, tokens)
		for layer := range want {
			if squares(want[layer]) == 0 { // frozen
				continue
			}
			if off := apart(scaled[layer], want[layer]); off > bounds16[StorageF16].gradients {
				t.Errorf("layer %d: with the scale the gradient is off by %.2g of its norm", layer, off)
			}
			if off := apart(bare[layer], want[layer]); off < 0.1 {
				t.Errorf("layer %d: without the scale the gradient is off by no more than %.2g of its norm", layer, off)
			}
		}
	})
}

// TestLossScaleBits: the least scale that is enough.
func TestLossScaleBits(t *testing.T) {
	for tokens, want := range map[int]int{0: 10, 1: 10, 2: 11, 3: 12, 512: 19, 513: 20, 1 << 20: 30} {
		if got := LossScaleBits(tokens); got != want {
			t.Errorf("%d tokens: 2^%d, want 2^%d", tokens, got, want)
		}
	}
}

// TestBoundariesAreNotScaled: stacks of any storages work together, in any order.
func TestBoundariesAreNotScaled(t *testing.T) {
	eachFamily(t, func(t *testing.T, ref reference) {
		c := rigConfig{model: ref.Config, batch: ref.Batch, cuts: []int{1, 2}}
		want := newRig(t, c).load().steps((*Slot).Backward)
		for _, stored := range [][]Storage{
			{StorageF16, StorageF32, StorageBF16}, {StorageBF16, StorageF16, StorageF32}, {StorageF32, StorageBF16, StorageF16},
		} {
			for _, split := range []bool{false, true} {
				c.stored, c.split = stored, split
				got := newRig(t, c).load().steps(passOf(split))
				for layer := range want.grads {
					if off := apart(got.grads[layer], want.grads[layer]); off > bounds16[StorageBF16].gradients {
						t.Errorf("%v: the gradient of layer %d is off by %.2g of its norm", stored, layer, off)
					}
				}
			}
		}
	})
}

// TestOnlyF16IsScaled counts calls: a scale for each end that is not the model's, and one for the
// gradients of each layer, with F16 storage; none with others.
func TestOnlyF16IsScaled(t *testing.T) {
	for storage := range storages {
		r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, cuts: []int{1, 3}, storage: storage}).load()
		r.forward(0, 0)
		for i, ends := range []int{1, 2, 1} {
			s, counted := r.stacks[i], &opCount{r.queue, map[kernels.Op]int{}}
			s.Slot(0).Backward(counted, outcomeScale)
			for l := s.cfg.First; l < s.cfg.End; l++ {
				s.Unscale(counted, l)
			}
			want := 0
			if storage == StorageF16 {
				want = ends + s.cfg.End - s.cfg.First
			}
			if got := counted.calls[kernels.OpScale]; got != want {
				t.Errorf("%v: stack %d scales %d times, want %d", storage, i, got, want)
			}
		}
		r.sync()
	}
}

// TestOverflowIsClipped: a weight that takes activations out of F16's range costs no step, and one
// that is not finite is seen in the loss.
func TestOverflowIsClipped(t *testing.T) {
	for weight, wantFinite := range map[float32]bool{1e6: true, float32(math.Inf(1)): false, float32(math.NaN()): false} {
		r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, storage: StorageF16}).load()
		up, _ := tensorNamed(tiny.Resolved().LayerTensors(1), "mlp.c_fc.weight")
		if up.Len() == 0 {
			t.Fatalf("no such tensor among %v", tiny.Resolved().LayerTensors(1))
		}
		r.write(r.first().Params(1).Slice(up.Off, 1), []float32{weight})
		r.roundWeights()
		o := r.steps((*Slot).Backward)
		sum := sum64(o.losses[0])
		for _, g := range o.grads {
			sum += sum64(g)
		}
		if finite := !math.IsNaN(sum) && !math.IsInf(sum, 0); finite != wantFinite {
			t.Errorf("a weight of %v: losses and gradients are finite: %v", weight, finite)
		}
	}
}
