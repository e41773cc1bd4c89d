package schedule

import (
	"errors"
	"testing"
)

// TestWaitsAndPath has a link of latency 10 between two workers, so that the way there and
// TestWaitsAndPath: the way back is what bounds a micro-batch.
func TestWaitsAndPath(t *testing.T) {
	s, err := Parse("0F0 0B0\n1F0 1B0\n")
	if err != nil {
		t.Fatal(err)
	}
	line, err := Simulate(WithReduceAndStep(WithCommunication(s)), Timing{Replicas: []Costs{uniform(2, 2, 4, Hop{Transfer: 1, Latency: 10})}})
	if err != nil {
		t.Fatal(err)
	}
	waits := line.Waits()
	if len(waits[0]) != 1 || waits[0][0] != (Wait{2, 19, 30}) {
		t.Errorf("worker 0 waits %v, want from 2 to 30 with a message from 19 on", waits[0])
	}
	if len(waits[1]) != 2 || waits[1][0] != (Wait{0, 2, 13}) || waits[1][1] != (Wait{19, 34, 34}) {
		t.Errorf("worker 1 waits %v", waits[1])
	}
	path := line.Path()
	at, links := line.Makespan, 0
	for _, leg := range path {
		if leg.Span.End != at {
			t.Errorf("%v ends at %d, what follows begins at %d", leg.Span.Action, leg.Span.End, at)
		}
		if at = leg.Span.Start; leg.Link {
			links++
		}
	}
	if at != 0 || links != 2 {
		t.Errorf("path %v", path)
	}
}

// TestPathIsWhole finds no hole in the critical path of any kind.
func TestPathIsWhole(t *testing.T) {
	for _, k := range Kinds() {
		o := Options{Shape: Shape{Stages: 8, Micros: 12}, Costs: uniform(8, 2, 4, Hop{1, 5})}
		line := simulate(t, lower(made(t)(k.Make(o))), uniform(8, 2, 4, Hop{1, 5}))
		at := line.Makespan
		for _, leg := range line.Path() {
			if leg.Span.Start == leg.Span.End {
				continue
			}
			if leg.Span.End != at {
				t.Fatalf("%s: %v of worker %d ends at %d, what follows begins at %d", k.Name, leg.Span.Action, leg.Worker, leg.Span.End, at)
			}
			at = leg.Span.Start
		}
		if at != 0 {
			t.Errorf("%s: the path begins at %d", k.Name, at)
		}
	}
}

// TestGradientBeforeItsForward: the last stage's backward waits for no message.
func TestGradientBeforeItsForward(t *testing.T) {
	s, err := Parse("0F0 0B0\n1B0 1F0\n")
	if err != nil {
		t.Fatal(err)
	}
	costs := Costs{Stages: make([]StageTime, 2), Boundaries: make([]Boundary, 1)}
	if _, err := Simulate(s, Timing{Replicas: []Costs{costs}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("simulated: %v", err)
	}
}
