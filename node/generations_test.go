package node

import (
	"errors"
	"testing"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAFullDiskSaysFromWhereTheRunGoesOn: the newest checkpoint, where there is one, and the command of an owner's node or another one.
func TestAFullDiskSaysFromWhereTheRunGoesOn(t *testing.T) {
	for want, c := range map[string]struct {
		step plan.Step
		self plan.PeerID
	}{
		"disk full; the checkpoint of step 7 is safe. When there is room go on with `pnode train --resume --dir /x`": {7, "owner"},
		"disk full; the checkpoint of step 7 is safe. When there is room go on with `pnode join --dir /x`":           {7, "member"},
		"disk full; no checkpoint was made yet. When there is room go on with `pnode train --resume --dir /x`":       {0, "owner"},
	} {
		state := consensus.State{Owners: []plan.PeerID{"owner"}, Checkpoint: consensus.Checkpoint{Step: c.step}}
		if err := withoutRoom(checkpoint.ErrDiskFull, state, c.self, "/x"); err.Error() != want || !errors.Is(err, checkpoint.ErrDiskFull) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
