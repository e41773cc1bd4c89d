package planner

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// apartInput has machines that train 30 million parameters with local steps: a machine computes so many FLOP/s, and between
// any two there is a line of so many Mbit/s and ns there and back.
func apartInput(flops []int64, mbits, rtt int64) Input {
	run := plan.RunSpec{Run: "apart", Model: model.Config{Vocab: 8192, Context: 512, Blocks: 8, Heads: 8, Channels: 512}}
	run.Train = plan.TrainSpec{Steps: 20_000, Micros: 16, MicroBatch: 8, Sync: plan.SyncRule{Local: true}}
	in := InputOf(run)
	for i, rate := range flops {
		m := Member{Peer: plan.PeerID(fmt.Sprintf("node%02d", i))}
		m.Profile.Devices = []plan.DeviceProfile{{Name: "gpu:0", MatMulFLOPS: rate, MemoryBytesPerS: 3e11, MemoryFreeBytes: 24 << 30}}
		for j := range flops {
			if j != i {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprintf("node%02d", j)), BytesPerS: mbits * 125_000, RTTNanos: rtt})
			}
		}
		in.Members = append(in.Members, m)
	}
	return in
}

func makeStep(t *testing.T, in Input) (plan.Plan, int64, plan.Reasons) {
	t.Helper()
	p, reasons, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return p, stepNanos(reasons), reasons
}

// TestLikeReplicas: each of several like machines adds nearly its own tokens a second, on any line of 10 Mbit/s or more.
func TestLikeReplicas(t *testing.T) {
	for _, n := range []int{2, 4, 8} {
		for _, mbits := range []int64{10, 50, 100, 1000} {
			for _, ms := range []int64{5, 100} {
				flops := slices.Repeat([]int64{2e12}, n)
				_, alone, _ := makeStep(t, apartInput(flops[:1], mbits, ms*1e6))
				in := apartInput(flops, mbits, ms*1e6)
				p, step, reasons := makeStep(t, in)
				checkPlan(t, in, p, reasons)
				least := int64(95)
				if mbits == 10 {
					least = 90
				}
				if rate := alone * 100 / step; p.Local == nil || len(p.Replicas) != n || rate < least*int64(n) {
					t.Errorf("%d machines at %d Mbit/s, %d ms: %d replicas with %+v, %d%% of one machine's tokens a second, want %d%%",
						n, mbits, ms, len(p.Replicas), p.Local, rate, least*int64(n))
				}
				if !strings.Contains(strings.Join(reasons.Lines(), "\n"), "on their own") {
					t.Errorf("nothing says how they come together: %q", reasons.Lines())
				}
				in.Run.Train.Sync = plan.SyncRule{}
				if mbits > 50 {
					continue
				}
				if _, every, _ := makeStep(t, in); every < step {
					t.Errorf("%d machines at %d Mbit/s: %d ns in every step together, %d with local steps", n, mbits, every, step)
				}
			}
		}
	}
}

// TestPairs: a mixed pair is never slower than the better of both alone, on any line. Where both have the memory of a replica, they come near the sum of both: the more
// micro-batches a step has the nearer, as replicas take whole ones.
func TestPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 10))
	between := func(low, high float64) float64 { return low * math.Pow(high/low, rng.Float64()) }
	var few, many []int64 // thousandths of the sum, of steps of fewer than 32 micro-batches and of others
	n, tight := casesOf(1000, 60), 0
	for i := range n {
		flops := []int64{int64(between(1e11, 6e12)), int64(between(1e11, 6e12))}
		mbits, rtt := int64(between(10, 1000)), int64(between(2e6, 200e6))
		in := apartInput(flops, mbits, rtt)
		in.Run.Train.Micros = 2 + rng.IntN(63)
		if rng.IntN(4) == 0 { // a device that may not hold the model alone
			in.Members[1].Profile.Devices[0].MemoryFreeBytes = int64(between(5e8, 4e9))
		}
		best, sum, hold := int64(math.MaxInt64), 0.0, 0
		for d := range flops {
			one := in
			one.Members = in.Members[d : d+1]
			_, reasons, err := Make(t.Context(), one)
			if errors.Is(err, ErrNoFit) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			step := stepNanos(reasons)
			best, sum, hold = min(best, step), sum+1/float64(step), hold+1
		}
		p, step, reasons := makeStep(t, in)
		checkPlan(t, in, p, reasons)
		if step > best {
			t.Errorf("pair %d, %v FLOP/s at %d Mbit/s, %d ns: %d ns, the better one alone %d", i, flops, mbits, rtt, step, best)
		}
		both := in
		if both.Run.Train.Replicas = 2; hold < 2 {
			continue
		}
		if _, _, err := Make(t.Context(), both); errors.Is(err, ErrNoFit) {
			tight++ // one has no memory for what outer steps keep
			continue
		}
		part := int64(1000 / (sum * float64(step)))
		if in.Run.Train.Micros < 32 {
			few = append(few, part)
		} else {
			many = append(many, part)
		}
	}
	t.Logf("%d pairs, %d of them hold the model each, but not what outer steps keep", n, tight)
	for _, of := range []struct {
		what         string
		parts        []int64
		tenth, least int64
	}{{"2 to 31 micro-batches", few, 800, 500}, {"32 to 64", many, 900, 850}} {
		slices.Sort(of.parts)
		at := func(percent int) int64 { return of.parts[len(of.parts)*percent/100] }
		t.Logf("%s: %d pairs with the memory: least %d, p10 %d, median %d, most %d thousandths of the sum of both", of.what, len(of.parts), at(0), at(10), at(50), of.parts[len(of.parts)-1])
		if at(0) < of.least || at(10) < of.tenth {
			t.Errorf("%s: least %d and p10 %d thousandths of the sum, want %d and %d", of.what, at(0), at(10), of.least, of.tenth)
		}
	}
}

// TestRandomApart: plans with local steps are plans, do not depend on the order of the members, and are kept where nothing has changed.
func TestRandomApart(t *testing.T) {
	rng, local := rand.New(rand.NewPCG(5, 22)), 0
	for i := range casesOf(24, 8) {
		in := randomInput(rng)
		in.Members = in.Members[:min(len(in.Members), 4)]
		for l := range in.Costs { // steps of seconds
			k := &in.Costs[l]
			k.ForwardFLOPs, k.InputFLOPs, k.WeightFLOPs = 40*k.ForwardFLOPs, 40*k.InputFLOPs, 40*k.WeightFLOPs
		}
		for _, m := range in.Members {
			for d := range m.Profile.Devices {
				m.Profile.Devices[d].MemoryFreeBytes += 1 << 29
			}
		}
		in.Run.Train.Steps, in.Run.Train.Sync = 100_000, plan.SyncRule{Local: true, Every: plan.Step(rng.IntN(3) * 7), Warmup: plan.Step(rng.IntN(2) * 6)}
		in.Run.Train.Sync.Codec = []string{"", "f32", "topk"}[rng.IntN(3)]
		in.Stream = plan.Stream{Given: []plan.MicroRange{{First: 3, End: 5}}, Fresh: 9}
		p, reasons, err := Make(t.Context(), in)
		if err != nil {
			continue // TestRandomPlans looks at why
		}
		checkPlan(t, in, p, reasons)
		warm := in.Start < in.Run.Train.Sync.Warmup
		if (p.Local != nil) != (len(p.Replicas) > 1 && !warm) || p.Stream.Fresh != 9 {
			t.Errorf("input %d: %d replicas, warm-up %t: %+v, stream %+v", i, len(p.Replicas), warm, p.Local, p.Stream)
		}
		other, _, err := Make(t.Context(), shuffled(rng, in))
		if err != nil || !bytes.Equal(other.Encode(), p.Encode()) {
			t.Errorf("input %d: another plan in another order of members: %v", i, err)
		}
		if p.Local == nil {
			continue
		}
		local++
		if c, sync := p.Local, in.Run.Train.Sync; sync.Every != 0 && c.Every != sync.Every || sync.Codec != "" && c.Codec != sync.Codec {
			t.Errorf("input %d: %+v for %v", i, c, sync)
		}
		d, err := ShouldReplan(t.Context(), in, p)
		if err != nil || d.Replan {
			t.Errorf("input %d: %+v, %v", i, d, err)
		}
		seen, err := Expect(in, p, Measured{})
		if promised := stepNanos(reasons); err != nil || max(seen.StepNanos-promised, promised-seen.StepNanos)*50 > promised {
			t.Errorf("input %d: %d ns expected, %d promised: %v", i, seen.StepNanos, promised, err)
		}
	}
	if local < casesOf(6, 2) {
		t.Errorf("only %d plans with local steps", local)
	}
}

// TestAskedReplicasYield to fewer with local steps where one of them takes so long that these are twice as fast, by what was seen of it or by its profile. They
// are back when it is.
func TestAskedReplicasYield(t *testing.T) {
	in := apartInput([]int64{2e12, 2e12, 2e12}, 1000, 1e6)
	in.Run.Train.Replicas, in.Run.Train.Micros = 3, 6
	like, _, reasons := makeStep(t, in)
	checkPlan(t, in, like, reasons)
	slow := in
	slow.Ratios = []Ratio{{Worker: plan.WorkerID{Peer: "node02", Device: "gpu:0"}, Permille: 22_627}}
	slow.Generation = like.Generation + 1
	if d, err := ShouldReplan(t.Context(), slow, like); err != nil || !d.Replan || d.Change.Now < 2*d.Change.Then {
		t.Errorf("%+v, %v", d, err)
	}
	slow.Previous = &like
	fewer, _, reasons := makeStep(t, slow)
	if len(like.Replicas) != 3 || len(fewer.Replicas) != 2 || fewer.Places("node02") || !strings.Contains(strings.Join(reasons.Lines(), "\n"), "2 of 3 replicas that were asked for") {
		t.Errorf("%d replicas, then %d: %q", len(like.Replicas), len(fewer.Replicas), reasons.Lines())
	}
	slow.Generation++
	if d, err := ShouldReplan(t.Context(), slow, fewer); err != nil || d.Replan {
		t.Errorf("again: %+v, %v", d, err)
	}
	back := in
	back.Generation = slow.Generation
	if d, err := ShouldReplan(t.Context(), back, fewer); err != nil || !d.Replan {
		t.Errorf("fast again: %+v, %v", d, err)
	}
	unlike := apartInput([]int64{2e12, 2e12, 5e10}, 1000, 1e6)
	unlike.Run.Train.Replicas, unlike.Run.Train.Micros = 3, 6
	if p, _, _ := makeStep(t, unlike); len(p.Replicas) != 2 {
		t.Errorf("by its profile: %d replicas", len(p.Replicas))
	}
	unlike.Run.Train.Micros, unlike.Run.Train.SumGroups = 96, 96
	if p, _, _ := makeStep(t, unlike); len(p.Replicas) != 3 || slices.MinFunc(p.Replicas, func(a, b plan.Pipeline) int { return a.Micros - b.Micros }).Micros > 2 {
		t.Errorf("with a small share: %+v", p.Replicas)
	}
}
