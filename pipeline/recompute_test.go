package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
)

// lean are the levels that drop something.
var lean = []model.Recompute{model.RecomputeOutputs, model.RecomputeBlock}

func TestRecomputationGivesTheSameLosses(t *testing.T) {
	t.Parallel()
	runs := families()
	runs["gpt2"] = testRun()
	for name, run := range runs {
		run.Train.Steps = 3
		want := train(t, run, cut(run, "1f1b", []int{0, 1, 3}), &memoryKeeper{})
		for _, level := range lean {
			run.Train.Recompute = plan.Recompute(level)
			equal(t, name+" "+level.String(), train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{}), want)
			equal(t, name+" "+level.String()+" in three stages", train(t, run, cut(run, "1f1b", []int{0, 1, 3}), &memoryKeeper{}), want)
		}
	}
}

// TestRecomputationSavesMemory wants less for each level than for the one before, on a stage
// with blocks and several micro-batches in flight.
func TestRecomputationSavesMemory(t *testing.T) {
	for name, run := range families() {
		p := cut(run, "1f1b", []int{0, 3, 4})
		before := stageBytes(t, run, p)
		for _, level := range lean {
			run.Train.Recompute = plan.Recompute(level)
			got := stageBytes(t, run, p)
			if got >= before {
				t.Errorf("%s: %v takes %d bytes, the level before it %d", name, level, got, before)
			}
			before = got
		}
	}
}

// stageBytes returns the memory that the first stage takes.
func stageBytes(t *testing.T, run plan.RunSpec, p plan.Plan) int64 {
	t.Helper()
	return memoryOf(t, run, p, plan.StageID{}).Total()
}

// TestPlannerMakesRoomByRecomputing returns each of two devices less memory than its stage
// takes without recomputation. The plan has the stages recompute some layers, and what
// their workers allocate is within what the planner said is free; the losses are those of
// one stage that recomputes nothing.
func TestPlannerMakesRoomByRecomputing(t *testing.T) {
	run := families()["llama"]
	run.Train.Replicas, run.Train.Stages, run.Train.Steps = 1, 2, 3
	run.Train.Micros, run.Train.SumGroups, run.Train.MicroBatch = 8, 1, 8
	run.Train.Schedule = "1f1b" // others take more memory where there is some
	want := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})

	in := planner.Input{Run: run, Costs: run.Model.Costs(run.Train.MicroBatch, model.StorageF32), Generation: 1}
	roomy, _ := plannedWith(t, in, 1<<30)
	least := stageBytes(t, run, roomy)
	for bytes := least; ; bytes -= least / 50 {
		p, err := plannedWith(t, in, bytes)
		if err != nil {
			t.Fatalf("nothing fits %d bytes, and more was planned without recomputation: %v", bytes, err)
		}
		again := p.Replicas[0].Stages[0].Recompute
		for s := range p.Replicas[0].Stages {
			if m := memoryOf(t, run, p, plan.StageID{Stage: plan.Stage(s)}); m.Total() > bytes {
				t.Fatalf("stage %d with %q takes %d bytes of %d", s, again, m.Total(), bytes)
			}
		}
		if strings.Contains(string(again), "block") {
			equal(t, string(again), train(t, run, p, &memoryKeeper{}), want)
			break
		}
	}
	in.Run.Train.Recompute = plan.Recompute(model.RecomputeNothing)
	if plan, err := plannedWith(t, in, least/2); err == nil {
		t.Errorf("half the memory is enough without recomputation: %+v", plan)
	}
}

// plannedWith plans for two like nodes of so much memory.
func plannedWith(t *testing.T, in planner.Input, bytes int64) (plan.Plan, error) {
	t.Helper()
	device := plan.DeviceProfile{Name: "cpu", MatMulFLOPS: 1e9, MemoryBytesPerS: 1e9, MemoryFreeBytes: bytes}
	for _, peer := range []plan.PeerID{"a", "b"} {
		in.Members = append(in.Members, planner.Member{Peer: peer, Profile: plan.Profile{Devices: []plan.DeviceProfile{device}}})
	}
	plan, _, err := planner.Make(t.Context(), in)
	return plan, err
}

// TestRestoringAheadChangesNoBit: any number of the last layers, under schedules that have
// passes of others between, or input and weight gradients apart, and in bf16.
func TestRestoringAheadChangesNoBit(t *testing.T) {
	runs := shareRuns()
	for i, name := range slices.Sorted(maps.Keys(runs)) {
		run := runs[name]
		run.Train.Steps = 2
		want := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
		for j, level := range lean {
			run.Train.Recompute = plan.Recompute(level)
			for k, text := range []string{"1f1b", "gpipe", "zb-h1"} {
				for ahead := 1; ahead <= 2; ahead++ {
					if !meets(i+j, k, 3) || !meets(i, ahead, 2) {
						continue
					}
					plan := scheduled(t, run, text, 2)
					first := &plan.Replicas[0].Stages[0]
					first.Ahead = ahead
					about := fmt.Sprintf("%s, %v, %s, %d of %d layers", name, level, text, ahead, first.Layers.Len())
					list, err := Programs(plan)
					if err != nil || !strings.Contains(list.String(), "0R0 0RG0") {
						t.Fatalf("%s: %v\n%v", about, err, list)
					}
					checkMemory(t, about, run, plan)
					equal(t, about, train(t, run, plan, &memoryKeeper{}), want)
				}
			}
		}
	}
}

// TestRestoringAheadBesideOtherStages: devices that hold several stages, of one replica or of
// two, restore for one of them while the others wait.
func TestRestoringAheadBesideOtherStages(t *testing.T) {
	run := families()["llama"]
	run.Train.Steps = 2
	for _, text := range []string{"interleaved:v=2", "zb-v", "hanayo:v=2", "chimera"} {
		for _, level := range lean {
			run.Train.Recompute = plan.Recompute(level)
			plan := scheduled(t, run, text, 2)
			want := train(t, run, plan, &memoryKeeper{})
			for _, pipe := range plan.Replicas {
				for s := range pipe.Stages {
					pipe.Stages[s].Ahead = pipe.Stages[s].Layers.Len()
				}
			}
			about := fmt.Sprintf("%s, %v", text, level)
			list, err := Programs(plan)
			if err != nil || !strings.Contains(list.String(), "R0 0RG0") {
				t.Fatalf("%s: %v\n%v", about, err, list)
			}
			checkMemory(t, about, run, plan)
			equal(t, about, train(t, run, plan, &memoryKeeper{}), want)
		}
	}
}

func TestLayersRecomputeEachAtItsLevel(t *testing.T) {
	for name, run := range families() {
		run.Train.Steps = 2
		want := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
		plan := cut(run, "1f1b", []int{0, 3})
		plan.Replicas[0].Stages[0].Recompute = "none+block+outputs"
		plan.Replicas[0].Stages[1].Recompute = "outputs+none"
		equal(t, name, train(t, run, plan, &memoryKeeper{}), want)
	}
}
