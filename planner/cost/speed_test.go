package cost

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
)

func TestDurationMatchesBigIntegers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		amount, rate := rng.Int64()>>rng.IntN(63), rng.Int64()>>rng.IntN(63)
		if rate == 0 {
			continue
		}
		want := new(big.Int).Mul(big.NewInt(amount), big.NewInt(1e9))
		want.Add(want, big.NewInt(rate-1)).Div(want, big.NewInt(rate))
		if want.Cmp(big.NewInt(int64(Longest))) > 0 {
			want.SetInt64(int64(Longest))
		}
		if got := Duration(amount, rate); int64(got) != want.Int64() {
			t.Fatalf("%d at %d a second: %d, want %v", amount, rate, got, want)
		}
	}
}

func TestDurationAtTheEdges(t *testing.T) {
	for _, tc := range []struct {
		amount, rate int64
		want         schedule.Nanos
	}{
		{0, 0, 0},
		{-5, 1, 0},
		{1, 0, Longest},
		{1, -1, Longest},
		{1, 1e9, 1},
		{1, 2e9, 1},
		{3, 2e9, 2},
		{math.MaxInt64, 1, Longest},
		{math.MaxInt64, math.MaxInt64, 1e9},
	} {
		if got := Duration(tc.amount, tc.rate); got != tc.want {
			t.Errorf("%d at %d a second: %d, want %d", tc.amount, tc.rate, got, tc.want)
		}
	}
}

func TestLayerAndHop(t *testing.T) {
	d := Speed{MatMulFLOPS: 1e9, MemoryBytesPerS: 1e9}
	got := d.Layer(&model.LayerCost{ForwardFLOPs: 100, InputFLOPs: 200, WeightFLOPs: 300, ParamBytes: 10, SavedBytes: 7})
	if want := (schedule.StageTime{Forward: 107, Input: 214, Weight: 320, Update: 80}); got != want {
		t.Errorf("layer takes %+v, want %+v", got, want)
	}
	if got.Micro() != 641 {
		t.Errorf("%+v: micro-batch %d", got, got.Micro())
	}
	d.Call = 1000
	k := model.LayerCost{ForwardFLOPs: 100, InputFLOPs: 200, WeightFLOPs: 300, ForwardCalls: 1, InputCalls: 2, WeightCalls: 3, ParamBytes: 10, SavedBytes: 7}
	if got, want := d.Layer(&k), (schedule.StageTime{Forward: 1107, Input: 2214, Weight: 3320, Update: 80}); got != want {
		t.Errorf("a layer of small calls takes %+v, want %+v", got, want)
	}
	if got, want := (Link{BytesPerS: 1e6, RTTNanos: 5000}).Hop(3), (schedule.Hop{Transfer: 3000, Latency: 2500}); got != want {
		t.Errorf("message takes %+v, want %+v", got, want)
	}
	if got := Local.Hop(1 << 30); got.Transfer > 1 || got.Latency != 0 {
		t.Errorf("a message within a node takes %+v", got)
	}
}
