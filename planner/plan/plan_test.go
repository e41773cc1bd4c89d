package plan

import (
	"math/rand/v2"
	"testing"
)

// TestRangesAreSets holds what is joined of random ranges against the layers one by one.
func TestRangesAreSets(t *testing.T) {
	const layers = 9
	rng := rand.New(rand.NewPCG(3, 4))
	random := func() (rs LayerRanges) {
		for range rng.IntN(3) {
			rs = append(rs, LayerRange{rng.IntN(layers), rng.IntN(layers + 1)})
		}
		return rs
	}
	for range 2000 {
		a, b := random(), random()
		with, without := a.With(b, layers), a.Without(b, layers)
		for l := range layers {
			if with.Contains(l) != (a.Contains(l) || b.Contains(l)) || without.Contains(l) != (a.Contains(l) && !b.Contains(l)) {
				t.Fatalf("%v and %v: with %v, without %v", a, b, with, without)
			}
		}
		for _, rs := range []LayerRanges{with, without} {
			for i, r := range rs {
				if r.Len() < 1 || i > 0 && r.First <= rs[i-1].End {
					t.Fatalf("%v and %v: %v are not in order with layers between them", a, b, rs)
				}
			}
		}
	}
	if text := (LayerRanges{{0, 2}, {5, 6}}).String(); text != "[0,2) and [5,6)" {
		t.Error(text)
	}
}
