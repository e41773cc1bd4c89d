package comparison

import (
	"context"
	"errors"
	"fmt"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
)

// Kinds compares the plan of a pipeline whose schedule is the planner's to choose with those of each kind of schedule alone.
type Kinds struct {
	Cell   int `json:"cell"`
	Stages int `json:"stages"`
	Micros int `json:"micros"`
	// LatencyMS is one way, on each line. Mixed reports that devices differ in speed.
	LatencyMS int  `json:"latency_ms"`
	Mixed     bool `json:"mixed"`
	// Step is the plan's, Schedule its kind without orders.
	Step     schedule.Nanos `json:"step_ns"`
	Schedule string         `json:"schedule"`
	// Alone has the steps of plans under one kind each, in the order of their names; kinds that cannot run there are missing.
	Alone []KindStep `json:"alone"`
}

// KindStep is the predicted step of the plan of a run that asks for a kind of schedule.
type KindStep struct {
	Kind string         `json:"kind"`
	Step schedule.Nanos `json:"step_ns"`
}

// KindCells is the number of cells: 2 to 6 stages, 1 to 4 times as many micro-batches, three latencies.
const KindCells = 5 * 4 * len(kindLatencies)

var kindLatencies = [...]int{1, 20, 150}

// kindInput returns the run of a cell: a model of 24 blocks on as many devices as stages.
func kindInput(cell int) (planner.Input, Kinds) {
	k := Kinds{Cell: cell, Stages: 2 + cell%5}
	k.Micros = k.Stages * (1 + cell/5%4)
	at := cell / 20
	k.LatencyMS, k.Mixed = kindLatencies[at], (cell+cell/5+at)%2 == 1
	rng := seeded(uint64(cell), ofKinds)
	in := planner.Input{Generation: 1, Run: plan.RunSpec{
		Run: "comparison", Model: model.Config{Vocab: 256, Channels: 64},
		Train: plan.TrainSpec{Micros: k.Micros, Replicas: 1, Stages: k.Stages, Shard: plan.ShardOff},
	}}
	flops := int64(2e10) + rng.Int64N(8e10)
	for range 24 {
		in.Costs = append(in.Costs, model.LayerCost{
			ForwardFLOPs: flops, InputFLOPs: flops, WeightFLOPs: flops, ParamBytes: 50 << 20, SavedBytes: 48 << 20, BoundaryBytes: 2 << 20,
		})
	}
	line := plan.LinkProfile{BytesPerS: 12_500_000 << rng.IntN(5), RTTNanos: 2e6 * int64(k.LatencyMS)}
	for i := range k.Stages {
		device := plan.DeviceProfile{Name: "gpu", MatMulFLOPS: 4e12, AttentionFLOPS: 2e12, MemoryBytesPerS: 4e11, MemoryFreeBytes: 12 << 30}
		if k.Mixed {
			device.MatMulFLOPS += rng.Int64N(8e12)
		}
		in.Members = append(in.Members, member(i, k.Stages, device, func(int) plan.LinkProfile { return line }))
	}
	return in, k
}

// CompareKinds plans a cell, and once more for each kind of schedule.
func CompareKinds(ctx context.Context, cell int) (Kinds, error) {
	in, out := kindInput(cell)
	p, step, _, err := planned(ctx, in, in.Members...)
	if err != nil {
		return out, err
	}
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil {
		return out, err
	}
	out.Step, out.Schedule = step, spec.Short()
	for _, kind := range schedule.Kinds() {
		if kind.NeedsCosts || (schedule.Spec{Kind: kind.Name}).Segments() > 1 {
			continue // devices are slower with parts of sequences than a prediction says
		}
		in.Run.Train.Schedule = kind.Name
		_, step, _, err := planned(ctx, in, in.Members...)
		switch {
		case errors.Is(err, plan.ErrBadInput), errors.Is(err, planner.ErrNotEnoughNodes):
			continue // the kind cannot have so many stages or micro-batches
		case err != nil:
			return out, fmt.Errorf("%s: %w", kind.Name, err)
		}
		out.Alone = append(out.Alone, KindStep{kind.Name, step})
	}
	return out, nil
}

// Least returns the kind with the shortest step alone.
func (k Kinds) Least() (least KindStep) {
	for _, a := range k.Alone {
		if least.Step == 0 || a.Step < least.Step {
			least = a
		}
	}
	return least
}

// MeanGain returns how long a step in 1F1B is in the mean of cells with as many micro-batches as stages, in per mille of the plan's,
// and how many cells these are.
func MeanGain(cells []Kinds) (permille int64, n int) {
	for _, k := range cells {
		for _, a := range k.Alone {
			if a.Kind == plan.ScheduleName && k.Micros == k.Stages {
				permille, n = permille+int64(a.Step)*1000/int64(k.Step), n+1
			}
		}
	}
	return permille / int64(max(n, 1)), n
}
