package node

import (
	"fmt"
	"slices"

	"pnode/planner"
)

// summarize describes a plan in one line, with the reason it was made for.
func summarize(p planner.Plan, reasons []string) string {
	text := fmt.Sprintf("generation %d from step %d: %s of %s", p.Generation, p.Start, planner.Count(len(p.Replicas), "replica"), stageCounts(p))
	if p.Schedule != planner.ScheduleName {
		text += fmt.Sprintf(" on %s under %s", planner.Count(len(p.Seats()), "device"), p.Schedule)
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
func stageCounts(p planner.Plan) string {
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
			return text + planner.Count(n, "stage")
		}
		text += fmt.Sprintf("%d and ", n)
	}
	return "no stages"
}
