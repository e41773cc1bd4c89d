package pipeline

import (
	"maps"
	"math"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

func TestLossesDoNotDependOnTheCut(t *testing.T) {
	run := testRun()
	want := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
	if first, last := math.Float64frombits(want.losses[1]), math.Float64frombits(want.losses[run.Train.Steps]); !(last < first) {
		t.Errorf("the loss went from %v to %v: nothing was learnt", first, last)
	}
	for _, c := range []struct {
		name, schedule string
		starts         []int
	}{
		{"two stages", "1f1b", []int{0, 3}},
		{"five stages", "1f1b", []int{0, 1, 2, 3, 4}},
		{"three stages of gpipe", "gpipe", []int{0, 1, 4}},
	} {
		equal(t, c.name, train(t, run, cut(run, c.schedule, c.starts), &memoryKeeper{}), want)
	}
}

func TestReplicasRepeatToTheBitHoweverTheyAreCut(t *testing.T) {
	run := testRun()
	want := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), &memoryKeeper{})
	equal(t, "unlike cuts", train(t, run, cut(run, "1f1b", []int{0, 2}, []int{0, 1, 4}), &memoryKeeper{}), want)
}

func TestResumeOnAnotherCutGivesTheSameLosses(t *testing.T) {
	run := testRun()
	keeper := &memoryKeeper{}
	whole := train(t, run, cut(run, "1f1b", []int{0, 2}), keeper)
	equal(t, "resumed", resume(t, run, keeper), whole.after(run.Train.CheckpointEvery))
}

// resume goes on from the first checkpoint, in three stages.
func resume(t *testing.T, run plan.RunSpec, keeper *memoryKeeper) result {
	t.Helper()
	rest := cut(run, "1f1b", []int{0, 1, 3})
	rest.Start, rest.Generation = run.Train.CheckpointEvery, 2
	return train(t, run, rest, keeper)
}

// after returns the results of the steps after one.
func (r result) after(start plan.Step) result {
	rest := newResult()
	for step, bits := range r.losses {
		if step > start {
			rest.losses[step] = bits
		}
	}
	for step, bits := range r.heldOut {
		if step > start {
			rest.heldOut[step] = bits
		}
	}
	for step, bits := range r.floats {
		if step > start {
			rest.floats[step] = bits
		}
	}
	return rest
}

// shared gives a plan's replicas these numbers of sum groups of the run, in order.
func shared(run plan.RunSpec, p plan.Plan, groups ...int) plan.Plan {
	sums, next := run.Train.Sums(), 0
	p.Replicas = slices.Clone(p.Replicas)
	for r, n := range groups {
		p.Replicas[r].FirstMicro, p.Replicas[r].Micros = sums.First(next), sums.MicrosOf(plan.GroupRange{First: next, End: next + n})
		next += n
	}
	return p
}

// grouped are runs whose micro-batches are added in as many groups as there are, in fewer, and in fewer that differ
// in size: of several families, with a tied embedding or not, in float32 and in halves.
func grouped() map[string]plan.RunSpec {
	runs := shareRuns()
	scaled := testRun()
	scaled.Train.Storage = plan.Storage(model.StorageF16)
	runs["gpt2 in f16"] = scaled
	for name, run := range runs {
		run.Train.Micros = 8
		runs[name] = run
	}
	fewer, odd := runs["gpt2"], runs["gpt2"]
	fewer.Train.SumGroups = 4
	odd.Train.Micros, odd.Train.SumGroups = 7, 5
	runs["gpt2, 4 groups"], runs["gpt2, 5 groups of 7"] = fewer, odd
	return runs
}

// TestLossesDoNotDependOnTheReplicas compares one replica with two to four, of even and uneven shares, cut and
// scheduled in several ways, with the optimizer state whole, in parts or in host memory: losses, held-out losses
// and states are the same to the bit.
func TestLossesDoNotDependOnTheReplicas(t *testing.T) {
	t.Parallel()
	runs := grouped()
	for i, name := range slices.Sorted(maps.Keys(runs)) {
		run := runs[name]
		n := run.Train.Sums().Groups
		alone := &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", []int{0}), alone)
		cases := []struct {
			name   string
			plan   plan.Plan
			groups []int
		}{
			{"one replica of two stages", cut(run, "gpipe", []int{0, 3}), []int{n}},
			{"one replica, offloaded", offloaded(cut(run, "1f1b", []int{0, 2})), []int{n}},
			{"two", cut(run, "1f1b", []int{0}, []int{0, 2}), []int{n / 2, n - n/2}},
			{"two, uneven", cut(run, "gpipe", []int{0, 3}, []int{0}), []int{n - 1, 1}},
			{"three, in parts", sharded(cut(run, "1f1b", []int{0, 2}, []int{0}, []int{0, 1, 4})), []int{1, n - 2, 1}},
			{"four, in parts", sharded(cut(run, "1f1b", []int{0}, []int{0, 3}, []int{0}, []int{0})), []int{1, 1, n - 3, 1}},
			{"four, offloaded", offloaded(cut(run, "1f1b", []int{0}, []int{0}, []int{0, 2}, []int{0})), []int{1, 1, 1, n - 3}},
		}
		for k, c := range cases {
			if !meets(i, k, len(cases)) {
				continue
			}
			keeper := &memoryKeeper{}
			about := name + ", " + c.name
			equal(t, about, train(t, run, shared(run, c.plan, c.groups...), keeper), want)
			equalStates(t, about, keeper, alone)
		}
	}
}
