package model

import "pnode/kernels"

// RoundWeights enqueues bringing the copies in halves of all layers up to date with Params: see
// Rounded. With such a storage it must follow every change of them that did not write the copies
// itself; with F32 storage it does nothing.
func (s *State) RoundWeights(q kernels.Queue, n Noise) { s.roundWeights(q, n) }

func (s *State) roundWeights(q issuer, n Noise) {
	for i := range s.copies {
		layer := s.cfg.First + i
		for _, r := range s.roundedAlike(layer) {
			half, how := s.Rounded(layer, r, n)
			q.Do(kernels.CastRounded(half, s.params[i].Slice(r.First, r.Len()), r.Len(), how))
		}
	}
}

// roundedAlike are the elements of a layer in ranges that one call can round: without those that
// are rounded with the embedding.
func (s *State) roundedAlike(layer int) (ranges []Range) {
	m := s.cfg.Model
	tied := tiedFrom(m, layer)
	end := m.LayerLen(layer)
	if layer == m.Layers()-1 {
		end -= s.SharedTail()
	}
	first := 0
	for _, at := range []int{m.FrozenLen(layer), tied, end} {
		if at = min(at, end); at > first {
			ranges = append(ranges, Range{first, at})
			first = at
		}
	}
	return ranges
}

// Rounded is where the copy in halves of elements of a layer's Params is, and how it is made of them:
// absent with F32 storage. The elements are trained or not, and of a tied matrix or not: all
// alike.
//
// A noise that is on rounds those that are trained by chance, with numbers that depend on its
// seed, its step and the element's place in the model alone, and rounds both ends of a tied
// matrix alike. So the copy that an update of a step writes is what a resumption makes of the
// parameters after that step. What is not trained is the same at every step, and its nearest
// neighbour the best. F16 is always rounded to that.
func (s *State) Rounded(layer int, r Range, n Noise) (kernels.View, kernels.Rounding) {
	if s.copies == nil {
		return kernels.View{}, kernels.Rounding{}
	}
	half, first := s.copies[s.local(layer)].Slice(r.First, r.Len()), r.First
	if !n.On || s.cfg.Storage != StorageBF16 || first < s.cfg.Model.FrozenLen(layer) {
		return half, kernels.Rounding{}
	}
	if tied := tiedFrom(s.cfg.Model, layer); first >= tied {
		layer, first = 0, first-tied
	}
	return half, kernels.Rounding{Stochastic: true, First: first, Random: n.stream(layer, siteWeights)}
}

// tiedFrom is where in the head's vector the copy of the embedding begins; the end where there is
// none, or one that is not trained.
func tiedFrom(c Config, layer int) int {
	n := c.LayerLen(layer)
	if layer == c.Layers()-1 {
		n -= c.TiedGradLen()
	}
	return n
}
