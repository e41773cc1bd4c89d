package monitor

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/node/ledger"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestTheLastStepTellsTheFinishedModel: its held-out loss is that after the last update,
// the one that the summary tells, and the step is told once however the run ends.
func TestTheLastStepTellsTheFinishedModel(t *testing.T) {
	before, after := 3.5, 3.25
	for name, tt := range map[string]struct {
		end  func(p *steps)
		want *float64
	}{
		"evaluated": {func(p *steps) {
			for range 2 { // two placements on this node
				p.report(pipeline.StepResult{Step: 2, HeldOut: &after, Final: true}, 8, time.Unix(3, 0))
			}
		}, &after},
		"a node died first": {func(p *steps) { p.begin(plan.Plan{Generation: 2, Start: 2}, nil, 2) }, &before},
	} {
		t.Run(name, func(t *testing.T) {
			var got []api.Event
			p := &steps{log: stepLog{publish: func(e api.Event) { got = append(got, e) }}}
			p.begin(plan.Plan{Generation: 1}, nil, 2)
			for step := range 2 {
				for stage := range 2 {
					p.report(pipeline.StepResult{Stages: []pipeline.StageTimes{{StageID: plan.StageID{Stage: plan.Stage(stage)}}}, Step: plan.Step(step + 1), HeldOut: &before}, 8, time.Unix(int64(step), 0))
				}
			}
			tt.end(p)
			var told []plan.Step
			for _, e := range got {
				told = append(told, e.Step)
			}
			if !reflect.DeepEqual(told, []plan.Step{1, 2}) || !reflect.DeepEqual(got[1].HeldOut, tt.want) || got[1].Generation != 1 {
				t.Errorf("got %+v, want steps 1 and 2, the last with held-out loss %v", got, *tt.want)
			}
		})
	}
}

// TestStepsTellTheirGradient: a step has the norm of its own gradient and its own time, or none where they were not measured.
func TestStepsTellTheirGradient(t *testing.T) {
	var got []api.Event
	p := &steps{log: stepLog{publish: func(e api.Event) { got = append(got, e) }}}
	p.begin(plan.Plan{Generation: 1}, nil, 9)
	for i, r := range []pipeline.StepResult{{Step: 1, Norm: 2, Total: time.Second}, {Step: 2, Norm: 3, Total: time.Minute}, {Step: 3}} {
		p.report(r, 8, time.Unix(int64(i), 0))
	}
	if len(got) != 3 || *got[0].GradientNorm != 2 || got[0].StepS != 1 || *got[1].GradientNorm != 3 || got[1].StepS != 60 || got[2].GradientNorm != nil || got[2].StepS != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestOptimisticStepsAreCounted: each once, whichever worker of this node applied it or rolled it back, and those of the plan that runs.
func TestOptimisticStepsAreCounted(t *testing.T) {
	p := &steps{log: stepLog{publish: func(api.Event) {}}}
	p.begin(plan.Plan{Generation: 1}, nil, 9)
	for i, r := range []pipeline.StepResult{
		{Step: 1},
		{Step: 1, Optimistic: true}, // of two workers
		{Step: 2, Optimistic: true},
		{Step: 2, Optimistic: true, RolledBack: true},
		{Step: 3, Optimistic: true, RolledBack: true},
		{Step: 3, Optimistic: true, RolledBack: true},
		{Step: 4},
		{Step: 4},
	} {
		p.report(r, 8, time.Unix(int64(i), 0))
	}
	if optimistic, rolledBack := p.postValidation(); optimistic != 3 || rolledBack != 2 {
		t.Errorf("%d optimistic steps, %d rolled back; want 3 and 2", optimistic, rolledBack)
	}
	p.begin(plan.Plan{Generation: 2, Start: 4}, nil, 9)
	if optimistic, rolledBack := p.postValidation(); optimistic != 0 || rolledBack != 0 {
		t.Errorf("%d optimistic steps, %d rolled back in the next plan", optimistic, rolledBack)
	}
}

// TestTheSummaryTellsWhatPrecisionCosts, or that nobody measured it where there was something to
// measure.
func TestTheSummaryTellsWhatPrecisionCosts(t *testing.T) {
	heldOut, f32 := 3.5, 3.498
	halves := plan.Plan{Replicas: []plan.Pipeline{{Stages: []plan.Placement{{}, {Storage: model.StorageBF16}}}}}
	floats := plan.Plan{Replicas: []plan.Pipeline{{Stages: make([]plan.Placement, 2)}}}
	for _, tt := range []struct {
		plan plan.Plan
		f32  *float64
		want string
	}{
		{halves, &f32, "finished at step 2: held-out loss 3.500 nats a token (float32 throughout: 3.498, lower precision costs +0.002), 2.045 below the uniform 5.545"},
		{halves, nil, "finished at step 2: held-out loss 3.500 nats a token (what lower precision costs was not measured), 2.045 below the uniform 5.545"},
		{floats, nil, "finished at step 2: held-out loss 3.500 nats a token, 2.045 below the uniform 5.545"},
	} {
		for _, own := range []bool{true, false} {
			var got []api.Event
			m := Monitor{Config: Config{Recorded: func() ledger.Position { return ledger.Position{} }}}
			p := &m.steps
			p.log.publish = func(e api.Event) { got = append(got, e) }
			p.begin(plan.Plan{Generation: 1}, nil, 2)
			if own {
				p.report(pipeline.StepResult{Step: 2, Loss: 4}, 8, time.Unix(1, 0))
				p.report(pipeline.StepResult{Step: 2, HeldOut: &heldOut, HeldOutF32: tt.f32, Final: true}, 8, time.Unix(2, 0))
			} else { // another node tells
				p.merge([]api.Event{{Kind: api.KindStep, Generation: 1, Step: 2, Steps: 2, Loss: 4, HeldOut: &heldOut, HeldOutF32: tt.f32}}, nil)
			}
			run := plan.RunSpec{Model: model.Config{Vocab: 256}, Train: plan.TrainSpec{Steps: 2, Storage: plan.StorageAuto}}
			var status api.Status
			m.fillProgress(&status, consensus.State{})
			done := m.doneEvent(consensus.State{Run: &run, Plan: tt.plan, Finished: true, Checkpoint: consensus.Checkpoint{Step: 2}})
			if done.Message != tt.want || done.HeldOutF32 != tt.f32 || status.HeldOutF32 != tt.f32 || got[0].HeldOutF32 != tt.f32 {
				t.Errorf("own %v: %q, want %q; status %v, steps %+v", own, done.Message, tt.want, status.HeldOutF32, got)
			}
		}
	}
}

// TestAnotherCourseIsTold: once, by the first step on it, not by a generation's first step.
func TestAnotherCourseIsTold(t *testing.T) {
	p := &steps{log: stepLog{publish: func(api.Event) {}}}
	p.begin(plan.Plan{Generation: 1}, nil, 9)
	deeper := plan.ScheduleChoice{Schedule: "1f1b", Warmups: [][]int{{3, 0}}}
	var told []string
	for step, course := range []plan.ScheduleChoice{{Schedule: "gpipe"}, {Schedule: "gpipe"}, deeper, deeper, {Schedule: "gpipe"}} {
		for range 2 { // two placements on this node
			if left := p.report(pipeline.StepResult{Step: plan.Step(step + 1), Schedule: course}, 8, time.Unix(int64(step), 0)); left != "" {
				told = append(told, fmt.Sprint(step+1, " ", left))
			}
		}
	}
	if want := []string{"3 " + plan.ScheduleChoice{Schedule: "gpipe"}.String(), "5 " + deeper.String()}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestSpeed: the speed is that of the time from step to step, whichever came at once after a wait.
func TestSpeed(t *testing.T) {
	var s steps
	for _, ms := range []int{1, 1999, 1000, 1500, 500, 1, 1999} {
		s.measure(100, time.Duration(ms)*time.Millisecond)
	}
	if got := s.newest.TokensPerS; got < 99.9 || got > 100.1 {
		t.Errorf("%.0f tokens/s, steps of 100 tokens took a second on average", got)
	}
}

// TestStepsOfAnotherLineage: generations are counted anew from where two lineages of the log parted. The steps of the one that counts are
// shown and told, though the other one had come further.
func TestStepsOfAnotherLineage(t *testing.T) {
	var shown []api.Event
	var s steps
	s.log.publish = func(e api.Event) { shown = append(shown, e) }
	step := func(n plan.Step) pipeline.StepResult { return pipeline.StepResult{Step: n} }
	s.begin(plan.Plan{Generation: 1}, nil, 9)
	s.report(step(1), 1, time.Unix(1, 0))
	s.begin(plan.Plan{Generation: 2, Start: 1}, nil, 9)
	for n := range plan.Step(4) {
		s.report(step(n+2), 1, time.Unix(2, 0))
	}
	s.begin(plan.Plan{Generation: 2, Start: 1}, plan.Partings{{Recovery: "r", Generation: 1}}, 9)
	var b gossip.Heartbeat
	if s.fillHeartbeat(&b); b.Generation != 2 || b.Lineage != "r" || b.Step != 1 {
		t.Errorf("after the change a heartbeat says %+v", b)
	}
	shown = nil
	s.report(step(2), 1, time.Unix(3, 0))
	if s.fillHeartbeat(&b); spell(shown) != "2/2" || b.Step != 2 || spell(s.log.since(position{})) != "1/1 2/2" {
		t.Errorf("shown %q, told %q, %+v", spell(shown), spell(s.log.since(position{})), b)
	}
}

// TestWhoReadTheStepsIsHeard: in a recovered run a node that was started again, or gave up another lineage, has the generation from other
// nodes' logs alone. The others take what it says as said of theirs.
func TestWhoReadTheStepsIsHeard(t *testing.T) {
	log := plan.Partings{{Recovery: "r", Generation: 3}}
	for name, before := range map[string]plan.Generation{"started again": 0, "before the two parted": 3, "in another lineage": 7} {
		s := &steps{log: stepLog{publish: func(api.Event) {}}}
		if before != 0 {
			s.begin(plan.Plan{Generation: before}, nil, 100)
			s.report(pipeline.StepResult{Step: 60}, 1, time.Unix(1, 0))
		}
		others := gossip.NewTracker()
		others.Follow(log)
		heard := func() gossip.Heartbeat {
			b := gossip.Heartbeat{Peer: "o", Whole: &plan.WholeCopy{Step: 20, Generation: 5}}
			s.fillHeartbeat(&b)
			others.Note(b, time.Unix(1000, 0))
			b, _ = others.Last("o")
			return b
		}
		read := func() {
			s.merge([]api.Event{{Kind: api.KindStep, Generation: 5, Step: 20, Steps: 100, Loss: 3}}, log)
		}
		read() // the node has not followed the log so far
		s.follow(log)
		if b := heard(); b.Generation == 5 || b.Whole == nil {
			t.Errorf("%s, before it read the steps: heard %+v", name, b)
		}
		s.with(func(l *stepLog) { l.beginLate(position{5, 20}) })
		read()
		if b := heard(); b.Generation != 5 || b.Step != 20 || b.Whole == nil {
			t.Errorf("%s: heard %+v", name, b)
		}
	}
}
