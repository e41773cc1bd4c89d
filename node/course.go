package node

import (
	"fmt"
	"strings"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// setWanted notes the course that the planner wants; nil is the plan's own, or that another
// node leads.
func (n *Node) setWanted(w *gossip.ScheduleWish) {
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	n.shared.wanted = w
}

// nextCourse gives the coordinator of a plan the course of the next step: the newest that a
// planner wanted. When the planner changes, the steps go on as they did.
func (n *Node) nextCourse(p plan.Plan) func(plan.Step) plan.ScheduleChoice {
	course := p.ScheduleChoice()
	return func(plan.Step) plan.ScheduleChoice {
		leader, _, _ := n.raft.Leader()
		if w := n.beats.Wish(leader); w.Generation == p.Generation {
			if c, err := plan.ParseScheduleChoice(w.Schedule); err == nil {
				course = c
			}
		}
		return course
	}
}

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
