package comparison

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
)

// Gap compares the plan of a small cluster with the least step of all sets and orders of devices, cuts and replicas.
type Gap struct {
	Seed    uint64 `json:"seed"`
	Devices int    `json:"devices"`
	Layers  int    `json:"layers"`
	Micros  int    `json:"micros"`
	// Step is the plan's, Least that of all. Both are zero where the model fits on no devices.
	Step  schedule.Nanos `json:"step_ns"`
	Least schedule.Nanos `json:"least_ns"`
	// Proven reports that no plan has a step of less than Least.
	Proven bool `json:"proven"`
	// Plan and Best say what either is, for people; Best is empty where that is the plan.
	Plan string `json:"plan,omitempty"`
	Best string `json:"best,omitempty"`
}

// FindGap plans a random cluster of some devices and looks for a shorter step by branch and bound, with so much work
// at most, as planner.Optimum counts it.
func FindGap(ctx context.Context, seed uint64, fewest, most, work int) (Gap, error) {
	in := small(seed, fewest, most)
	g := Gap{Seed: seed, Devices: len(in.Members), Layers: len(in.Costs), Micros: in.Run.Train.Micros}
	p, reasons, err := planner.Make(ctx, in)
	if errors.Is(err, planner.ErrNoFit) {
		g.Proven = true
		return g, nil
	}
	if err != nil {
		return g, err
	}
	g.Step, g.Plan = schedule.Nanos(reasons[0].Nanos), splitText(p)
	best, err := planner.Optimum(ctx, in, g.Step, work)
	if err != nil {
		return g, err
	}
	g.Least, g.Proven = best.Step, best.Proven
	if best.Groups != nil {
		g.Best = groupsText(best.Groups)
	}
	return g, nil
}

// splitText says which devices of a plan have how many layers.
func splitText(p plan.Plan) string {
	groups, err := p.ReplicaGroups()
	if err != nil {
		return err.Error()
	}
	return groupsText(groups)
}

// groupsText says which devices have how many layers.
func groupsText(groups []plan.ReplicaGroup) string {
	var all []string
	for _, g := range groups {
		var stages []string
		for i, w := range g.Workers {
			stages = append(stages, fmt.Sprintf("%s:%d", w.Peer, g.Layers[i]))
		}
		all = append(all, strings.Join(stages, " "))
	}
	return strings.Join(all, " | ")
}
