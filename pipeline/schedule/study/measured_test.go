package study

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
)

// measured is a simulation written down as a run is: sends and waits for messages among the
// actions, and a step behind them.
func measured(t *testing.T, kind string, costs schedule.Costs) (segments int, timeline schedule.Timeline, makespan schedule.Nanos) {
	t.Helper()
	k, _ := schedule.KindNamed(kind)
	s, err := k.Make(schedule.Options{Shape: schedule.Shape{Stages: len(costs.Stages), Micros: 8}, Costs: costs})
	if err != nil {
		t.Fatal(err)
	}
	line, err := schedule.Simulate(schedule.WithCommunication(s), schedule.Timing{Replicas: slices.Repeat([]schedule.Costs{costs}, s.Replicas())})
	if err != nil {
		t.Fatal(err)
	}
	arrived := map[schedule.Action]schedule.Nanos{}
	for _, m := range line.Messages {
		arrived[m.Action] = m.Arrived
	}
	const before = 7 * ms // a step's timeline may begin with something else
	out := schedule.Timeline{Makespan: line.Makespan + 2*before, Workers: make([][]schedule.Span, len(line.Workers))}
	for w, spans := range line.Workers {
		for _, s := range spans {
			if at, ok := arrived[s.Action]; ok {
				s.End = max(at, s.Start)
			}
			out.Workers[w] = append(out.Workers[w], schedule.Span{Action: s.Action, Start: s.Start + before, End: s.End + before})
		}
		end := line.Makespan + before
		out.Workers[w] = append(out.Workers[w], schedule.Span{Action: schedule.Action{Op: schedule.Step}, Start: end, End: end + before})
	}
	return s.Segments, out, line.Makespan
}

// TestMeasureFindsTheCostsAgain predicts from a timeline exactly what gave it.
func TestMeasureFindsTheCostsAgain(t *testing.T) {
	for _, kind := range []string{"elastic", "gpipe", "interleaved", "chimera", "zb-v", "hanayo", "seq1f1b"} {
		costs := schedule.Costs{}
		for st := range 4 {
			costs.Stages = append(costs.Stages, schedule.StageTime{Forward: 2 * ms, Input: Nanos(st+2) * ms, Weight: Nanos(st+2) * ms})
			if st > 0 {
				costs.Boundaries = append(costs.Boundaries, schedule.Boundary{Activation: schedule.Hop{Latency: 5 * ms}, Gradient: schedule.Hop{Latency: 6 * ms}})
			}
		}
		segments, line, want := measured(t, kind, costs)
		m := Measure("step 3", []string{"a", "b"}, segments, line)
		if m.Unpredicted != nil || m.Predicted.Makespan != want || m.Line.Makespan != want {
			t.Errorf("%s: measured %d, predicted %d, %v, want %d", kind, m.Line.Makespan, m.Predicted.Makespan, m.Unpredicted, want)
		}
		var text, picture bytes.Buffer
		if err := m.Text(&text); err != nil || !strings.Contains(text.String(), "(+0.0%)") {
			t.Errorf("%s: %s, %v", kind, text.String(), err)
		}
		if err := m.SVG(&picture); err != nil || strings.Count(picture.String(), `class="title"`) != 2 {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestMeasureOfAPart(t *testing.T) {
	line := schedule.Timeline{Makespan: 3, Workers: [][]schedule.Span{{{Action: schedule.Action{Op: schedule.Forward}, Start: 1, End: 2}}, nil}}
	m := Measure("half a step", nil, 0, line)
	var text, picture bytes.Buffer
	if err := m.Text(&text); err != nil || m.Unpredicted == nil || !strings.Contains(text.String(), "no prediction") {
		t.Errorf("%s, %v", text.String(), err)
	}
	if err := m.SVG(&picture); err != nil || strings.Count(picture.String(), `class="title"`) != 1 {
		t.Error(err)
	}
}
