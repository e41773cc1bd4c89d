package model

import (
	"fmt"
	"math"
	"testing"

	"pnode/kernels"
)

var weightNoise = Noise{On: true, Seed: 11, Step: 3}

// copies reads the BF16 copies of a layer.
func (r *rig) copies(layer int) []float32 {
	s := r.stackOf(layer)
	n := s.Params(layer).Len
	wide, err := s.cfg.Device.Alloc(kernels.F32, n)
	must(r.t, err)
	defer wide.Free()
	half, _ := s.Rounded(layer, Range{0, n}, Noise{})
	r.queue.Do(kernels.Cast(kernels.Whole(wide), half, n))
	return r.read(kernels.Whole(wide))
}

// updateRounded is an update of all that is trained, some elements a call, that writes the copies.
func (r *rig) updateRounded(n Noise) {
	s := kernels.AdamWScalars{LR: 1e-3, Beta1: 0.9, Beta2: 0.9, Eps: 1e-8, Correction1: 1, Correction2: 1, GradScale: 1}
	for l := range r.model.Layers() {
		stack, frozen := r.stackOf(l), r.model.FrozenLen(l)
		for _, whole := range stack.roundedAlike(l) {
			for i := range 3 {
				part := Share{i, 3}.Of(whole)
				if part.Len() == 0 || part.First < frozen {
					continue
				}
				at := func(v kernels.View) kernels.View { return v.Slice(part.First-frozen, part.Len()) }
				half, how := stack.Rounded(l, part, n)
				r.queue.Do(kernels.AdamWRounded(stack.Params(l).Slice(part.First, part.Len()), at(stack.Moment(l, 0)), at(stack.Moment(l, 1)), half,
					at(stack.Grads(l)), part.Len(), s, how))
			}
		}
	}
}

// TestUpdatesRoundLikeRoundWeights: the copies after an update are a function of the parameters,
// seed and step, however the model is cut and the update is.
func TestUpdatesRoundLikeRoundWeights(t *testing.T) {
	eachHalf(t, func(t *testing.T, ref reference, storage Storage) {
		for _, n := range []Noise{{}, weightNoise} {
			var want [][]float32
			for _, cuts := range [][]int{nil, {1, 2}, {ref.Config.Layers() - 1}} {
				r := newRig(t, rigConfig{model: ref.Config, batch: ref.Batch, storage: storage, cuts: cuts}).load()
				r.zeroGrads()
				for _, s := range r.stacks { // what is not trained
					s.RoundWeights(r.queue, n)
				}
				r.updateRounded(n)
				var updated, again [][]float32
				for l := range ref.Config.Layers() {
					updated = append(updated, r.copies(l))
				}
				for _, s := range r.stacks {
					s.RoundWeights(r.queue, n)
				}
				for l := range ref.Config.Layers() {
					again = append(again, r.copies(l))
					sameBits(t, fmt.Sprintf("copies of layer %d", l), updated[l], again[l])
					if want != nil {
						sameBits(t, fmt.Sprintf("copies of layer %d, cut at %v", l, cuts), again[l], want[l])
					}
				}
				want = again
			}
		}
	})
}

// TestTiedEndsRoundAlike compares the copies of both ends in stacks of their own.
func TestTiedEndsRoundAlike(t *testing.T) {
	r := newRig(t, rigConfig{model: tiny, batch: 1, storage: StorageBF16, cuts: []int{1}}).load()
	for _, s := range r.stacks {
		s.RoundWeights(r.queue, weightNoise)
	}
	head := r.copies(tiny.Layers() - 1)
	sameBits(t, "the tied matrix", head[len(head)-tiny.TiedLen():], r.copies(0)[:tiny.TiedLen()])
}

// TestRoundingByChanceIsRightOnAverage: over many steps the copies come to the parameters, which
// the nearest neighbours never do.
func TestRoundingByChanceIsRightOnAverage(t *testing.T) {
	r := newRig(t, rigConfig{model: tiny, batch: 1, storage: StorageBF16})
	const steps, value = 400, 1 + 0.3/128 // 0.3 of the way between two neighbours
	s, up := r.first(), 0
	ones := make([]float32, tiny.LayerLen(1))
	for i := range ones {
		ones[i] = value
	}
	r.write(s.Params(1), ones)
	for step := range steps {
		s.RoundWeights(r.queue, Noise{On: true, Seed: 1, Step: step})
		for _, x := range r.copies(1)[:10] {
			if x > value {
				up++
			}
		}
	}
	// 4000 draws with a chance of 0.3: a standard deviation of 0.0072.
	near(t, "share rounded up", float64(up)/(10*steps), 0.3, 0.04)
	s.RoundWeights(r.queue, Noise{})
	near(t, "to nearest", float64(r.copies(1)[0]), 1, 0)
	if math.Float32bits(float32(value))&0xffff == 0 {
		t.Error("the value needs no rounding")
	}
}
