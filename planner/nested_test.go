package planner

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

var (
	chains    = flag.Int("chains", 4, "so many chains of nested clusters TestNestedClusters plans: go test ./planner -run Nested -chains 50 -chain-nodes 64 -timeout 2h -v")
	chainMost = flag.Int("chain-nodes", 8, "so many nodes the largest cluster of a chain has")
)

// cards are devices of mixed clusters, with about what such cards reach.
var cards = []plan.DeviceProfile{
	{Name: "a100", MatMulFLOPS: 150e12, AttentionFLOPS: 80e12, MemoryBytesPerS: 1500e9, MemoryFreeBytes: 39 << 30},
	{Name: "v100", MatMulFLOPS: 70e12, AttentionFLOPS: 30e12, MemoryBytesPerS: 850e9, MemoryFreeBytes: 31 << 30},
	{Name: "t4", MatMulFLOPS: 25e12, AttentionFLOPS: 10e12, MemoryBytesPerS: 270e9, MemoryFreeBytes: 14 << 30},
	{Name: "3090", MatMulFLOPS: 60e12, AttentionFLOPS: 30e12, MemoryBytesPerS: 850e9, MemoryFreeBytes: 23 << 30},
	{Name: "1080ti", MatMulFLOPS: 10e12, AttentionFLOPS: 5e12, MemoryBytesPerS: 450e9, MemoryFreeBytes: 10 << 30},
}

// TestNestedClusters: a run is never planned to be slower because nodes have joined. Each cluster of a chain has the nodes of the one
// before and more, on several sites.
func TestNestedClusters(t *testing.T) {
	for seed := range uint64(*chains) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 31))
			whole := sites(rng, *chainMost)
			least, at := schedule.Nanos(0), 0
			for n := 1; n <= len(whole.Members); n = larger(n, len(whole.Members)) {
				in := whole
				in.Members = whole.Members[:n]
				_, reasons, err := Make(t.Context(), in)
				if err != nil {
					if least > 0 || n == len(whole.Members) {
						t.Errorf("%d nodes: %v", n, err)
					}
					continue // too small for the model
				}
				step := schedule.Nanos(stepNanos(reasons))
				t.Logf("%d nodes: %s", n, reasons.Lines()[0])
				if least > 0 && step > least+least/1000 {
					t.Errorf("%d nodes: a step of %s; %d of them need %s, %s less", n, plan.Time(step), at, plan.Time(least), plan.Permille(slower(least, step)))
				}
				if least == 0 || step < least {
					least, at = step, n
				}
			}
		})
	}
}

// TestMoreCardsOnSlowLines: of 24 mixed cards on lines of 1 Gbit/s those are left out that 8 of them do better without. Exchanges between
// replicas would take most of a step there.
func TestMoreCardsOnSlowLines(t *testing.T) {
	cfg, err := model.Preset("gpt3-1.3b")
	if err != nil {
		t.Fatal(err)
	}
	whole := Input{Generation: 1, Run: plan.RunSpec{Run: "nested", Model: cfg, Train: plan.TrainSpec{Micros: 128, MicroBatch: 1}}, Costs: cfg.Costs(1, model.StorageF32)}
	for i := range 24 {
		m := Member{Peer: plan.PeerID(fmt.Sprintf("node%03d", i))}
		m.Profile.Devices = []plan.DeviceProfile{cards[i%len(cards)]}
		for j := range 24 {
			if i != j {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprintf("node%03d", j)), BytesPerS: 125e6, RTTNanos: 20e6})
			}
		}
		whole.Members = append(whole.Members, m)
	}
	var steps []schedule.Nanos
	for _, n := range []int{8, 24} {
		in := whole
		in.Members = whole.Members[:n]
		_, reasons, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, schedule.Nanos(stepNanos(reasons)))
	}
	if steps[1] > steps[0]+steps[0]/1000 {
		t.Errorf("24 cards: a step of %s, 8 of them need %s", plan.Time(steps[1]), plan.Time(steps[0]))
	}
}

// larger returns the size of the cluster after one of n nodes: a quarter more, and the whole in the end.
func larger(n, whole int) int {
	if n == whole {
		return whole + 1
	}
	return min(n+1+n/4, whole)
}

// sites returns a run on n mixed nodes at one to four sites: quick lines within a site, slow ones between them.
func sites(rng *rand.Rand, n int) Input {
	preset := []string{"gpt2-124m", "gpt3-1.3b"}[rng.IntN(2)]
	cfg, err := model.Preset(preset)
	if err != nil {
		panic(err)
	}
	train := plan.TrainSpec{Micros: 8 << rng.IntN(5), MicroBatch: 1 + rng.IntN(2)}
	in := Input{Generation: 1, Run: plan.RunSpec{Run: "nested", Model: cfg, Train: train}, Costs: cfg.Costs(train.MicroBatch, model.StorageF32)}
	within := plan.LinkProfile{BytesPerS: 125e6 << rng.IntN(7), RTTNanos: 2e5 + rng.Int64N(1e6)}
	count := 1 + rng.IntN(4)
	between := plan.LinkProfile{BytesPerS: 2e6 << rng.IntN(7), RTTNanos: 2e6 + rng.Int64N(1e8)}
	var site []int
	for range n {
		site = append(site, rng.IntN(count))
	}
	for i := range n {
		m := Member{Peer: plan.PeerID(fmt.Sprintf("node%03d", i)), Name: fmt.Sprintf("node-%d", i)}
		m.Profile.Devices = []plan.DeviceProfile{cards[rng.IntN(len(cards))]}
		for j := range n {
			link := between
			if site[i] == site[j] {
				link = within
			}
			link.Peer = plan.PeerID(fmt.Sprintf("node%03d", j))
			if i != j {
				m.Profile.Links = append(m.Profile.Links, link)
			}
		}
		in.Members = append(in.Members, m)
	}
	return in
}
