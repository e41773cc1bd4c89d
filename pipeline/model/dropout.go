package model

import "pnode/kernels"

// Noise selects the random numbers of a micro-batch's dropout, or those that round a step's
// weights: a function of the fields, the layer and the place in it, so that a pass that is
// recomputed, cut elsewhere or run on another device drops the same elements. The zero value
// drops none, and rounds to nearest.
type Noise struct {
	On    bool
	Seed  uint64
	Step  int // below 2^31
	Micro int // of the whole step, below 2^20
}

// site is a place in a layer where elements are dropped.
type site uint64

const (
	siteEmbedding site = iota
	siteAttention
	siteMLP
	// siteWeights is where the optimizer's parameters become BF16 by chance, once a step.
	siteWeights
)

// stream has 31 bits of the step, 20 of the micro-batch, 11 of the layer, 2 of the site.
func (n Noise) stream(layer int, s site) kernels.Random {
	return kernels.Random{Key: n.Seed, Stream: uint64(n.Step)<<33 | uint64(n.Micro)<<13 | uint64(layer)<<2 | uint64(s)}
}

// dropout sets a share of a tensor's elements to zero and divides the others by what is
// left (Srivastava et al. 2014).
type dropout struct {
	share float32
	noise *Noise // the slot's
	layer int
	site  site
}

// apply drops elements of a span of v in place.
func (d dropout) apply(q issuer, v kernels.View, s span) { d.drop(q, v, v, s) }

// gradient gives a span of the gradient before the dropout: of dy itself, or what is written
// to room.
func (d dropout) gradient(q issuer, room, dy kernels.View, s span) kernels.View {
	d.drop(q, room, dy, s)
	return s.of(d.gradientView(room, dy))
}

// drop writes a span of x without the elements that the noise drops to the same of out.
func (d dropout) drop(q issuer, out, x kernels.View, s span) {
	if d.share > 0 && d.noise.On {
		part := s.of(x)
		first := part.Off - x.Off
		q.Do(kernels.Dropout(s.of(out), part, part.Len, first, d.share, d.noise.stream(d.layer, d.site)))
	}
}

// gradientView returns the result of an earlier gradient.
func (d dropout) gradientView(room, dy kernels.View) kernels.View {
	if d.share > 0 && d.noise.On {
		return room
	}
	return dy
}

// room takes the buffer of the gradient, of n elements, where it will be needed.
func (d dropout) room(a *arena, n int) kernels.View {
	if d.share == 0 {
		return kernels.View{}
	}
	return a.take(n)
}
