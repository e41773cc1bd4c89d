package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// asInt8 are parameters of a layer with those in place that their int8 form stands for.
func asInt8(c Config, layer int, params []float32) []float32 {
	params = slices.Clone(params)
	for _, t := range c.LayerTensors(layer) {
		if !c.resolved().factor(t) {
			continue
		}
		of, cols := params[t.Off:][:t.Len()], t.Shape[1]
		words := make([]int32, kernels.MatrixWords(t.Shape[0], cols))
		kernels.PackInt8(words, of, cols)
		for r := range t.Shape[0] {
			quant.UnpackRow(of[r*cols:][:cols], kernels.Int32Bytes(words), r)
		}
	}
	return params
}

func fillWith(t *testing.T, d *Decoder, q kernels.Queue, params func(layer int) []float32) {
	t.Helper()
	for l := range d.cfg.Model.Layers() {
		must(t, d.Fill(q, l, func(dst []float32) error {
			copy(dst, params(l))
			return nil
		}))
	}
}

// TestDecoderWithInt8 has the bits of a decoder with the float32 numbers that the weights stand for, of each family, with a prompt at once, in
// parts and token by token; and logits near those of the weights that were rounded: a weight is off by half a step at most, 1/254 of the
// largest of its group, which some ten products one behind the other add up.
func TestDecoderWithInt8(t *testing.T) {
	eachFamily(t, func(t *testing.T, ref reference) {
		if ref.Config.LoRA.On() {
			t.Skip("a decoder has no adapters")
		}
		tokens, _ := referenceMicro(ref.Config, 1, 0)
		plain, q := newTestDecoder(t, DecoderConfig{Model: ref.Config})
		rounded := feed(t, plain, q, tokens)
		largest := float64(max(slices.Max(rounded), -slices.Min(rounded)))
		for _, prompt := range []int{len(tokens), len(tokens) - 3, 1} {
			exact, q := newTestDecoder(t, DecoderConfig{Model: ref.Config, Rows: 5})
			fillWith(t, exact, q, func(l int) []float32 { return asInt8(ref.Config, l, referenceParams(ref.Config, l)) })
			d, p := newTestDecoder(t, DecoderConfig{Model: ref.Config, Storage: StorageInt8, Rows: 5})
			want, got := feed(t, exact, q, tokens[:prompt]), feed(t, d, p, tokens[:prompt])
			for _, token := range tokens[prompt:] {
				sameBits(t, "logits", got, want)
				want, got = feed(t, exact, q, []int32{token}), feed(t, d, p, []int32{token})
			}
			sameBits(t, "logits", got, want)
			for i, w := range rounded {
				near(t, "logit", float64(got[i]), float64(w), 8*largest/254)
			}
			if slices.Equal(got, rounded) {
				t.Error("int8 rounds nothing")
			}
		}
	})
}

// chain writes tokens each of which is one of a few that follow the one before, some oftener than others.
func chain(rng *rand.Rand, vocab, n int) (tokens []int32) {
	last := int32(0)
	for range n {
		draw := rng.IntN(16)
		choice := int32(0)
		for _, least := range []int{8, 12, 14} {
			if draw >= least {
				choice++
			}
		}
		last = (last*7 + choice*choice*5 + 3) % int32(vocab)
		tokens = append(tokens, last)
	}
	return tokens
}

// TestInt8KeepsPerplexity trains a small model and has it predict text that it has not seen, with weights in float32 and in int8.
func TestInt8KeepsPerplexity(t *testing.T) {
	c := Config{Vocab: 61, Context: 32, Blocks: 2, Heads: 3, Channels: 96}
	ref := reference{Config: c, Batch: 8}
	ref.Train.LR, ref.Train.Beta1, ref.Train.Beta2, ref.Train.Eps = 4e-3, 0.9, 0.99, 1e-8
	r, rng := newRig(t, rigConfig{model: c, batch: ref.Batch}), rand.New(rand.NewPCG(1, 2))
	for l := range c.Layers() {
		params := make([]float32, c.LayerLen(l))
		c.InitLayer(l, 1, params)
		r.write(r.first().Params(l), params)
	}
	slot, rows := r.first().Slot(0), ref.Batch*c.Context
	for n := range 60 {
		text := chain(rng, c.Vocab, rows+1)
		r.zeroGrads()
		slot.SetTokens(r.queue, text[:rows])
		slot.SetTargets(r.queue, text[1:])
		slot.Forward(r.queue, Noise{})
		slot.Backward(r.queue, float32(1/float64(rows)))
		r.sync()
		r.tieGrads()
		r.update(ref, n+1, 1)
	}
	unseen := chain(rng, c.Vocab, 20*c.Context)
	perplexity := func(storage Storage) float64 {
		d, q := newTestDecoder(t, DecoderConfig{Model: c, Storage: storage})
		fillWith(t, d, q, func(l int) []float32 { return r.read(r.first().Params(l)) })
		nats, count := 0.0, 0
		for window := range slices.Chunk(unseen, c.Context) {
			d.Truncate(0, 0)
			for i, token := range window[:c.Context-1] {
				nats += nat(feed(t, d, q, []int32{token}), window[i+1])
				count++
			}
		}
		return math.Exp(nats / float64(count))
	}
	f32, int8 := perplexity(StorageF32), perplexity(StorageInt8)
	t.Logf("perplexity %.5f in f32, %.5f in int8: %+.3f%%", f32, int8, 100*(int8/f32-1))
	if f32 > 8 || int8 == f32 || math.Abs(int8/f32-1) > 0.01 {
		t.Errorf("perplexity is %v in f32 and %v in int8, want at most 8, of %d tokens, and within 1%%", f32, int8, c.Vocab)
	}
}

// nat is minus the logarithm of a token's probability.
func nat(logits []float32, token int32) float64 {
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x - logits[token]))
	}
	return math.Log(sum)
}
