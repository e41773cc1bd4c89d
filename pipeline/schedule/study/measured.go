package study

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/pipeline/schedule/draw"
)

// Measured is a step that was run, beside what the simulator says of the same programs with
// the times that were seen.
type Measured struct {
	Title     string
	Names     []string // of the workers
	Line      schedule.Timeline
	Predicted schedule.Timeline
	// Unpredicted says why there is no prediction.
	Unpredicted error
}

// Measure takes a step's timeline, with sends and receives in its rows, whose schedule cuts
// sequences into so many segments (0 and 1: not at all), and predicts it: each stage's forward, backward
// and so on take the median of what they took, each direction of a link what its quickest message took.
func Measure(title string, names []string, segments int, line schedule.Timeline) Measured {
	m := Measured{Title: title, Names: names, Line: computing(line.Paired())}
	s := schedule.Schedule{Segments: segments}
	for _, spans := range m.Line.Workers {
		var actions []schedule.Action
		for _, span := range spans {
			if span.Action.Op <= schedule.Recompute {
				actions = append(actions, span.Action)
			}
		}
		s.Workers = append(s.Workers, actions)
	}
	if m.Unpredicted = schedule.Validate(s, schedule.Limits{}); m.Unpredicted == nil {
		m.Predicted, m.Unpredicted = schedule.Simulate(schedule.WithCommunication(s), m.timing(s))
	}
	return m
}

// computing is the part of a timeline from its first to its last action on a micro-batch.
func computing(t schedule.Timeline) schedule.Timeline {
	first, last := t.Makespan, schedule.Nanos(0)
	keep := func(a schedule.Action) bool { return a.Op != schedule.Step && a.Op != schedule.Reduce }
	for _, spans := range t.Workers {
		for _, s := range spans {
			if keep(s.Action) {
				first, last = min(first, s.Start), max(last, s.End)
			}
		}
	}
	out := schedule.Timeline{Makespan: max(last-first, 0), PeakLive: t.PeakLive}
	for _, spans := range t.Workers {
		var row []schedule.Span
		for _, s := range spans {
			if keep(s.Action) {
				row = append(row, schedule.Span{Action: s.Action, Start: s.Start - first, End: s.End - first})
			}
		}
		out.Workers = append(out.Workers, row)
	}
	for _, m := range t.Messages {
		m.Queued, m.Sent, m.Arrived = m.Queued-first, m.Sent-first, m.Arrived-first
		out.Messages = append(out.Messages, m)
	}
	return out
}

// timing is made of what was seen.
func (m *Measured) timing(s schedule.Schedule) schedule.Timing {
	took := map[schedule.Action][]schedule.Nanos{} // whatever the micro-batch
	note := func(a schedule.Action, d schedule.Nanos) {
		a.Micro = 0
		took[a] = append(took[a], d)
	}
	for _, spans := range m.Line.Workers {
		for _, span := range spans {
			note(span.Action, span.End-span.Start)
		}
	}
	for _, message := range m.Line.Messages {
		note(message.Action, message.Arrived-message.Queued)
	}
	median := func(op schedule.Op, r, st int) schedule.Nanos {
		all := took[schedule.Action{Op: op, Replica: schedule.Replica(r), Stage: schedule.Stage(st)}]
		if len(all) == 0 {
			return 0
		}
		slices.Sort(all)
		if op == schedule.ReceiveActivation || op == schedule.ReceiveGradient {
			return all[0]
		}
		return all[len(all)/2]
	}
	var t schedule.Timing
	for r := range s.Replicas() {
		c := schedule.Costs{}
		for st := range s.Stages(schedule.Replica(r)) {
			time := schedule.StageTime{
				Forward: median(schedule.Forward, r, st), Recompute: median(schedule.Recompute, r, st),
				Input: median(schedule.BackwardInput, r, st), Weight: median(schedule.BackwardWeight, r, st),
			}
			if whole := median(schedule.Backward, r, st); whole > 0 {
				time.Input, time.Weight = whole-whole/2, whole/2
			}
			c.Stages = append(c.Stages, time)
			if st > 0 {
				c.Boundaries = append(c.Boundaries, schedule.Boundary{
					Activation: schedule.Hop{Latency: median(schedule.ReceiveActivation, r, st)},
					Gradient:   schedule.Hop{Latency: median(schedule.ReceiveGradient, r, st-1)},
				})
			}
		}
		t.Replicas = append(t.Replicas, c)
	}
	return t
}

// Text says how long the step took, and how far off the prediction was.
func (m Measured) Text(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s: %s\n", m.Title, strings.Join(m.notes(), "; "))
	return err
}

func (m Measured) notes() []string {
	notes := []string{"measured " + span(m.Line.Makespan)}
	if m.Unpredicted != nil {
		return append(notes, fmt.Sprintf("no prediction: %v", m.Unpredicted))
	}
	off := 100 * float64(m.Line.Makespan-m.Predicted.Makespan) / float64(max(m.Predicted.Makespan, 1))
	return append(notes, fmt.Sprintf("predicted from its actions' medians and its links' quickest messages %s (%+.1f%%)",
		span(m.Predicted.Makespan), off))
}

// SVG draws the measured timeline above the predicted one.
func (m Measured) SVG(w io.Writer) error {
	panels := []draw.Panel{{Title: m.Title, Notes: m.notes(), Names: m.Names, Line: m.Line}}
	if m.Unpredicted == nil {
		panels = append(panels, draw.Panel{Title: "predicted", Names: m.Names, Line: m.Predicted})
	}
	return draw.SVG(w, panels...)
}
