package monitor

import (
	"testing"

	"pnode/node/ledger"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhatANodeReached: after a restart the ledger knows steps since the checkpoint, which count where no plan has followed.
func TestWhatANodeReached(t *testing.T) {
	state := consensus.State{Run: &plan.RunSpec{}, Plan: plan.Plan{Generation: 3}, Checkpoint: consensus.Checkpoint{Step: 20}}
	for name, c := range map[string]struct {
		running  position
		recorded ledger.Position
		want     plan.Step
	}{
		"it runs":                                {position{3, 23}, ledger.Position{Generation: 3, Step: 22}, 23},
		"it was started again":                   {position{}, ledger.Position{Generation: 3, Step: 25}, 25},
		"its ledger is older":                    {position{}, ledger.Position{Generation: 3, Step: 18}, 20},
		"its newest steps were of a plan before": {position{}, ledger.Position{Generation: 2, Step: 25}, 20},
		"it recorded nothing":                    {position{}, ledger.Position{}, 20},
	} {
		if got := reached(state, c.running, c.recorded); got != c.want {
			t.Errorf("%s: step %d, want %d", name, got, c.want)
		}
	}
}
