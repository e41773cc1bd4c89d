package planner

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/planner/plan"
)

// TestNoNeighbourIsQuicker: no two devices of a plan that change places, and no layer that goes to the next stage, make its step
// shorter, but for one of the plans of many devices.
func TestNoNeighbourIsQuicker(t *testing.T) {
	rng, changes, late := rand.New(rand.NewPCG(23, 24)), 0, 0
	for range casesOf(60, 30) {
		in := randomInput(rng)
		in.Run.Train.Schedule, in.Run.Train.Shard = plan.ScheduleName, plan.ShardOff
		p, reasons, err := Make(t.Context(), in)
		if err != nil || len(p.Replicas) > 1 {
			continue
		}
		groups, err := p.ReplicaGroups()
		if err != nil {
			t.Fatal(err)
		}
		group, quicker := groups[0], 0
		check := func(what string, workers []plan.WorkerID, layers []int) {
			changes++
			step, err := StepOf(in, []plan.ReplicaGroup{{Workers: workers, Layers: layers}})
			if err != nil || int64(step) >= stepNanos(reasons) {
				return
			}
			if quicker++; devicesIn(in) <= dropUpTo {
				t.Errorf("%s: %s instead of %s", what, plan.Time(step), reasons.Lines()[0])
			}
		}
		for i := 1; i < len(group.Layers); i++ {
			if layers := slices.Clone(group.Layers); layers[i] > 1 {
				layers[i-1], layers[i] = layers[i-1]+1, layers[i]-1
				check("a layer to the stage before", group.Workers, layers)
			}
			workers := slices.Clone(group.Workers)
			workers[i-1], workers[i] = workers[i], workers[i-1]
			check("two devices in each other's place", workers, group.Layers)
		}
		late += min(quicker, 1)
	}
	if late > 1 { // the changes that are tried of more devices are bounded
		t.Errorf("%d plans of more than %d devices have a quicker neighbour", late, dropUpTo)
	}
	if changes < 20 {
		t.Errorf("only %d changes were tried", changes)
	}
}

// devicesIn counts the devices of an input.
func devicesIn(in Input) (n int) {
	for _, m := range in.Members {
		n += len(m.Profile.Devices)
	}
	return n
}
