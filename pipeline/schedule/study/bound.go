package study

import (
	"fmt"

	"pnode/pipeline/schedule"
)

// bound says what the critical path is made of: computing and messages, and the worker and
// the link with the most of either.
func bound(line schedule.Timeline) string {
	workers := make([]schedule.Nanos, len(line.Workers))
	links := map[[2]int]schedule.Nanos{}
	var computing, messages, worst schedule.Nanos
	var worker int
	var link [2]int
	for _, leg := range line.Path() {
		took := leg.Span.End - leg.Span.Start
		if !leg.Link {
			computing += took
			if workers[leg.Worker] += took; workers[leg.Worker] > workers[worker] {
				worker = leg.Worker
			}
			continue
		}
		messages += took
		pair := [2]int{min(leg.From, leg.Worker), max(leg.From, leg.Worker)}
		if links[pair] += took; links[pair] > worst {
			worst, link = links[pair], pair
		}
	}
	total := max(computing+messages, 1)
	text := fmt.Sprintf("the longest chain is %s computing, most of it (%s) on worker %d", percent(computing, total), percent(workers[worker], total), worker)
	if messages == 0 {
		return text
	}
	return text + fmt.Sprintf(", and %s messages, most of it (%s) between workers %d and %d", percent(messages, total), percent(worst, total), link[0], link[1])
}

func percent(part, whole schedule.Nanos) string {
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(max(whole, 1)))
}
