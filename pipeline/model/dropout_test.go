package model

import (
	"fmt"
	"math"
	"testing"
)

// noisy are a GPT-2 and a Llama with dropout in every place.
func noisy() map[string]Config {
	gpt2, llama := tiny, tinyLlama
	for _, c := range []*Config{&gpt2, &llama} {
		c.EmbedDropout, c.ResidualDropout = 0.25, 0.125
	}
	return map[string]Config{"gpt2": gpt2, "llama": llama}
}

var someNoise = Noise{On: true, Seed: 11, Step: 1_000_000_000, Micro: 1<<20 - 1}

// TestDropoutIsTheSameHoweverAPassIsCarriedOut cuts, splits and recomputes.
func TestDropoutIsTheSameHoweverAPassIsCarriedOut(t *testing.T) {
	for name, model := range noisy() {
		t.Run(name, func(t *testing.T) {
			run := func(c rigConfig) outcome {
				c.model, c.batch = model, tinyBatch
				r := newRig(t, c).load()
				r.noise = someNoise
				return r.steps(passOf(c.split))
			}
			want := run(rigConfig{})
			for _, split := range []bool{false, true} {
				for level := range recomputeLevels {
					t.Run(fmt.Sprintf("%v split %v", level, split), func(t *testing.T) {
						compareOutcomes(t, run(rigConfig{cuts: []int{1, 2, 3}, split: split, level: level}), want)
					})
				}
			}
		})
	}
}

// TestDropoutGradients compares with differences of the loss under the same noise.
func TestDropoutGradients(t *testing.T) {
	for name, model := range noisy() {
		t.Run(name, func(t *testing.T) { checkGradients(t, model, someNoise) })
	}
}

// TestDropoutDependsOnItsKeyAlone changes one part of the noise at a time.
func TestDropoutDependsOnItsKeyAlone(t *testing.T) {
	model := noisy()["llama"]
	r := newRig(t, rigConfig{model: model, batch: tinyBatch}).load()
	losses := func(n Noise) float64 {
		r.noise = n
		return sum64(r.evaluate(0, 0))
	}
	still := model
	still.EmbedDropout, still.ResidualDropout = 0, 0
	quiet := newRig(t, rigConfig{model: still, batch: tinyBatch}).load()
	if got, want := losses(Noise{Seed: 3, Step: 4}), sum64(quiet.evaluate(0, 0)); got != want {
		t.Errorf("the loss without noise is %v, without dropout %v", got, want)
	}
	base := Noise{On: true, Seed: 1, Step: 1, Micro: 1}
	seen := map[float64]string{}
	for name, n := range map[string]Noise{
		"none": {}, "base": base, "seed": {true, 2, 1, 1}, "step": {true, 1, 2, 1}, "micro": {true, 1, 1, 2},
	} {
		loss := losses(n)
		if other, ok := seen[loss]; ok || math.IsNaN(loss) {
			t.Errorf("%s and %s have the same loss %v", name, other, loss)
		}
		seen[loss] = name
		if again := losses(n); again != loss {
			t.Errorf("%s: %v, and then %v", name, loss, again)
		}
	}
}

// TestNoiseStreamsDiffer takes the largest value of every part.
func TestNoiseStreamsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for _, step := range []int{0, 1, 1<<31 - 1} {
		for _, micro := range []int{0, 1, 1<<20 - 1} {
			for _, layer := range []int{0, 1, maxBlocks + 1} {
				for _, s := range []site{siteEmbedding, siteAttention, siteMLP} {
					seen[Noise{Step: step, Micro: micro}.stream(layer, s).Stream] = true
				}
			}
		}
	}
	if len(seen) != 81 {
		t.Errorf("%d of 81 streams differ", len(seen))
	}
}
