package node

import (
	"testing"

	"pnode/node/config"
	"pnode/swarm/consensus"
)

// TestARunCannotAskForMoreNodesThanItTakes: the two constants are in packages that do not know
// each other.
func TestARunCannotAskForMoreNodesThanItTakes(t *testing.T) {
	if config.MaxNodes != consensus.MaxMembers {
		t.Errorf("settings ask for up to %d nodes, the roster takes %d", config.MaxNodes, consensus.MaxMembers)
	}
}
