package comparison

import (
	"fmt"
	"math/rand/v2"

	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
)

// cards are devices of mixed clusters, with about what such cards reach.
var cards = []plan.DeviceProfile{
	{Name: "a100", MatMulFLOPS: 150e12, AttentionFLOPS: 80e12, MemoryBytesPerS: 1500e9, MemoryFreeBytes: 39 << 30, CopyBytesPerS: 10e9},
	{Name: "v100", MatMulFLOPS: 70e12, AttentionFLOPS: 30e12, MemoryBytesPerS: 850e9, MemoryFreeBytes: 31 << 30, CopyBytesPerS: 10e9},
	{Name: "3090", MatMulFLOPS: 60e12, AttentionFLOPS: 30e12, MemoryBytesPerS: 850e9, MemoryFreeBytes: 23 << 30, CopyBytesPerS: 10e9},
	{Name: "t4", MatMulFLOPS: 25e12, AttentionFLOPS: 10e12, MemoryBytesPerS: 270e9, MemoryFreeBytes: 14 << 30, CopyBytesPerS: 10e9},
	{Name: "1080ti", MatMulFLOPS: 10e12, AttentionFLOPS: 5e12, MemoryBytesPerS: 450e9, MemoryFreeBytes: 10 << 30, CopyBytesPerS: 10e9},
}

// seeded returns the random source of one cluster of a kind.
func seeded(seed, kind uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, kind)) }

// Kinds of clusters, so that the same seed makes unlike ones.
const (
	ofNested = 31 + iota
	ofGap
	ofMixed
	ofLarge
	ofKinds
)

// presetInput returns a run of a preset without members.
func presetInput(preset string, train plan.TrainSpec) planner.Input {
	cfg, err := model.Preset(preset)
	if err != nil {
		panic(err)
	}
	return planner.InputOf(plan.RunSpec{Run: "comparison", Model: cfg, Train: train})
}

// peer returns the name of a cluster's node.
func peer(i int) plan.PeerID { return plan.PeerID(fmt.Sprintf("node%03d", i)) }

// member returns a node with one device, and with links to all others of a cluster.
func member(i, nodes int, device plan.DeviceProfile, link func(to int) plan.LinkProfile) planner.Member {
	m := planner.Member{Peer: peer(i), Name: fmt.Sprintf("node-%d", i), Profile: plan.Profile{Devices: []plan.DeviceProfile{device}}}
	for j := range nodes {
		if i != j {
			l := link(j)
			l.Peer = peer(j)
			m.Profile.Links = append(m.Profile.Links, l)
		}
	}
	return m
}

// sites says where nodes are, and what lines join them.
type sites struct {
	of              []int // by node
	within, between plan.LinkProfile
}

// link returns the line from one node to another.
func (s sites) link(from, to int) plan.LinkProfile {
	if s.of[from] == s.of[to] {
		return s.within
	}
	return s.between
}

// randomSites spreads nodes over one to so many sites.
func randomSites(rng *rand.Rand, nodes, most int, within, between plan.LinkProfile) sites {
	s := sites{within: within, between: between}
	count := 1 + rng.IntN(most)
	for range nodes {
		s.of = append(s.of, rng.IntN(count))
	}
	return s
}

// nested returns a run on mixed cards at one to four sites: quick lines within a site, slow ones between them.
func nested(seed uint64, nodes int) planner.Input {
	rng := seeded(seed, ofNested)
	preset := []string{"gpt2-124m", "gpt3-1.3b"}[rng.IntN(2)]
	in := presetInput(preset, plan.TrainSpec{Micros: 8 << rng.IntN(5), MicroBatch: 1 + rng.IntN(2)})
	within := plan.LinkProfile{BytesPerS: 125e6 << rng.IntN(7), RTTNanos: 2e5 + rng.Int64N(1e6)}
	between := plan.LinkProfile{BytesPerS: 2e6 << rng.IntN(7), RTTNanos: 2e6 + rng.Int64N(1e8)}
	s := randomSites(rng, nodes, 4, within, between)
	for i := range nodes {
		in.Members = append(in.Members, member(i, nodes, cards[rng.IntN(len(cards))], func(to int) plan.LinkProfile { return s.link(i, to) }))
	}
	return in
}

// small returns a run of four to twelve layers in 1F1B, with whole optimizer state. Devices differ by up to 8 times in speed
// and 4 times in memory, most of them with room for a part of the model. Lines are those of sites, or all unlike.
func small(seed uint64, fewest, most int) planner.Input {
	rng := seeded(seed, ofGap)
	n := fewest + rng.IntN(most-fewest+1)
	in := planner.Input{Generation: 1, Run: plan.RunSpec{Run: "comparison", Model: model.Config{Vocab: 256, Channels: 64}}}
	in.Run.Train = plan.TrainSpec{Micros: 1 << rng.IntN(6), Schedule: plan.ScheduleName, Shard: plan.ShardOff}
	in.Costs = smallLayers(rng)
	whole := int64(0)
	for _, k := range in.Costs {
		whole += 4*k.ParamBytes + 4*k.SavedBytes
	}
	s := randomSites(rng, n, 3, plan.LinkProfile{BytesPerS: 125e6 << rng.IntN(4), RTTNanos: 1e5 + rng.Int64N(1e6)},
		plan.LinkProfile{BytesPerS: 1_250_000 << rng.IntN(7), RTTNanos: 2e6 + rng.Int64N(1e8)})
	unlike := rng.IntN(3) == 0
	for i := range n {
		device := plan.DeviceProfile{
			Name: "gpu", MatMulFLOPS: 1e12 + rng.Int64N(7e12), AttentionFLOPS: 5e11 + rng.Int64N(3e12), MemoryBytesPerS: 2e11,
			MemoryFreeBytes: whole/3 + rng.Int64N(whole),
		}
		in.Members = append(in.Members, member(i, n, device, func(to int) plan.LinkProfile {
			if unlike {
				return plan.LinkProfile{BytesPerS: 1_250_000 << rng.IntN(11), RTTNanos: 1e5 + rng.Int64N(1e8)}
			}
			return s.link(i, to)
		}))
	}
	return in
}

// smallLayers returns layers of a transformer, an embedding and a head around blocks, or unlike ones.
func smallLayers(rng *rand.Rand) (costs []model.LayerCost) {
	n, unlike := 4+rng.IntN(9), rng.IntN(2) == 0
	flops, params, boundary := 1e9+rng.Int64N(2e10), 1<<20+rng.Int64N(1<<25), int64(1<<16)<<rng.IntN(7)
	for l := range n {
		k := model.LayerCost{ForwardFLOPs: flops, ForwardAttention: flops / 8, ParamBytes: params, SavedBytes: 4 * boundary, BoundaryBytes: boundary}
		switch {
		case unlike:
			k.ForwardFLOPs = flops/4 + rng.Int64N(2*flops)
			k.ForwardAttention = rng.Int64N(k.ForwardFLOPs / 2)
			k.ParamBytes, k.SavedBytes = 1+rng.Int64N(2*params), 1+rng.Int64N(8*boundary)
		case l == 0:
			k = model.LayerCost{ForwardFLOPs: flops / 64, ParamBytes: 2 * params, SavedBytes: boundary, BoundaryBytes: boundary}
		case l == n-1:
			k.ForwardFLOPs, k.ForwardAttention, k.ParamBytes = 2*flops, 0, 2*params
		}
		k.InputFLOPs, k.InputAttention, k.WeightFLOPs = k.ForwardFLOPs+k.ForwardAttention, 2*k.ForwardAttention, k.ForwardFLOPs-k.ForwardAttention
		costs = append(costs, k)
	}
	return costs
}

// Large returns a run of a model of so many layers on mixed nodes that know some links each. A device has memory for some
// layers.
func Large(seed uint64, nodes, layers int) planner.Input {
	rng := seeded(seed, ofLarge)
	in := planner.Input{Generation: 1, Run: plan.RunSpec{Run: "comparison", Train: plan.TrainSpec{Micros: 256}, Model: model.Config{Vocab: 50257, Channels: 4096}}}
	for range layers {
		in.Costs = append(in.Costs, model.LayerCost{
			ForwardFLOPs: 4e11, InputFLOPs: 4e11, WeightFLOPs: 4e11, ParamBytes: 8e8, SavedBytes: 2e8, BoundaryBytes: 8 << 20,
		})
	}
	room := max(1, int64(128/nodes)) // so that fewer nodes hold the model too
	for i := range nodes {
		device := plan.DeviceProfile{Name: "cuda:0", MatMulFLOPS: 5e12 + rng.Int64N(3e13), MemoryBytesPerS: 4e11, MemoryFreeBytes: room * (6<<30 + rng.Int64N(60<<30)), CopyBytesPerS: 10e9}
		m := planner.Member{Peer: peer(i), Profile: plan.Profile{Devices: []plan.DeviceProfile{device}}}
		known := map[int]bool{i: true}
		for range 8 {
			to := rng.IntN(nodes)
			link := plan.LinkProfile{Peer: peer(to), BytesPerS: 1e7 + rng.Int64N(1e9), RTTNanos: rng.Int64N(6e7)}
			if !known[to] {
				m.Profile.Links = append(m.Profile.Links, link)
			}
			known[to] = true
		}
		in.Members = append(in.Members, m)
	}
	return in
}
