package bench

import (
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/link"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/plan"
)

// leanStage is a stage whose blocks may be computed again, on a device of so much memory.
type leanStage struct {
	memoryBytes int64
	elastic.Stage
}

// leanStage has memory for so many micro-batches in flight of which nothing but the blocks'
// inputs are kept, and for what so many of its layers restore ahead of a gradient.
func (c *scheduleCase) leanStage(t *testing.T, stage, inFlight, ahead int) (out leanStage) {
	t.Helper()
	layers := c.cut(c.stages)[stage]
	memory := func(level model.Recompute, slots, ahead int) model.Memory {
		m, err := model.StackConfig{
			Model: c.model, First: layers.First, End: layers.End, MicroBatch: 1, Slots: slots, Moments: 2,
			Recompute: level.Uniform(layers.Len()), Ahead: ahead,
		}.Memory()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	bytes := func(level model.Recompute, slots, ahead int) int64 { return memory(level, slots, ahead).Total() }
	kept := bytes(model.RecomputeNothing, 2, 0) - bytes(model.RecomputeNothing, 1, 0)
	leanest := bytes(model.RecomputeBlock, 2, 0) - bytes(model.RecomputeBlock, 1, 0)
	_, backward, err := c.passes(c.profiles[stage], layers, model.RecomputeBlock)
	if err != nil {
		t.Fatal(err)
	}
	again := schedule.Nanos(backward) - c.times[stage].Input
	out.memoryBytes = bytes(model.RecomputeBlock, inFlight, ahead) + besideStack
	out.Stage = elastic.Stage{Time: c.times[stage], SlotBytes: kept, RoomBytes: out.memoryBytes - besideStack - bytes(model.RecomputeNothing, 1, 0) + kept}
	pass := max(0, bytes(model.RecomputeBlock, 1, 0)-leanest-bytes(model.RecomputeNothing, 1, 0)+kept)
	for l := layers.First; l < layers.End; l++ {
		levels := make(cost.Recomputations, model.RecomputeBlock+1)
		if l > 0 && l < c.model.Layers()-1 { // the ends have nothing to drop
			levels[model.RecomputeBlock] = cost.Recomputation{
				FreedBytes: (kept - leanest) / chunksPerStage, PassBytes: pass, Time: again / chunksPerStage,
				AheadBytes: memory(model.RecomputeBlock, 1, layers.End-l).Ahead - memory(model.RecomputeBlock, 1, layers.End-l-1).Ahead,
			}
		}
		out.Layers = append(out.Layers, levels)
	}
	return out
}

// leanTrial is the elastic choice on such stages, with the costs that it promises.
func (c *scheduleCase) leanTrial(t *testing.T, name string, stages []leanStage, shape link.LinkConditions, wireBytes int) (trial, schedule.Costs) {
	t.Helper()
	line := cost.Link{BytesPerS: shape.BytesPerS, RTTNanos: 2 * shape.Delay.Nanoseconds()}
	p := elastic.Problem{Micros: c.micros}
	for i, s := range stages {
		p.Stages = append(p.Stages, s.Stage)
		if i > 0 {
			p.Boundaries = append(p.Boundaries, elastic.Boundary{Elements: int64(wireBytes-plan.CodecFront) / 4, Forth: line, Back: line})
		}
	}
	d, err := elastic.Choose(p)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	chosen := trial{name: name, cap: noCap, spec: "1f1b", warmups: d.Warmups}
	for _, s := range stages {
		chosen.memoryBytes = append(chosen.memoryBytes, s.memoryBytes)
	}
	chosen.place = func(stage int, p *plan.Placement) {
		p.Recompute, p.Ahead = plan.JoinLevels(d.Recompute[stage]), d.Ahead[stage]
	}
	costs := c.costs(shape, wireBytes)
	costs.Stages = d.Costs.Stages
	t.Logf("%s: %v, ahead %v, warm-ups %v, period %v promised: %s", name, d.Recompute, d.Ahead, d.Warmups, time.Duration(d.Period), d.Bound.Text(func(s int) string { return c.peers[s].Short() }))
	return chosen, costs
}

// TestRecomputingInWaits runs what the planner chooses for devices of which the first has
// memory for six micro-batches in flight and no more, whatever it computes again, and the next
// ones for all that they keep if they compute it again, and to have that there before a
// gradient. Within their backwards it makes the round trip longer that those six share.
func TestRecomputingInWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of QUIC")
	}
	c, err := newScheduleCase(6, 40*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	c.micros = 24
	shape := link.LinkConditions{BytesPerS: 1e9 / 8, Delay: 10 * time.Millisecond}
	synctest.Test(t, func(t *testing.T) {
		rig, err := newScheduleRig(6, shape)
		if err != nil {
			t.Fatal(err)
		}
		defer rig.close()
		c.peers = rig.peers
		wire, err := rig.warm(t.Context(), c, schedule.DepthWarmups(6, 1))
		if err != nil {
			t.Fatal(err)
		}
		stages := []leanStage{c.leanStage(t, 0, 6, 0)}
		for s := 1; s < 5; s++ {
			stages = append(stages, c.leanStage(t, s, 6-s, chunksPerStage))
		}
		stages = append(stages, c.leanStage(t, 5, 12, 0))
		measure := func(name string) ScheduleRun {
			chosen, costs := c.leanTrial(t, name, stages, shape, wire)
			run, err := rig.measure(t.Context(), c, chosen, costs)
			if err != nil || run.Refused != "" {
				t.Fatalf("%s: %v %s", name, err, run.Refused)
			}
			t.Logf("%s: period %.1f ms, step %.0f ms, simulated %.1f and %.0f ms", name, run.PeriodMS, run.StepMS, run.PredictedPeriodMS, run.PredictedStepMS)
			if run.Error > 0.05 || run.Error < -0.05 {
				t.Errorf("%s: the simulator is %.1f%% off", name, 100*run.Error)
			}
			return run
		}
		ahead := measure("in waits")
		for i := range stages { // as if nothing could be there before its gradient
			for l := range stages[i].Layers {
				stages[i].Layers[l][model.RecomputeBlock].AheadBytes = 1 << 40
			}
		}
		inside := measure("in backwards")
		if ahead.PeriodMS > 0.95*inside.PeriodMS || ahead.StepMS > 0.95*inside.StepMS {
			t.Errorf("recomputing in waits: period %.1f ms and step %.0f ms, in backwards %.1f and %.0f ms", ahead.PeriodMS, ahead.StepMS, inside.PeriodMS, inside.StepMS)
		}
	})
}
