package monitor

import (
	"fmt"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// copiesOf returns from where layers are computed again that a loss takes along, while not every layer of the newest checkpoint is held
// twice; nil else. messages is the first step of which this node has kept all messages.
func copiesOf(state consensus.State, messages plan.Step) *api.Copies {
	line := consensus.RecoveryLine(state)
	held := line[len(line)-1]
	if len(line) == 1 && held.Secured(state) {
		return nil
	}
	c := &api.Copies{MessagesFrom: messages}
	if held.Secured(state) {
		c.Step = held.Step
	}
	missing := fmt.Sprintf("a layer of the checkpoint of step %d is not on two machines", state.Checkpoint.Step)
	switch {
	case c.Step == 0:
		c.Text = missing + ", and none has each layer on two: losing a machine may cost steps"
	case messages > c.Step+1:
		c.Text = fmt.Sprintf("%s, step %d has each on two. Of the messages since then this node has those from step %d on: losing a machine may cost steps", missing, c.Step, messages)
	default:
		c.Text = fmt.Sprintf("%s: if it is lost, it is computed again from step %d on, which has each on two", missing, c.Step)
	}
	return c
}
