package pipeline

import (
	"fmt"
	"testing"

	"pnode/planner/plan"
)

// spread puts the stages of each replica onto the workers that a row names.
func spread(p plan.Plan, workers ...[]int) plan.Plan {
	for r, row := range workers {
		for s, worker := range row {
			p.Replicas[r].Stages[s].Peer = plan.PeerID(fmt.Sprintf("peer-%d", worker))
		}
	}
	return p
}

// TestAWorkerHoldsSeveralStages has stages follow each other on one worker and on others,
// in turns and in a V, with the losses and the states of one stage.
func TestAWorkerHoldsSeveralStages(t *testing.T) {
	t.Parallel()
	runs := families()
	runs["gpt2"] = testRun()
	for name, run := range runs {
		one := &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", []int{0}), one)
		for shape, workers := range map[string][]int{"in turns": {0, 1, 0, 1}, "in a V": {0, 1, 1, 0}, "on one": {0, 0, 0, 0}, "unevenly": {0, 0, 1, 0}} {
			for _, scheduleName := range []string{"1f1b", "gpipe"} {
				keeper := &memoryKeeper{}
				equal(t, name+" "+shape+" "+scheduleName, train(t, run, spread(cut(run, scheduleName, []int{0, 1, 2, 4}), workers), keeper), want)
				equalStates(t, name+" "+shape+" "+scheduleName, keeper, one)
			}
		}
	}
}

// TestAWorkerHoldsSeveralReplicas has pipelines go both ways over the same workers, and two
// copies of one layer on one worker.
func TestAWorkerHoldsSeveralReplicas(t *testing.T) {
	run := testRun()
	one := &memoryKeeper{}
	want := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), one)
	for name, rows := range map[string][][]int{
		"both ways": {{0, 1}, {1, 0}}, "side by side": {{0, 1}, {0, 1}}, "all on one": {{0, 0}, {0, 0}}, "apart": {{0, 1}, {2, 3}},
	} {
		keeper := &memoryKeeper{}
		equal(t, name, train(t, run, spread(cut(run, "1f1b", []int{0, 3}, []int{0, 2}), rows...), keeper), want)
		equalStates(t, name, keeper, one)
	}
}

// equalStates wants the same saved states, to the bit.
func equalStates(t *testing.T, name string, got, want *memoryKeeper) {
	t.Helper()
	for step, layers := range want.layers {
		for l, state := range layers {
			if string(got.layers[step][l]) != string(state) {
				t.Errorf("%s: the state of layer %d after step %d differs", name, l, step)
			}
		}
	}
}
