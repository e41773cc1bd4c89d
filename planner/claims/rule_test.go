package claims

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/planner/plan"
)

func claim(peer plan.PeerID, owner bool, flops int64) Claim {
	return Claim{Peer: peer, Owner: owner, Profile: plan.Profile{Devices: []plan.DeviceProfile{{
		Name: "cuda:0", MatMulFLOPS: flops, AttentionFLOPS: flops / 2, MatMulBF16FLOPS: flops / 4, MemoryBytesPerS: flops / 8, MemoryFreeBytes: 1 << 34,
	}}}}
}

// Attack: a profile of 16 devices, each of them the fastest there could be.
func TestManyDevicesCountAsOneNewcomer(t *testing.T) {
	liar := claim("m", false, plan.MaxFLOPS)
	for len(liar.Profile.Devices) < plan.MaxDevices {
		liar.Profile.Devices = append(liar.Profile.Devices, liar.Profile.Devices[0])
	}
	two := claim("a", true, 1e12)
	two.Profile.Devices = append(two.Profile.Devices, two.Profile.Devices[0])
	got := Count(plan.StorageRule{}, []Claim{liar, two})[0]
	if got.FLOPS > 2e12 || got.FLOPS < 19e11 || got.Whole() {
		t.Errorf("counts with %d FLOP/s", got.FLOPS)
	}
	one := Count(plan.StorageRule{}, []Claim{claim("m", false, plan.MaxFLOPS), two})[0]
	if one.FLOPS > 1e12 || one.FLOPS < 9e11 {
		t.Errorf("one device counts with %d FLOP/s, the fastest proven one has 1e12", one.FLOPS)
	}
	d, from := one.Profile.Devices[0], claim("m", false, plan.MaxFLOPS).Profile.Devices[0]
	if d.MatMulFLOPS != one.FLOPS || d.MemoryBytesPerS > from.MemoryBytesPerS/9999 || d.AttentionFLOPS*2 > d.MatMulFLOPS || d.MemoryFreeBytes != from.MemoryFreeBytes {
		t.Errorf("%+v", d)
	}
}

// The speed that counts is that of the storages which the run may have.
func TestSpeedsAreThoseOfTheRun(t *testing.T) {
	card := claim("m", false, 1e12)
	card.Profile.Devices[0].MatMulBF16FLOPS = 16e12
	laptop := claim("a", true, 1e12)
	if c := Count(plan.StorageRule{}, []Claim{card, laptop})[0]; !c.Whole() {
		t.Errorf("in f32 it counts with %d of %d", c.FLOPS, c.ClaimedFLOPS)
	}
	if c := Count(plan.StorageAuto, []Claim{card, laptop})[0]; c.ClaimedFLOPS != 16e12 || c.FLOPS != 1e12 {
		t.Errorf("with bf16 it counts with %d of %d", c.FLOPS, c.ClaimedFLOPS)
	}
}

// Attack: a replica of one member that is slow says that its steps are quick, and so do those of others, which do not wait for it. What counts is how long the
// rounds took.
func TestApartARoundCounts(t *testing.T) {
	counted := Count(plan.StorageRule{}, []Claim{claim("a", true, 1e12), claim("m", false, 8e12)})
	const s = 1_000_000_000
	for name, c := range map[string]struct {
		apart bool
		step  int64 // of m
		held  bool
		ok    bool
	}{
		"together, by the word of others":            {false, 9 * s, true, true},
		"apart, in rounds of a second a step":        {true, s, true, true},
		"apart, in rounds that took nine":            {true, 9 * s, false, true},
		"apart, where it did not count in the round": {true, 0, false, false},
	} {
		w := Window{Generation: 1, PredictedNanos: s, Apart: c.apart}
		for _, m := range counted {
			work := Work{Counted: m, PlannedNanos: s, ReportedNanos: s, StepNanos: s}
			if m.Peer == "m" {
				work.StepNanos = c.step
			}
			w.Members = append(w.Members, work)
		}
		got := Rule(w)
		if len(got) > 1 || (len(got) == 1) != c.ok || c.ok && (got[0].Peer != "m" || got[0].Held != c.held) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Whatever is said, plans count on no more than what is claimed, and sums do not overflow.
func FuzzCount(f *testing.F) {
	for seed := range uint64(2000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		number := func() int64 {
			return []int64{0, 1, rng.Int64(), math.MaxInt64, math.MinInt64, -rng.Int64(), plan.MaxFLOPS, rng.Int64N(1e12)}[rng.IntN(8)]
		}
		var all []Claim
		for i := range rng.IntN(6) {
			c := Claim{Peer: plan.PeerID(rune('a' + i)), Owner: rng.IntN(4) == 0, Shown: plan.Shown{FLOPS: number(), Held: rng.IntN(2) == 0, Lowered: rng.IntN(3)}}
			for range rng.IntN(5) {
				c.Profile.Devices = append(c.Profile.Devices, plan.DeviceProfile{
					MatMulFLOPS: number(), AttentionFLOPS: number(), MatMulBF16FLOPS: number(), MatMulF16FLOPS: number(), MemoryBytesPerS: number(), MemoryFreeBytes: number(),
				})
			}
			all = append(all, c)
		}
		counted := Count([]plan.StorageRule{{}, plan.StorageAuto}[rng.IntN(2)], all)
		w := Window{Generation: 1, PredictedNanos: number(), ExplainedNanos: number()}
		for _, c := range counted {
			if c.FLOPS < 0 || c.FLOPS > c.ClaimedFLOPS || c.Owner && !c.Whole() {
				t.Errorf("%+v", c)
			}
			for d, device := range c.Profile.Devices {
				claimed := c.Claim.Profile.Devices[d]
				if device.MatMulFLOPS > max(claimed.MatMulFLOPS, 0) || device.MemoryBytesPerS > max(claimed.MemoryBytesPerS, 0) {
					t.Errorf("%+v of %+v", device, claimed)
				}
			}
			w.Members = append(w.Members, Work{Counted: c, PlannedNanos: number(), ReportedNanos: number(), StepNanos: number()})
		}
		var watch Watch
		for range 3 {
			for _, v := range append(Rule(w), watch.Note(w)...) {
				i := slices.IndexFunc(counted, func(c Counted) bool { return c.Peer == v.Peer })
				if v.FLOPS < 1 || counted[i].Owner || !v.Held && v.FLOPS > counted[i].FLOPS {
					t.Errorf("%+v of %+v", v, counted[i])
				}
			}
		}
	})
}
