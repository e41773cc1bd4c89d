package planner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// checkPlan wants what every plan must be: valid, within memory, each device used once,
// holders elsewhere, schedules that validate under the memory they were made for.
func checkPlan(t *testing.T, in Input, p plan.Plan, reasons plan.Reasons) {
	t.Helper()
	if err := p.Validate(len(in.Costs), in.Run.Train.Sums()); err != nil {
		t.Fatal(err)
	}
	var back plan.Plan
	if err := json.Unmarshal(p.Encode(), &back); err != nil || !bytes.Equal(back.Encode(), p.Encode()) {
		t.Fatalf("plan does not survive its bytes: %v", err)
	}
	list, err := p.Programs()
	if err != nil {
		t.Fatal(err)
	}
	for w, worker := range p.Workers() {
		held, need := p.StagesOf(worker), int64(0)
		if chunks := len(p.Replicas[held[0].Replica].Stages) / len(rowsOf(t, p)[held[0].Replica].Workers); len(held) != chunks {
			t.Fatalf("%v has %d stages, want %d", worker, len(held), chunks)
		}
		for _, at := range held {
			checkPlacement(t, in, p, at)
			need += needs(in, p, p.At(at), list.Use(w, at.Replica, at.Stage).Slots)
		}
		if free := memoryOf(t, in, worker); need > free {
			t.Fatalf("%v needs %d bytes, has %d", worker, need, free)
		}
	}
	if stepNanos(reasons) <= 0 || len(reasons.Lines()) > 64 {
		t.Fatalf("reasons %v", reasons.Lines())
	}
	for _, line := range reasons.Lines() {
		if len(line) > 512 {
			t.Fatalf("a reason of %d bytes", len(line))
		}
	}
}

// rowsOf returns the replica groups of a plan.
func rowsOf(t *testing.T, p plan.Plan) []plan.ReplicaGroup {
	t.Helper()
	groups, err := p.ReplicaGroups()
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

func checkPlacement(t *testing.T, in Input, p plan.Plan, at plan.StageID) {
	t.Helper()
	pl, last := p.At(at), int(at.Stage) == len(p.Replicas[at.Replica].Stages)-1
	i := slices.IndexFunc(in.Members, func(m Member) bool { return m.Peer == pl.Peer })
	if i < 0 || in.Members[i].Draining {
		t.Fatalf("%s is not an active member", pl.Peer)
	}
	staying := 0
	for _, m := range in.Members {
		if !m.Draining {
			staying++
		}
	}
	if pl.Holder == pl.Peer || (pl.Holder == "") != (staying == 1) {
		t.Fatalf("%s has holder %q among %d members", pl.Peer, pl.Holder, staying)
	}
	if (pl.Codec == "") != last || (!last && pl.Codec != "f32" && in.Run.Train.Codec == (plan.CodecRule{})) {
		t.Fatalf("codec %q, last %t", pl.Codec, last)
	}
}

// needs returns what a stage takes of its device at least with so many slots.
func needs(in Input, p plan.Plan, pl plan.Placement, slots int) (need int64) {
	levels, costs := in.Run.Train.Recompute.Of(pl), in.Costs
	if in.Run.Train.Storage.Of(pl) != model.StorageF32 {
		costs = in.HalfCosts
	}
	for l, k := range costs[pl.Layers.First:pl.Layers.End] {
		if levels[l] != model.RecomputeNothing {
			k = k.At(levels[l])
		}
		shares := int64(max(1, p.Share(0, pl.Layers.First+l).Count))
		need += 2*k.ParamBytes + k.CopyBytes + int64(slots)*k.SavedBytes
		if !pl.Offload {
			need += 2 * k.ParamBytes / shares
		}
	}
	return need
}

func memoryOf(t *testing.T, in Input, worker plan.WorkerID) int64 {
	t.Helper()
	for _, m := range in.Members {
		for _, d := range m.Profile.Devices {
			if m.Peer == worker.Peer && d.Name == worker.Device {
				return d.MemoryFreeBytes
			}
		}
	}
	t.Fatalf("%s has no device %s", worker.Peer, worker.Device)
	return 0
}

// randomInput makes small mixed clusters, some links measured.
func randomInput(rng *rand.Rand) Input {
	in := Input{Generation: 1 + plan.Generation(rng.IntN(5)), Start: plan.Step(rng.IntN(9)), Run: plan.RunSpec{Run: "random"}}
	in.Run.Train = plan.TrainSpec{Micros: 1 + rng.IntN(24), UnevenShares: rng.IntN(2) == 0}
	in.Run.Model = model.Config{Vocab: 256, Channels: 64}
	for range 3 + rng.IntN(10) {
		flops := 1e7 + rng.Int64N(1e9)
		in.Costs = append(in.Costs, model.LayerCost{
			ForwardFLOPs: flops, InputFLOPs: flops, WeightFLOPs: flops,
			ParamBytes: rng.Int64N(1 << 22), SavedBytes: 1 + rng.Int64N(1<<22), BoundaryBytes: 1 << 17,
		})
	}
	n := 1 + rng.IntN(8)
	for i := range n {
		m := Member{Peer: plan.PeerID(fmt.Sprintf("node%02d", i)), Draining: n > 2 && rng.IntN(10) == 0}
		for d := range 1 + rng.IntN(2) {
			m.Profile.Devices = append(m.Profile.Devices, plan.DeviceProfile{
				Name: fmt.Sprintf("dev:%d", d), MatMulFLOPS: 1e9 + rng.Int64N(1e11), MemoryBytesPerS: 1e9 + rng.Int64N(1e10), MemoryFreeBytes: 1<<20 + rng.Int64N(1<<27),
			})
		}
		for j := range n {
			if j != i && rng.IntN(3) > 0 {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprintf("node%02d", j)), BytesPerS: 1e5 + rng.Int64N(1e9), RTTNanos: rng.Int64N(1e8)})
			}
		}
		in.Members = append(in.Members, m)
	}
	return in
}

func shuffled(rng *rand.Rand, in Input) Input {
	in.Members = slices.Clone(in.Members)
	rng.Shuffle(len(in.Members), func(i, j int) { in.Members[i], in.Members[j] = in.Members[j], in.Members[i] })
	for i := range in.Members {
		p := &in.Members[i].Profile
		p.Devices, p.Links = slices.Clone(p.Devices), slices.Clone(p.Links)
		rng.Shuffle(len(p.Devices), func(i, j int) { p.Devices[i], p.Devices[j] = p.Devices[j], p.Devices[i] })
		rng.Shuffle(len(p.Links), func(i, j int) { p.Links[i], p.Links[j] = p.Links[j], p.Links[i] })
	}
	return in
}

func TestRandomPlans(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	planned := 0
	n := casesOf(120, 4)
	for range n {
		in := randomInput(rng)
		p, reasons, err := Make(t.Context(), in)
		if err != nil {
			if !errors.Is(err, ErrNoFit) && !errors.Is(err, ErrNotEnoughNodes) {
				t.Fatalf("%+v: %v", in, err)
			}
			continue
		}
		planned++
		checkPlan(t, in, p, reasons)
		p2, reasons2, err := Make(t.Context(), shuffled(rng, in))
		if err != nil || !bytes.Equal(p.Encode(), p2.Encode()) || !slices.Equal(reasons, reasons2) {
			t.Fatalf("another order of members gives another plan:\n%s\n%s\n%v", p.Encode(), p2.Encode(), err)
		}
		result, err := predicted(in, p)
		if err != nil || int64(result.Step) != stepNanos(reasons) {
			t.Fatalf("predicted %d (%v), promised %d", result.Step, err, stepNanos(reasons))
		}
		checkSuccessor(t, rng, in, p)
	}
	if planned < n/2 {
		t.Errorf("only %d of %d could be planned", planned, n)
	}
}

// checkSuccessor plans again: nothing changed, nothing moves; a member less, still valid.
func checkSuccessor(t *testing.T, rng *rand.Rand, in Input, p plan.Plan) {
	t.Helper()
	in.Previous, in.Generation = &p, p.Generation+1
	again, reasons, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	now, err := predicted(in, p)
	if err != nil {
		t.Fatal(err)
	}
	for r, pipe := range again.Replicas {
		if len(again.Replicas) != len(p.Replicas) || !slices.Equal(pipe.Stages, p.Replicas[r].Stages) {
			t.Fatalf("the same members are planned anew, %d ns after %d:\n%s\n%s", stepNanos(reasons), now.Step, p.Encode(), again.Encode())
		}
	}
	if d, err := ShouldReplan(t.Context(), in, p); err != nil || d.Replan {
		t.Fatalf("nothing changed, but %+v, %v", d, err)
	}
	lost := p.Peers()[rng.IntN(len(p.Peers()))]
	in.Members = slices.DeleteFunc(slices.Clone(in.Members), func(m Member) bool { return m.Peer == lost })
	if d, err := ShouldReplan(t.Context(), in, p); err != nil || !d.Replan {
		t.Fatalf("%s is gone, but %+v, %v", lost, d, err)
	}
	if next, reasons, err := Make(t.Context(), in); err == nil {
		checkPlan(t, in, next, reasons)
	}
}

func TestMakeRefuses(t *testing.T) {
	good := func() Input {
		return Input{
			Generation: 1, Costs: make([]model.LayerCost, 4), Run: plan.RunSpec{Train: plan.TrainSpec{Micros: 4}},
			Members: []Member{{Peer: "a", Profile: plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 1, MemoryBytesPerS: 1, MemoryFreeBytes: 1}}}}},
		}
	}
	if _, _, err := Make(t.Context(), good()); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*Input)
		want   error
	}{
		"generation 0":      {func(in *Input) { in.Generation = 0 }, plan.ErrBadInput},
		"no layers":         {func(in *Input) { in.Costs = nil }, plan.ErrBadInput},
		"no micro-batches":  {func(in *Input) { in.Run.Train.Micros = 0 }, plan.ErrBadInput},
		"micros < replicas": {func(in *Input) { in.Run.Train.Replicas = 5 }, plan.ErrBadInput},
		"stages > layers":   {func(in *Input) { in.Run.Train.Stages = 5 }, plan.ErrBadInput},
		"negative cost":     {func(in *Input) { in.Costs[1].ForwardFLOPs = -1 }, plan.ErrBadInput},
		"absurd layer":      {func(in *Input) { in.Costs[1].SavedBytes = 1 << 60 }, plan.ErrBadInput},
		"twice":             {func(in *Input) { in.Members = append(in.Members, in.Members[0]) }, ErrNotEnoughNodes},
		"nobody":            {func(in *Input) { in.Members = nil }, ErrNotEnoughNodes},
		"nothing measured":  {func(in *Input) { in.Members[0].Profile = plan.Profile{} }, ErrNotEnoughNodes},
		"too few":           {func(in *Input) { in.Run.Train.Stages, in.Run.Train.Replicas = 2, 2 }, ErrNotEnoughNodes},
		"too large":         {func(in *Input) { in.Costs[0].ParamBytes = 1000 }, ErrNoFit},
	} {
		in := good()
		tc.change(&in)
		if p, _, err := Make(t.Context(), in); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v; want %v", name, p, err, tc.want)
		} else if strings.Contains(err.Error(), "0 of 0") {
			t.Errorf("%s: people read %v", name, err)
		}
	}
}

// TestUnmeasuredLinksAreNotPreferred: three nodes whose measured links are slow are no better off
// where nobody measured.
func TestUnmeasuredLinksAreNotPreferred(t *testing.T) {
	in, _ := fourNodes(t)
	in.Previous, in.Run.Train.Schedule = nil, plan.ScheduleName
	slow := plan.LinkProfile{BytesPerS: 2_500_000, RTTNanos: 40e6}
	for i := range in.Members {
		in.Members[i].Profile.Links = nil
	}
	for _, pair := range [][2]int{{0, 1}, {2, 3}, {0, 2}} {
		link := slow
		link.Peer = in.Members[pair[1]].Peer
		m := &in.Members[pair[0]]
		m.Profile.Links = append(m.Profile.Links, link)
	}
	some, reasons, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for i := range in.Members {
		in.Members[i].Profile.Links = nil
		for j := range in.Members {
			if link := slow; i != j {
				link.Peer = in.Members[j].Peer
				in.Members[i].Profile.Links = append(in.Members[i].Profile.Links, link)
			}
		}
	}
	all, promised, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(some.Replicas[0].Warmups, all.Replicas[0].Warmups) || stepNanos(reasons) != stepNanos(promised) {
		t.Errorf("with some links measured warm-ups %v and %d ns, with all, which are alike, %v and %d ns",
			some.Replicas[0].Warmups, stepNanos(reasons), all.Replicas[0].Warmups, stepNanos(promised))
	}
}

// casesOf returns how many random cases a test looks at: fewer where there is little time.
func casesOf(all, short int) int {
	if testing.Short() {
		return short
	}
	return all
}

// stepNanos returns the predicted time of a step, 0 when there is none.
func stepNanos(reasons plan.Reasons) int64 {
	for _, r := range reasons {
		if r.Kind == plan.ReasonStepTime {
			return r.Nanos
		}
	}
	return 0
}
