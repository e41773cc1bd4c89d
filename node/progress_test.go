package node

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/pipeline"
	"pnode/planner"
)

// TestTheLastStepTellsTheFinishedModel: its held-out loss is that after the last update,
// the one that the summary tells, and the step is told once however the run ends.
func TestTheLastStepTellsTheFinishedModel(t *testing.T) {
	before, after := 3.5, 3.25
	for name, tt := range map[string]struct {
		end  func(p *progress)
		want *float64
	}{
		"evaluated": {func(p *progress) {
			for range 2 { // two placements on this node
				p.record(pipeline.StepResult{Step: 2, HeldOut: &after, Final: true}, 8, time.Unix(3, 0))
			}
		}, &after},
		"a node died first": {func(p *progress) { p.begin(planner.Plan{Generation: 2, Start: 2}, 2) }, &before},
	} {
		t.Run(name, func(t *testing.T) {
			var got []api.Event
			p := &progress{emit: func(e api.Event) { got = append(got, e) }}
			p.begin(planner.Plan{Generation: 1}, 2)
			for step := range 2 {
				for stage := range 2 {
					p.record(pipeline.StepResult{Stages: []pipeline.StageTimes{{Holding: planner.Holding{Stage: planner.Stage(stage)}}}, Step: planner.Step(step + 1), HeldOut: &before}, 8, time.Unix(int64(step), 0))
				}
			}
			tt.end(p)
			var steps []planner.Step
			for _, e := range got {
				steps = append(steps, e.Step)
			}
			if !reflect.DeepEqual(steps, []planner.Step{1, 2}) || !reflect.DeepEqual(got[1].HeldOut, tt.want) || got[1].Generation != 1 {
				t.Errorf("got %+v, want steps 1 and 2, the last with held-out loss %v", got, *tt.want)
			}
		})
	}
}

// TestAnotherCourseIsTold: once, by the first step on it, not by a generation's first step.
func TestAnotherCourseIsTold(t *testing.T) {
	p := &progress{emit: func(api.Event) {}}
	p.begin(planner.Plan{Generation: 1}, 9)
	deeper := planner.Course{Schedule: "1f1b", Warmups: [][]int{{3, 0}}}
	var told []string
	for step, course := range []planner.Course{{Schedule: "gpipe"}, {Schedule: "gpipe"}, deeper, deeper, {Schedule: "gpipe"}} {
		for range 2 { // two placements on this node
			if left := p.record(pipeline.StepResult{Step: planner.Step(step + 1), Course: course}, 8, time.Unix(int64(step), 0)); left != "" {
				told = append(told, fmt.Sprint(step+1, " ", left))
			}
		}
	}
	if want := []string{"3 " + planner.Course{Schedule: "gpipe"}.String(), "5 " + deeper.String()}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
