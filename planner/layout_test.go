package planner

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// kinds are schedules of each kind that four devices can run.
var kinds = []string{
	"gpipe", "depth:d=3", "kfkb:k=3", "interleaved:v=2,k=4", "depth-first:v=2", "breadth-first:v=2",
	"chimera", "chimera-doubling", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "2bp", "hanayo:v=2", "seq1f1b",
}

// lanedOf is a run of a real model on like nodes under a schedule.
func lanedOf(t *testing.T, text string, nodes int, free int64) Input {
	t.Helper()
	m, err := model.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	m.Blocks = 14
	run := plan.RunSpec{Run: "laned", Model: m, Train: plan.TrainSpec{Micros: 16, MicroBatch: 1, Replicas: 1, Stages: nodes, Schedule: text, Shard: plan.ShardOff}}
	in := Input{Run: run, Costs: m.Costs(1, model.StorageF32), Generation: 1, NodeBytes: 1 << 20}
	for i := range nodes {
		member := Member{Peer: plan.PeerID(fmt.Sprint("node-", i)), Profile: plan.Profile{Devices: []plan.DeviceProfile{{
			Name: "cpu", MatMulFLOPS: 1e10, AttentionFLOPS: 1e10, MemoryBytesPerS: 1e10, MemoryFreeBytes: free,
		}}}}
		for j := range nodes {
			if j != i {
				member.Profile.Links = append(member.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprint("node-", j)), BytesPerS: 1e7, RTTNanos: 4e6})
			}
		}
		in.Members = append(in.Members, member)
	}
	return in
}

// allocated returns what a plan's stacks take of each worker's device, with the node's own and exchanges between replicas.
func allocated(t *testing.T, in Input, p plan.Plan) []int64 {
	t.Helper()
	list, err := p.Programs()
	if err != nil {
		t.Fatal(err)
	}
	var all []int64
	for w, worker := range p.Workers() {
		sum := in.NodeBytes
		for _, at := range p.StagesOf(worker) {
			m, err := in.Run.StageStack(p, at, list.Use(w, at.Replica, at.Stage)).Memory()
			if err != nil {
				t.Fatal(err)
			}
			sum += m.Total()
			if len(p.Replicas) > 1 {
				grads, layers := int64(0), p.At(at).Layers
				for _, k := range in.Costs[layers.First:layers.End] {
					grads += k.ParamBytes
				}
				sum += 3 * min(grads, plan.ExchangedBytes)
			}
		}
		all = append(all, sum)
	}
	return all
}

// lean is the plan with everything recomputed.
func lean(p plan.Plan) plan.Plan {
	p.Replicas = slices.Clone(p.Replicas)
	for r := range p.Replicas {
		stages := slices.Clone(p.Replicas[r].Stages)
		for s := range stages {
			stages[s].Recompute = plan.JoinLevels(model.RecomputeBlock.Uniform(stages[s].Layers.Len()))
		}
		p.Replicas[r].Stages = stages
	}
	return p
}

// TestMemoryOfEveryKind: a plan fits into exactly what its programs' stacks allocate. With less
// it recomputes as much as it takes, and where it must not it is refused with the name of what
// does not fit.
func TestMemoryOfEveryKind(t *testing.T) {
	for i, text := range kinds {
		if testing.Short() && i%3 > 0 {
			continue
		}
		in := lanedOf(t, text, 4, 1<<40)
		roomy, _, err := Make(t.Context(), in)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		most := slices.Max(allocated(t, in, roomy))
		least := slices.Max(allocated(t, in, lean(roomy)))
		for _, free := range []int64{most, (most + least) / 2, least * 9 / 10} {
			in := lanedOf(t, text, 4, free)
			p, reasons, err := Make(t.Context(), in)
			if free < least {
				if !errors.Is(err, ErrNoFit) || !strings.Contains(err.Error(), ": node-") || !strings.Contains(err.Error(), " (cpu) would need ") || !strings.Contains(err.Error(), "replica 0 stage") || !strings.Contains(err.Error(), "take a schedule that keeps fewer") {
					t.Errorf("%s on devices of %d bytes: %v", text, free, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s on devices of %d bytes of %d to %d: %v", text, free, least, most, err)
				continue
			}
			if need := slices.Max(allocated(t, in, p)); need > free {
				t.Errorf("%s takes %d bytes on devices of %d", text, need, free)
			}
			if told := strings.Join(reasons.Lines(), "\n"); strings.Contains(told, "recomputes") == (free == most) {
				t.Errorf("%s on devices of %d bytes of %d to %d:\n%s", text, free, least, most, told)
			}
			in.Run.Train.Recompute = plan.Recompute(model.RecomputeNothing)
			if p, _, err = Make(t.Context(), in); err == nil && slices.Max(allocated(t, in, p)) > free {
				t.Errorf("%s without recomputation does not fit", text)
			}
		}
	}
}

// TestStepOfEveryKind has the specification's makespans, in forwards of a stage, on four like
// devices whose links take no time: backward is twice a forward.
func TestStepOfEveryKind(t *testing.T) {
	const n, p = 16, 4
	for text, want := range map[string]float64{
		"1f1b": 3 * (n + p - 1), "gpipe": 3 * (n + p - 1), "zb-h1": 3*n + (p - 1), "interleaved:v=2,k=4": 3 * (n + (p-1)/2.0),
		"2bp": 3*n + 2*(p-1), "chimera": 3*n + 2*(p-2) + 4*(n/p-1)/2.0,
	} {
		in := Input{Generation: 1, Run: plan.RunSpec{Run: "golden", Train: plan.TrainSpec{Micros: n, Replicas: 1, Stages: p, Schedule: text}}}
		for range 2 * p {
			in.Costs = append(in.Costs, model.LayerCost{ForwardFLOPs: 1e9, InputFLOPs: 1e9, WeightFLOPs: 1e9, ParamBytes: 4, SavedBytes: 1, BoundaryBytes: 4})
		}
		for i := range p {
			m := Member{Peer: plan.PeerID(fmt.Sprint(i)), Profile: plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 2e12, MemoryBytesPerS: plan.MaxMemoryBytesPerS, MemoryFreeBytes: 1 << 30}}}}
			for j := range p {
				if j == i {
					continue
				}
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprint(j)), BytesPerS: 1 << 50})
			}
			in.Members = append(in.Members, m)
		}
		plan, reasons, err := Make(t.Context(), in)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		result, err := predicted(in, plan)
		if err != nil || int64(result.Step) != stepNanos(reasons) {
			t.Errorf("%s: promised %d, predicted %d: %v", text, stepNanos(reasons), result.Step, err)
		}
		if got := float64(result.Step) / 1e6; got < want*0.999 || got > want*1.001 {
			t.Errorf("%s takes %.2f forwards, want %.2f\n%s", text, got, want, strings.Join(reasons.Lines(), "\n"))
		}
	}
}

// TestExchangesNeedTheNodesMemory: where devices share their memory with the node, two replicas need as much more as their exchange takes.
func TestExchangesNeedTheNodesMemory(t *testing.T) {
	least := func(replicas int, copies int64) int64 {
		in := lanedOf(t, plan.ScheduleName, replicas, 0)
		in.Run.Train.Replicas, in.Run.Train.Stages, in.Run.Train.Recompute, in.Run.Train.SumGroups = replicas, 1, plan.Recompute(model.RecomputeNothing), replicas
		free, err := sort.Find(1<<20, func(i int) int {
			for n := range in.Members {
				d := &in.Members[n].Profile.Devices[0]
				d.MemoryFreeBytes, d.CopyBytesPerS = int64(i+1)<<10, copies
			}
			if _, _, err := Make(t.Context(), in); err != nil {
				return 1
			}
			return 0
		})
		if !err {
			t.Fatalf("%d replicas fit nowhere", replicas)
		}
		return int64(free+1) << 10
	}
	params := int64(0)
	for _, k := range lanedOf(t, plan.ScheduleName, 1, 0).Costs {
		params += k.ParamBytes
	}
	card, node := least(2, 1e9), least(2, 0)
	if more, want := node-card, 3*min(params, plan.ExchangedBytes); more < want-1<<10 || more > want+1<<10 {
		t.Errorf("%d bytes on cards, %d of the node's: %d more, want %d", card, node, more, want)
	}
	if one := least(1, 0); one > card {
		t.Errorf("one replica needs %d bytes, two on cards %d", one, card)
	}
}
