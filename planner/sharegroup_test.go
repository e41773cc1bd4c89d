package planner

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// unlikeInput is shardInput of three stages: two fast devices have so much memory, the others
// plenty.
func unlikeInput(free int64, tied bool) Input {
	in := shardInput(3, 1<<30)
	in.Run.Model.UntiedHead = !tied
	in.Costs = in.Run.Model.Costs(in.Run.Train.MicroBatch, model.StorageF32)
	for _, i := range []int{1, 4} {
		in.Members[i].Profile.Devices[0].MemoryFreeBytes = free
		in.Members[i].Profile.Devices[0].MatMulFLOPS *= 3
	}
	in.Run.Train.Recompute, _ = plan.ParseRecompute("nothing")
	return in
}

// TestOnlyStagesThatLackMemoryAreSharded: every group in parts has a device with little memory
// among its holders, and others are whole.
func TestOnlyStagesThatLackMemoryAreSharded(t *testing.T) {
	for _, tied := range []bool{false, true} {
		some := 0
		for free := int64(16 << 20); free > 1<<20; free -= free / int64(casesOf(12, 6)) {
			in := unlikeInput(free, tied)
			c, k, _, err := decide(t.Context(), in)
			if errors.Is(err, ErrNoFit) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range c.shareGroups(k) {
				if g.Among(k.sharded()) && !slices.ContainsFunc(g.Stages, func(at cost.Stage) bool { return c.models.whole().Devices[at.Device].FreeBytes < free }) {
					t.Errorf("%d bytes, tied %t: %v in parts on devices with much memory", free, tied, g.Layers)
				}
			}
			p, reasons, err := Make(t.Context(), in)
			if err != nil || !slices.Equal(p.Sharded, k.sharded()) {
				t.Fatalf("in parts %v, want %v, %v", p.Sharded, k.sharded(), err)
			}
			if len(k.sharded()) > 0 && len(c.models.whole().Memory.All().Without(k.sharded(), c.layers())) > 0 {
				some++
				if text, want := about(reasons, plan.ReasonSharding), "of layers "+p.Sharded.String()+", whole of layers "; !strings.Contains(text, want) {
					t.Errorf("%q is not in %q", want, text)
				}
			}
			if tied && p.InParts(0) != p.InParts(len(in.Costs)-1) {
				t.Errorf("ends of a tied embedding differ: %v", p.Sharded)
			}
			checkPlan(t, in, p, reasons)
		}
		if some == 0 {
			t.Errorf("tied %t: never were some layers in parts and others whole", tied)
		}
	}
}

// TestNoMoreIsShardedThanHelps: of a plan's groups in parts none can be whole without the passes
// taking longer, the step taking more than nearly as long, or memory running out.
func TestNoMoreIsShardedThanHelps(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 9))
	some, all := 0, 0
	n := casesOf(200, 40)
	for range n {
		in := shardInput(1+rng.IntN(3), 0)
		in.Run.Train.Schedule = []string{"", "", "zb-h1", "chimera"}[rng.IntN(4)]
		for i := range in.Members {
			in.Members[i].Profile.Devices[0].MemoryFreeBytes = []int64{exchangeOf(in) + 2<<20 + rng.Int64N(6<<20), 1 << 30}[rng.IntN(2)]
		}
		c, k, _, err := decide(t.Context(), in)
		if err != nil {
			continue
		}
		groups := c.shareGroups(k)
		for _, g := range groups {
			if !g.Among(k.sharded()) {
				continue
			}
			other, err := c.keptAs(k, k.sharded().Without(g.Layers, c.layers()), k.model.Offload)
			if err == nil && other.simulate() == nil && other.passes() <= k.passes() && other.step() <= k.step() && !other.layout.Recompute() {
				t.Errorf("%v in parts for a step of %d, whole it takes %d", g.Layers, k.estimate, other.estimate)
			}
		}
		switch {
		case len(k.sharded()) == 0:
		case len(c.models.whole().Memory.All().Without(k.sharded(), c.layers())) == 0:
			all++
		default:
			some++
		}
	}
	if some < n/40 || all < n/40 {
		t.Errorf("%d plans with some and %d with all layers in parts show little", some, all)
	}
}

// exchangeOf returns what the exchange of a whole small model takes of a node's memory.
func exchangeOf(in Input) (bytes int64) {
	for _, k := range in.Costs {
		bytes += 3 * k.ParamBytes
	}
	return bytes
}

// TestWhatElseInPartsWouldBring: on devices that have to recompute a stage says what it lacks and
// which kinds would do, by how near the replicas are to each other.
func TestWhatElseInPartsWouldBring(t *testing.T) {
	for _, c := range []struct {
		name      string
		free      int64
		bytesPerS int64
		rtt       int64
		want      string
	}{
		{"near and fast", 10_600_000, 1e9, 1e6, "optimizer state, gradients and parameters in parts would do"},
		{"far and fast", 11_200_000, 1e9, 50e6, "optimizer state and gradients in parts would do"},
		{"far and slow", 11_200_000, 1e6, 50e6, "replicas that far apart can hold nothing else in parts that would do"},
	} {
		in := shardInput(1, c.free)
		in.Run.Train.Shard = plan.ShardOn
		for i := range in.Members {
			in.Members[i].Profile.Devices[0].MemoryFreeBytes += exchangeOf(in)
		}
		for i := range in.Members {
			in.Members[i].Profile.Links = []plan.LinkProfile{{Peer: in.Members[1-i].Peer, BytesPerS: c.bytesPerS, RTTNanos: c.rtt}}
		}
		_, reasons, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		told := strings.Join(reasons.Lines(), "\n")
		if !strings.Contains(told, c.want) || !strings.Contains(told, "layers 0-7 lack ") {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, told)
		}
	}
}

// ranges returns the ranges from and up to each pair of layers.
func ranges(pairs ...int) (out plan.LayerRanges) {
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, plan.LayerRange{First: pair[0], End: pair[1]})
	}
	return out
}

// TestShardedLayersAreRanges: plans whose ranges overlap, touch or lie outside are refused.
func TestShardedLayersAreRanges(t *testing.T) {
	in := shardInput(1, 1<<30)
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		layers plan.LayerRanges
		good   bool
	}{
		{nil, true},
		{ranges(0, 8), true},
		{ranges(0, 2, 3, 8), true},
		{ranges(0, 2, 2, 8), false},
		{ranges(0, 9), false},
		{ranges(-1, 2), false},
		{ranges(3, 3), false},
		{ranges(4, 5, 1, 2), false},
	} {
		p.Sharded = c.layers
		if err := p.Validate(len(in.Costs), in.Run.Train.Sums()); (err == nil) != c.good || err != nil && !errors.Is(err, plan.ErrBadPlan) {
			t.Errorf("%v: %v", c.layers, err)
		}
	}
	const far = int(^uint(0) >> 1)
	for _, hostile := range []plan.LayerRanges{ranges(0, far), ranges(-far, 3), ranges(-5, -1), ranges(far-1, far), ranges(0, 3, 4, far)} {
		bad := p
		bad.Sharded = hostile
		next := in
		next.Previous, next.Generation = &bad, 2
		if _, _, err := Make(t.Context(), next); err != nil {
			t.Errorf("after a plan with %v in parts: %v", hostile, err)
		}
	}
	p.Sharded = ranges(0, 2, 3, 8)
	if got, want := p.Shares(plan.StageID{Replica: 1, Stage: 0})[1:4], []model.Share{{Index: 1, Count: 2}, {}, {Index: 1, Count: 2}}; !slices.Equal(got, want) {
		t.Errorf("shares %v, want %v", got, want)
	}
}
