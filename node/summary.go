package node

import (
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// summarize describes a plan in one line, with the reason it was made for.
func summarize(p plan.Plan, reasons []string) string {
	text := fmt.Sprintf("generation %d from step %d: %s of %s", p.Generation, p.Start, plan.Count(len(p.Replicas), "replica"), stageCounts(p))
	if p.Schedule != plan.ScheduleName {
		text += fmt.Sprintf(" on %s under %s", plan.Count(len(p.Workers()), "device"), p.Schedule)
	}
	if precision := p.PrecisionText(); precision != "" {
		text += ", " + precision
	}
	if len(reasons) > 0 {
		text += " (" + reasons[0] + ")"
	}
	return text
}

// stageCounts says how many stages the replicas have: "3 stages", or "2 and 3 stages".
func stageCounts(p plan.Plan) string {
	var counts []int
	for _, pipe := range p.Replicas {
		if !slices.Contains(counts, len(pipe.Stages)) {
			counts = append(counts, len(pipe.Stages))
		}
	}
	slices.Sort(counts)
	text := ""
	for i, n := range counts {
		if i == len(counts)-1 {
			return text + plan.Count(n, "stage")
		}
		text += fmt.Sprintf("%d and ", n)
	}
	return "no stages"
}
