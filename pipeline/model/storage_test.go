package model

import (
	"fmt"
	"math"
	"testing"

	"pnode/kernels"
)

// halfBounds are of what operands in halves may change in 20 steps of the reference models.
type halfBounds struct {
	first     float64 // relative, of the mean loss of one of the first steps
	loss      float64 // relative, of any step's mean loss
	norm      float64 // relative, of the gradient's norm
	gradients float64 // relative, of a layer's gradient as a vector
}

// bounds16 has the bounds for 8 bits of precision, and for 11. Steps amplify what roundings change: with parameters
// at the start that were changed by 1e-7, eight times, losses of BF16 came to be 1.3e-3 off at most in the first
// steps and 7.6e-3 in all, in pairs or widened.
var bounds16 = map[Storage]halfBounds{StorageBF16: {2e-3, 1e-2, 1e-2, 0.03}, StorageF16: {2.5e-4, 2e-3, 2e-3, 0.005}}

// firstSteps counts the steps whose norms are compared too: later ones are of points too far apart.
const firstSteps = 6

// eachHalf runs a test for each family in each storage in halves.
func eachHalf(t *testing.T, f func(t *testing.T, ref reference, storage Storage)) {
	eachFamily(t, func(t *testing.T, ref reference) {
		for _, storage := range []Storage{StorageBF16, StorageF16} {
			t.Run(storage.String(), func(t *testing.T) { f(t, ref, storage) })
		}
	})
}

// TestHalvesTrainLikeTheReference compares 20 steps with PyTorch's in float64, and with the same
// steps in float32.
func TestHalvesTrainLikeTheReference(t *testing.T) {
	t.Parallel()
	eachHalf(t, func(t *testing.T, ref reference, storage Storage) {
		halves := newRig(t, rigConfig{model: ref.Config, batch: ref.Batch, storage: storage}).load()
		floats := newRig(t, rigConfig{model: ref.Config, batch: ref.Batch}).load()
		apart, bound := 0.0, bounds16[storage]
		for i, want := range ref.Train.Losses {
			loss, norm := halves.step(ref, i+1, (*Slot).Backward)
			most := bound.loss
			if i < firstSteps {
				most = bound.first
				near(t, "gradient norm", norm, ref.Train.Norms[i], bound.norm*norm)
			}
			near(t, "loss", loss, want, most*want)
			exact, _ := floats.step(ref, i+1, (*Slot).Backward)
			near(t, "loss beside float32", loss, exact, most*exact)
			apart = math.Max(apart, math.Abs(loss-exact))
		}
		if apart == 0 {
			t.Error("the storage changes nothing")
		}
	})
}

// TestHalfGradients compares the gradients of one pass with those in float32: as vectors,
// because single elements may be sums that cancel.
func TestHalfGradients(t *testing.T) {
	eachHalf(t, func(t *testing.T, ref reference, storage Storage) {
		gradients := func(storage Storage) [][]float32 {
			return newRig(t, rigConfig{model: ref.Config, batch: ref.Batch, storage: storage}).load().steps((*Slot).Backward).grads
		}
		got, want := gradients(storage), gradients(StorageF32)
		for layer := range want {
			if apart := apart(got[layer], want[layer]); apart > bounds16[storage].gradients {
				t.Errorf("the gradient of layer %d is off by %.2g of its norm", layer, apart)
			}
		}
	})
}

// apart is how far a vector is from the one wanted, as a share of its norm.
func apart(got, want []float32) float64 {
	difference := 0.0
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		difference += d * d
	}
	return math.Sqrt(difference / math.Max(squares(want), 1e-30))
}

// history is the trace of a run: losses to the bit, parameters at its end.
type history struct {
	losses []float64
	params [][]float32
}

const historySteps = 4

func (r *rig) history(ref reference, first, last int, pass pass) history {
	var h history
	for n := first; n <= last; n++ {
		loss, _ := r.step(ref, n, pass)
		h.losses = append(h.losses, loss)
	}
	for l := range r.model.Layers() {
		h.params = append(h.params, r.read(r.stackOf(l).Params(l)))
	}
	return h
}

func compareHistories(t *testing.T, got, want history) {
	t.Helper()
	for i, loss := range want.losses {
		if got.losses[i] != loss {
			t.Fatalf("loss %d is %v, want %v to the bit", i, got.losses[i], loss)
		}
	}
	for layer, params := range want.params {
		sameBits(t, fmt.Sprintf("parameters of layer %d", layer), got.params[layer], params)
	}
}

// TestHalvesAreTheSameHoweverAStepIsCarriedOut cuts, splits, recomputes and takes other
// numbers of threads over steps with updates.
func TestHalvesAreTheSameHoweverAStepIsCarriedOut(t *testing.T) {
	t.Parallel()
	eachHalf(t, checkHalves)
}

func checkHalves(t *testing.T, ref reference, storage Storage) {
	run := func(t *testing.T, c rigConfig) history {
		c.model, c.batch, c.storage = ref.Config, ref.Batch, storage
		r := newRig(t, c).load()
		r.noise = someNoise
		return r.history(ref, 1, historySteps, passOf(c.split))
	}
	want := run(t, rigConfig{})
	for _, c := range []rigConfig{
		{threads: 1},
		{threads: 3, cuts: []int{1}},
		{split: true},
		{cuts: []int{1, 2, 3}, split: true},
		{level: RecomputeOutputs, cuts: []int{2}},
		{level: RecomputeOutputs, split: true},
		{level: RecomputeBlock, cuts: []int{3}},
		{level: RecomputeBlock, split: true},
	} {
		t.Run(fmt.Sprintf("threads %d cuts %v split %v recompute %v", c.threads, c.cuts, c.split, c.level), func(t *testing.T) {
			compareHistories(t, run(t, c), want)
		})
	}
}

// TestHalvesWithDropout does the same where dropout has its own gradients.
func TestHalvesWithDropout(t *testing.T) {
	refs := loadReferences(t)
	for name, model := range noisy() {
		ref := refs[name]
		ref.Config = model
		for _, storage := range []Storage{StorageBF16, StorageF16} {
			t.Run(fmt.Sprint(name, " ", storage), func(t *testing.T) { checkHalves(t, ref, storage) })
		}
	}
}

// TestHalvesResume carries parameters and moments, which are all that a checkpoint has, to
// another stack in the middle of a run.
func TestHalvesResume(t *testing.T) {
	eachHalf(t, func(t *testing.T, ref reference, storage Storage) {
		config := rigConfig{model: ref.Config, batch: ref.Batch, storage: storage}
		first := newRig(t, config).load()
		first.history(ref, 1, 2, (*Slot).Backward)
		config.cuts = []int{2}
		second := newRig(t, config)
		for l := range ref.Config.Layers() {
			from, to := first.stackOf(l), second.stackOf(l)
			second.write(to.Params(l), first.read(from.Params(l)))
			for i := range 2 {
				second.write(to.Moment(l, i), first.read(from.Moment(l, i)))
			}
		}
		second.roundWeights()
		want := first.history(ref, 3, historySteps, (*Slot).Backward)
		compareHistories(t, second.history(ref, 3, historySteps, (*Slot).Backward), want)
	})
}

// TestMastersKeepSmallUpdates moves every parameter by less than half of the last digit
// of its BF16 copy, again and again: the masters see all of it, the copies in the end.
func TestMastersKeepSmallUpdates(t *testing.T) {
	r := newRig(t, rigConfig{model: tiny, batch: 1, storage: StorageBF16})
	s := r.first()
	one := make([]float32, tiny.LayerLen(1))
	for i := range one {
		one[i] = 1
	}
	r.write(s.Params(1), one)
	tenth := float32(math.Pow(2, -7) / 10) // of a digit at 1
	for i := range one {
		one[i] = tenth
	}
	r.write(s.Grads(1), one)
	for range 10 {
		r.queue.Do(kernels.Add(s.Params(1), s.Params(1), s.Grads(1), len(one)))
		s.RoundWeights(r.queue, Noise{})
	}
	r.queue.Do(kernels.Cast(s.Grads(1), s.copies[1], len(one)))
	want := float64(1 + 10*tenth)
	near(t, "master", float64(r.read(s.Params(1))[5]), want, 1e-6)
	near(t, "copy", float64(r.read(s.Grads(1))[5]), 1+math.Pow(2, -7), 0)
}

// TestHalvesSaveMemory holds a slot of GPT-2's blocks to 36 bytes a channel and row, and
// the rows' statistics, where float32 has 64.
func TestHalvesSaveMemory(t *testing.T) {
	c, err := Preset("gpt2-124m")
	must(t, err)
	slot := func(storage Storage) int64 {
		saved := func(slots int) int64 {
			m, err := StackConfig{Model: c, First: 1, End: 1 + c.Blocks, MicroBatch: 1, Slots: slots, Storage: storage}.Memory()
			must(t, err)
			return m.Saved
		}
		return saved(2) - saved(1)
	}
	stream, statistics := int64(c.Context*c.Channels), int64(4*c.Context*(c.Heads+4))
	want := func(bytes int64) int64 { return int64(c.Blocks)*(bytes*stream+statistics) + 4*stream }
	if half, full := slot(StorageBF16), slot(StorageF32); half != want(36) || full != want(64) {
		t.Errorf("a slot keeps %d bytes in bf16 and %d in f32, want %d and %d", half, full, want(36), want(64))
	}
}
