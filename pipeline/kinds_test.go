package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// scheduled is a plan of one lane of workers under a schedule.
func scheduled(t *testing.T, run plan.RunSpec, text string, workers int) plan.Plan {
	t.Helper()
	return laned(t, run, text, 1, workers)
}

// laned is a plan of lanes of so many workers each.
func laned(t *testing.T, run plan.RunSpec, text string, lanes, workers int) plan.Plan {
	t.Helper()
	spec, err := schedule.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Plan{Run: run.Run, Generation: 1, Schedule: text}
	layers, share := run.Model.Layers(), run.Train.Micros/lanes
	for l := range lanes {
		lane := plan.ReplicaGroup{First: plan.Micro(l * share), Micros: share}
		for w := range workers {
			lane.Workers = append(lane.Workers, plan.WorkerID{Peer: plan.PeerID(fmt.Sprintf("peer-%d", l*workers+w)), Device: "cpu"})
			lane.Layers = append(lane.Layers, layers*(w+1)/workers-layers*w/workers)
		}
		if text == "1f1b" || text == "gpipe" {
			lane.Warmups = schedule.DepthWarmups(workers, 1)
		}
		pipes, err := lane.Pipelines(spec, plan.Replica(len(p.Replicas)))
		if err != nil {
			t.Fatalf("%s on %d workers: %v", text, workers, err)
		}
		p.Replicas = append(p.Replicas, pipes...)
	}
	return p
}

// TestLanesOfEverySchedule reduces over two lanes, and over the copies on each.
func TestLanesOfEverySchedule(t *testing.T) {
	run := deep()
	run.Train.Steps = 2
	for _, text := range []string{"zb-h1", "depth-first:v=2", "zb-v", "chimera"} {
		plan, keeper, whole := laned(t, run, text, 2, 2), &memoryKeeper{}, &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", slices.Repeat([][]int{{0}}, len(plan.Replicas))...), whole)
		equal(t, text, train(t, run, plan, keeper), want)
		equalStates(t, text, keeper, whole)
	}
}

// TestSegmentsOfSeveralSequences has the rows of a message apart, dropout and documents, and
// little kept between the segments of a sequence, while others pass.
func TestSegmentsOfSeveralSequences(t *testing.T) {
	t.Parallel()
	run := deep()
	run.Model.Context, run.Model.ResidualDropout, run.Model.EmbedDropout = 128, 0.1, 0.1
	run.Train.MicroBatch, run.Train.Steps, run.Train.DocumentMask = 2, 2, true
	for i, storage := range []model.Storage{model.StorageF32, model.StorageBF16} {
		for level := range model.RecomputeBlock + 1 {
			if !meets(int(level), i, 2) {
				continue
			}
			run.Train.Storage, run.Train.Recompute = plan.Storage(storage), plan.Recompute(level)
			name := fmt.Sprint(storage, ", ", level)
			keeper, whole := &memoryKeeper{}, &memoryKeeper{}
			want := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), whole)
			equal(t, name, train(t, run, laned(t, run, "seq1f1b:n=4", 2, 2), keeper), want)
			equalStates(t, name, keeper, whole)
		}
	}
}

// deep is a run with a layer for each of two chunks on four workers, micro-batches for two
// directions of them, and a context for two segments.
func deep() plan.RunSpec {
	run := testRun()
	run.Model.Blocks, run.Model.Context, run.Model.Channels = 6, 64, 16
	run.Train.Micros, run.Train.MicroBatch, run.Train.Steps, run.Train.HeldOutEvery = 8, 1, 4, 2
	if testing.Short() {
		run.Train.Steps = 2
	}
	return run
}

// deepSchedules run on 2 and on 4 workers with the micro-batches of deep,
// and what they have besides.
var deepSchedules = []string{
	"gpipe", "1f1b", "depth:d=3", "kfkb:k=3",
	"interleaved:v=2,k=4", "interleaved:v=2,f=5+3,b=4+4", "depth-first:v=2", "breadth-first:v=2",
	"chimera", "chimera-doubling", "chimera-halving",
	"zb-h1", "zb-h2", "zb-elastic", "zb-v", "v-half", "v-min", "2bp", "2bp:k=2", "hanayo", "hanayo:v=2",
	"seq1f1b",
}

// TestEveryScheduleGivesTheSameBits compares losses, and states after the last step, with
// those of undivided replicas, as many as the schedule has.
func TestEveryScheduleGivesTheSameBits(t *testing.T) {
	t.Parallel()
	run := deep()
	undivided := map[int]result{}
	states := map[int]*memoryKeeper{}
	for _, replicas := range []int{1, 2} {
		bounds := [][]int{{0}, {0}}[:replicas]
		states[replicas] = &memoryKeeper{}
		undivided[replicas] = train(t, run, cut(run, "1f1b", bounds...), states[replicas])
	}
	for i, text := range deepSchedules {
		for k, workers := range []int{2, 4} {
			if !meets(i, k, 2) {
				continue
			}
			name := fmt.Sprintf("%s on %d", text, workers)
			t.Run(name, func(t *testing.T) {
				plan, keeper := scheduled(t, run, text, workers), &memoryKeeper{}
				n := len(plan.Replicas)
				equal(t, name, train(t, run, plan, keeper), undivided[n])
				equalStates(t, name, keeper, states[n])
			})
		}
	}
}

// TestResumeUnderAnotherSchedule goes on from a checkpoint on other stages and workers.
func TestResumeUnderAnotherSchedule(t *testing.T) {
	run, keeper := deep(), &memoryKeeper{}
	whole := train(t, run, scheduled(t, run, "interleaved:v=2", 4), keeper)
	for _, text := range []string{"zb-v", "zb-h2", "interleaved:v=2"} {
		rest := scheduled(t, run, text, 2)
		rest.Start, rest.Generation = run.Train.CheckpointEvery, 2
		equal(t, text, train(t, run, rest, keeper), whole.after(rest.Start))
	}
}

// TestDeepSchedulesAreAllKinds wants the table above to miss none that a plan may have.
func TestDeepSchedulesAreAllKinds(t *testing.T) {
	in := map[string]bool{"elastic": true} // a way to warm-ups
	for _, text := range deepSchedules {
		spec, err := schedule.ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		in[spec.Kind] = true
	}
	for _, k := range schedule.Kinds() {
		if !in[k.Name] {
			t.Errorf("%s is trained by no test", k.Name)
		}
	}
}

// TestSchedulesThatDoNotFitAreRefused with the reason.
func TestSchedulesThatDoNotFitAreRefused(t *testing.T) {
	run := deep()
	for name, change := range map[string]func(*plan.Plan){
		"unknown parameter": func(p *plan.Plan) { p.Schedule = "zb-h1:k=2" },
		"chunks apart":      func(p *plan.Plan) { p.Schedule = "interleaved:v=2" },
		"a replica short":   func(p *plan.Plan) { p.Schedule = "chimera" },
		"groups":            func(p *plan.Plan) { p.Schedule = "interleaved:v=4,f=1+1,b=8" },
	} {
		plan := scheduled(t, run, "zb-h1", 4)
		change(&plan)
		if _, err := Programs(plan); !errors.Is(err, ErrBadConfig) {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Log(err)
		}
	}
}
