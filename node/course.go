package node

import (
	"fmt"
	"strings"

	"pnode/node/api"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// turn is the event of a step on another course than the one before.
func (n *Node) turn(r pipeline.StepResult, left string) api.Event {
	leader, _, _ := n.raft.Leader()
	generation := n.raft.State().Plan.Generation
	e := api.Event{
		Kind: api.KindSchedule, Generation: generation, Step: r.Step,
		Message: fmt.Sprintf("from step %d on %s instead of %s", r.Step, r.Schedule, left),
	}
	if w := n.beats.Wish(leader); w.Generation == generation && w.Schedule == r.Schedule.String() {
		why, _, _ := strings.Cut(w.Why, ";") // the status has all of it
		e.Message += ": " + why
	}
	return e
}

// reasons are the plan's, and why it took another course since.
func (n *Node) reasons(state consensus.State, leader plan.PeerID) []string {
	reasons := state.Reasons
	if w := n.beats.Wish(leader); w.Generation == state.Plan.Generation && w.Generation != 0 {
		reasons = append(reasons[:len(reasons):len(reasons)], "schedule changed: "+w.Why)
	}
	return reasons
}
