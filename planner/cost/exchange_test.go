package cost

import (
	"math/rand/v2"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestExchangeTakesMemory: what is exchanged at a time, or the largest layer alone, as often as copies of it are there; nothing of one replica. What cuts
// count on is never less.
func TestExchangeTakesMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	for range 200 {
		costs := make([]model.LayerCost, 1+rng.IntN(8))
		for l := range costs {
			costs[l] = model.LayerCost{ParamBytes: rng.Int64N(plan.ExchangedBytes), FrozenBytes: 0}
			if l > 0 && l < len(costs)-1 {
				costs[l].ParamBytes = plan.ExchangedBytes / 3 // blocks are all alike
			} else if rng.IntN(2) == 0 {
				costs[l].ParamBytes *= 5
			}
			if rng.IntN(3) == 0 {
				costs[l].FrozenBytes = costs[l].ParamBytes / 2
			}
		}
		vectors := 1 + rng.IntN(3)
		one := NewMemory(Training{Costs: costs})
		b := one.InParts(Parts{Partials: 4, Exchanged: vectors})
		any, more := b.ExchangeFor(1 + rng.IntN(4))
		for first := range costs {
			sum, largest := int64(0), int64(plan.ExchangedBytes)
			for end := first + 1; end <= len(costs); end++ {
				k := costs[end-1]
				sum, largest = sum+k.ParamBytes-k.FrozenBytes, max(largest, k.ParamBytes-k.FrozenBytes)
				want := 3 * int64(vectors) * min(sum, largest)
				if got := b.Exchange(first, end); got != want || one.Exchange(first, end) != 0 {
					t.Fatalf("%v: layers [%d,%d): %d bytes, want %d, one replica %d", costs, first, end, got, want, one.Exchange(first, end))
				}
				if cut := any + more[end] - more[first]; cut < want {
					t.Fatalf("%v: layers [%d,%d): cuts count on %d bytes, want %d at least", costs, first, end, cut, want)
				}
			}
		}
	}
}
