package pipeline

import (
	"fmt"
	"testing"

	"pnode/planner/plan"
)

// TestASubstituteCatchesUpWithTheSameBits: without a replica the newest checkpoint, what the others sent since and the commits are
// enough, also where commits have named other schedules before it and since.
func TestASubstituteCatchesUpWithTheSameBits(t *testing.T) {
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery, run.Train.HeldOutEvery, run.Model.ResidualDropout = 6, 3, 2, 0.25
	line, uneven := cut(run, "1f1b", []int{0, 2, 3}), cut(run, "1f1b", []int{0, 1, 3}, []int{0, 2})
	coded := cut(run, "1f1b", []int{0, 2, 3})
	for s := range coded.Replicas[0].Stages {
		coded.Replicas[0].Stages[s].Codec = "int8"
	}
	for name, c := range map[string]struct {
		plan  plan.Plan
		texts []string
		lost  plan.PeerID
	}{
		"in f32":           {line, nil, "peer-0-0"},
		"in int8":          {coded, nil, "peer-0-1"},
		"other schedules":  {line, []string{"1f1b 1,1,0", "zb-h1", "gpipe 3,2,0", "seq1f1b", "1f1b 3,1,0"}, "peer-0-1"},
		"replicas unlike":  {uneven, nil, "peer-1-0"},
		"the coordinator":  {line, nil, line.Coordinator().Peer},
		"of two replicas":  {uneven, []string{"zb-h1 1+3", "1f1b 1,1,0 1,0 3+1", "zb-h1 3+1"}, uneven.Coordinator().Peer},
		"and other shares": {uneven, []string{"zb-h1 1+3", "1f1b 1,1,0 1,0 3+1", "zb-h1 3+1"}, "peer-1-1"},
	} {
		t.Run(name, func(t *testing.T) {
			saved := &memoryKeeper{}
			want := train(t, run, c.plan, saved)
			every := 9
			if testing.Short() {
				every = 17
			}
			most, later := plan.Step(0), false
			named := func(config *Config, _ bool) {
				if c.texts != nil {
					config.Next = (&choices{texts: c.texts}).next(t)
				}
			}
			for after, lived := 0, false; !lived; after += every {
				got := loss{run: run, plan: c.plan, lost: c.lost, after: after, decide: named}.train(t)
				equal(t, fmt.Sprintf("after %d", after), got.result, want)
				equalStates(t, fmt.Sprintf("after %d", after), got.states, saved)
				most, later, lived = max(most, got.done-got.began), later || got.began > 0, got.lived
			}
			if most < 2 || !later {
				t.Errorf("at most %d steps were computed again, from a checkpoint of the run: %t", most, later)
			}
		})
	}
}
