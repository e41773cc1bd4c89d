package study

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"pnode/pipeline/schedule"
)

// gridColumns is how wide a grid may be with a column for each unit that divides all
// times; wider ones have a column for the shortest action.
const gridColumns = 400

// Text writes the report: the schedule, its grid, and the figures.
func (s Study) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n%s\n%s.\n\n", s.title(), s.timeline.Grid(s.unit()), s.summary(), s.Bound)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "worker\tstages\tbusy\tidle\texposed\tlive\t\n")
	for i, worker := range s.Workers {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%d\t\n", i, strings.Join(worker.Holds, " "),
			percent(worker.Busy, s.Makespan), percent(worker.Idle, s.Makespan), percent(worker.Exposed, s.Makespan), worker.Live)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	b.WriteString("\nexposed: idle with the next message under way; live: most activations kept, of one\nmicro-batch on one stage each\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON writes one object.
func (s Study) JSON(w io.Writer) error { return json.NewEncoder(w).Encode(s) }

func (s Study) title() string {
	title := s.Spec
	if s.Warmups != nil {
		title = fmt.Sprintf("%s: %s with warm-ups %s", s.Kind, s.Spec, strings.Trim(fmt.Sprint(s.Warmups), "[]"))
	}
	return fmt.Sprintf("%s, %d micro-batches on %d workers", title, s.Micros, len(s.Workers))
}

func (s Study) summary() string {
	text := fmt.Sprintf("makespan %s, of which %s are work: bubble %.1f%%", span(s.Makespan), span(s.Work), 100*s.Bubble)
	if s.Period > 0 {
		text += fmt.Sprintf("; period %s, at least %s", span(s.Period), span(s.Floor))
	}
	return text
}

// span is a time to about four digits.
func span(t schedule.Nanos) string {
	unit := time.Duration(1)
	for t >= 10_000*schedule.Nanos(unit) {
		unit *= 10
	}
	return time.Duration(t).Round(unit).String()
}

// unit is the time of a grid's column.
func (s Study) unit() schedule.Nanos {
	var shortest, divisor schedule.Nanos
	for _, row := range s.timeline.Workers {
		for _, sp := range row {
			if took := sp.End - sp.Start; took > 0 {
				if shortest == 0 || took < shortest {
					shortest = took
				}
				divisor = gcd(gcd(divisor, took), sp.Start)
			}
		}
	}
	if divisor > 0 && s.Makespan/divisor <= gridColumns {
		return divisor
	}
	return max(shortest, 1)
}

func gcd(a, b schedule.Nanos) schedule.Nanos {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

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
	text := fmt.Sprintf("the longest chain is %s computing, most of it (%s) on worker %d",
		percent(computing, total), percent(workers[worker], total), worker)
	if messages == 0 {
		return text
	}
	return text + fmt.Sprintf(", and %s messages, most of it (%s) between workers %d and %d",
		percent(messages, total), percent(worst, total), link[0], link[1])
}

func percent(part, whole schedule.Nanos) string {
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(max(whole, 1)))
}
