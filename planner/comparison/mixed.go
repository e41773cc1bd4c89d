package comparison

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/partition"
	"pnode/planner/plan"
)

// Mixed compares the plan of a mixed cluster with splits that need no planner. Each of them is the best of all numbers of
// replicas and stages that use every device, in the order of the roster and from fast to slow, and runs with the same warm-ups
// and recomputation as a plan's. A step is zero where nothing fits.
type Mixed struct {
	Seed  uint64 `json:"seed"`
	Nodes int    `json:"nodes"`
	Lines string `json:"lines"`
	// Step is the plan's.
	Step schedule.Nanos `json:"step_ns"`
	// Equal gives each device the same number of layers, Proportional as many as suit its speed.
	Equal        schedule.Nanos `json:"equal_ns"`
	Proportional schedule.Nanos `json:"proportional_ns"`
	// Alike is the plan of devices of one kind, AlikeName the kind with the shortest step.
	Alike     schedule.Nanos `json:"alike_ns"`
	AlikeName string         `json:"alike_name,omitempty"`
	Plan      string         `json:"plan"`
}

// lines join the nodes of mixed clusters.
type lines struct {
	name            string
	sites           int
	within, between plan.LinkProfile
}

var mixedLines = []lines{
	{"10 Gbit/s, 1 ms", 1, plan.LinkProfile{BytesPerS: 1250e6, RTTNanos: 2e6}, plan.LinkProfile{}},
	{"1 Gbit/s, 10 ms", 1, plan.LinkProfile{BytesPerS: 125e6, RTTNanos: 20e6}, plan.LinkProfile{}},
	{"two sites: 10 Gbit/s within, 1 Gbit/s and 20 ms between", 2, plan.LinkProfile{BytesPerS: 1250e6, RTTNanos: 4e5}, plan.LinkProfile{BytesPerS: 125e6, RTTNanos: 40e6}},
}

// MixedLines returns how many kinds of lines there are.
func MixedLines() int { return len(mixedLines) }

// mixed returns GPT-3 with 1.3 B parameters, in 128 micro-batches a step, on as many V100, 3090, T4 and 1080 Ti: they differ by
// 7 times in speed and 3 times in memory. The seed shuffles the roster.
func mixed(seed uint64, nodes int, l lines) planner.Input {
	in, rng := presetInput("gpt3-1.3b", plan.TrainSpec{Micros: 128, MicroBatch: 1}), seeded(seed, ofMixed)
	kinds := cards[1:]
	for i, at := range rng.Perm(nodes) {
		in.Members = append(in.Members, member(i, nodes, kinds[at%len(kinds)], func(to int) plan.LinkProfile {
			if i%l.sites != to%l.sites {
				return l.between
			}
			return l.within
		}))
	}
	return in
}

// CompareMixed plans a mixed cluster on lines of a kind, and splits it by hand.
func CompareMixed(ctx context.Context, seed uint64, nodes, line int) (Mixed, error) {
	l := mixedLines[line]
	in := mixed(seed, nodes, l)
	out := Mixed{Seed: seed, Nodes: nodes, Lines: l.name}
	var err error
	if out.Step, out.Plan, err = predicted(ctx, in, in.Members...); err != nil {
		return out, err
	}
	if out.Equal, err = byHand(ctx, in, func(plan.DeviceProfile) int64 { return 1 }); err != nil {
		return out, err
	}
	if out.Proportional, err = byHand(ctx, in, func(d plan.DeviceProfile) int64 { return d.MatMulFLOPS }); err != nil {
		return out, err
	}
	for _, card := range cards {
		alike := slices.DeleteFunc(slices.Clone(in.Members), func(m planner.Member) bool { return m.Profile.Devices[0].Name != card.Name })
		if len(alike) == 0 {
			continue
		}
		step, _, err := predicted(ctx, in, alike...)
		if err != nil {
			return out, err
		}
		if step > 0 && (out.Alike == 0 || step < out.Alike) {
			out.Alike, out.AlikeName = step, card.Name
		}
	}
	return out, nil
}

// byHand returns the least step of splits that use every device, with layers by weight; 0 where none fits.
func byHand(ctx context.Context, in planner.Input, weight func(plan.DeviceProfile) int64) (least schedule.Nanos, err error) {
	fastest := slices.Clone(in.Members)
	slices.SortStableFunc(fastest, func(a, b planner.Member) int {
		return cmp.Compare(b.Profile.Devices[0].MatMulFLOPS, a.Profile.Devices[0].MatMulFLOPS)
	})
	n := len(in.Members)
	for _, order := range [][]planner.Member{in.Members, fastest} {
		for replicas := 1; replicas <= min(n, in.Run.Train.Sums().Groups); replicas++ {
			if n%replicas != 0 || n/replicas > len(in.Costs) {
				continue
			}
			if ctx.Err() != nil {
				return least, ctx.Err()
			}
			step, err := planner.StepOf(in, split(order, replicas, len(in.Costs), weight))
			switch {
			case errors.Is(err, planner.ErrNoFit):
			case err != nil:
				return least, err
			case least == 0 || step < least:
				least = step
			}
		}
	}
	return least, nil
}

// split cuts members in order into replicas of as many stages, with layers by weight.
func split(order []planner.Member, replicas, layers int, weight func(plan.DeviceProfile) int64) (groups []plan.ReplicaGroup) {
	for members := range slices.Chunk(order, len(order)/replicas) {
		var g plan.ReplicaGroup
		var weights []int64
		for _, m := range members {
			g.Workers = append(g.Workers, plan.WorkerID{Peer: m.Peer, Device: m.Profile.Devices[0].Name})
			weights = append(weights, weight(m.Profile.Devices[0]))
		}
		g.Layers = partition.Apportion(layers, weights)
		groups = append(groups, g)
	}
	return groups
}
