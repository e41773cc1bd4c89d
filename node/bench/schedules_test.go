package bench

import (
	"flag"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/link"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

var grid = flag.String("grid", "", "print the table of a grid of schedules: small, full, the full one of so many stages, or one cell, such as 8,10,150ms")

// TestScheduleGrid prints what `pnode bench schedules` measures, in virtual time: nothing but
// devices and links takes any, whatever else the machine does.
func TestScheduleGrid(t *testing.T) {
	if *grid == "" {
		t.Skip("takes minutes: ask for it with -grid small or full")
	}
	o := ScheduleOptions{Full: *grid != "small"}
	for i, word := range strings.Split(*grid, ",") {
		n, err := strconv.Atoi(word)
		switch d, wrong := time.ParseDuration(word); {
		case i == 0 && err == nil:
			o.Stages = []int{n}
		case i == 1 && err == nil:
			o.Mbits = []int{n}
		case i == 2 && wrong == nil:
			o.Latencies = []time.Duration{d}
		}
	}
	t.Log("\n" + virtualSchedules(t, o).Text())
}

// virtualSchedules measures each cell in a bubble of its own.
func virtualSchedules(t *testing.T, o ScheduleOptions) ScheduleReport {
	t.Helper()
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	var all ScheduleReport
	for _, cell := range o.cells() {
		synctest.Test(t, func(t *testing.T) {
			r, err := Schedules(t.Context(), cell)
			if err != nil {
				t.Fatal(err)
			}
			if *grid != "" {
				t.Logf("%+v", r.Cells[0])
			}
			r.Cells = append(all.Cells, r.Cells...)
			all = r
		})
	}
	all.summarise()
	return all
}

// TestSchedulesOnASlowLink: with memory the elastic schedule reaches the bound where plain
// 1F1B waits for messages, and the simulator says how long each takes.
func TestSchedulesOnASlowLink(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of QUIC")
	}
	r := virtualSchedules(t, ScheduleOptions{Stages: []int{4}, Mbits: []int{100}, Latencies: []time.Duration{40 * time.Millisecond}})
	runs := map[string]ScheduleRun{}
	for _, run := range r.Cells[0].Runs {
		runs[run.Name+" "+run.Cap] = run
		if run.Refused != "" || run.StepMS <= 0 || run.Error > 0.05 || run.Error < -0.05 {
			t.Errorf("the simulator is more than 5%% off: %+v", run)
		}
	}
	if e := runs["elastic none"]; e.Ratio > 1.05 || e.Ratio < 0.99 {
		t.Errorf("elastic: %.3f of the bound", e.Ratio)
	}
	if e, cap1, cap2 := runs["elastic none"], runs["elastic 1f1b"], runs["elastic 2x"]; e.PeriodMS >= cap2.PeriodMS || cap2.PeriodMS >= cap1.PeriodMS {
		t.Errorf("periods of %.1f, %.1f and %.1f ms: less memory is not slower", e.PeriodMS, cap2.PeriodMS, cap1.PeriodMS)
	}
	for _, name := range []string{"1f1b none", "depth-first none", "breadth-first none"} {
		if run := runs[name]; run.Slower < 1.34 {
			t.Errorf("%s takes %.2f of the elastic step where it stalls", name, run.Slower)
		}
	}
	if r.MeanError > 0.05 || r.WorstRatio != runs["elastic none"].Ratio {
		t.Errorf("summary: %+v", r)
	}
}

// TestStepsStaySteadyOnALongLink: from the first step on, and in each, whatever else is tried on
// the connections: a message that comes a round trip late is seven micro-batches late.
func TestStepsStaySteadyOnALongLink(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of QUIC")
	}
	const stages, steps = 2, 16
	c, err := newScheduleCase(stages, 40*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		shape := link.LinkConditions{BytesPerS: 1_250_000, Delay: 150 * time.Millisecond}
		rig, err := newScheduleRig(stages, shape)
		if err != nil {
			t.Fatal(err)
		}
		defer rig.close()
		c.peers = rig.peers
		warmups, err := c.elastic(shape, messageBytes, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.micros = 60
		run := trial{name: elasticName, spec: "1f1b", warmups: warmups}
		ran, p, err := rig.train(t.Context(), c, run, steps)
		if err != nil {
			t.Fatal(err)
		}
		for s := range plan.Step(steps) {
			if period, _ := pace(ran.Timeline(trace.Key{Generation: p.Generation, Step: s + 1}), p); period == 0 || period > c.stageTime*21/20 {
				t.Errorf("step %d: %v a micro-batch", s+1, period)
			}
		}
	})
}

// TestDevicesOfACapRefuseMore: the memory that a cap leaves holds the capped schedule and not
// one activation more.
func TestDevicesOfACapRefuseMore(t *testing.T) {
	c, err := newScheduleCase(2, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	c.micros = 6
	synctest.Test(t, func(t *testing.T) {
		rig, err := newScheduleRig(2, link.LinkConditions{BytesPerS: 1e7})
		if err != nil {
			t.Fatal(err)
		}
		defer rig.close()
		c.peers = rig.peers
		costs := c.costs(link.LinkConditions{BytesPerS: 1e7}, messageBytes)
		memory, err := c.capped([]int{2, 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			warmups []int
			refused bool
		}{{[]int{1, 0}, false}, {[]int{2, 0}, true}, {[]int{1, 1}, true}} {
			run, err := rig.measure(t.Context(), c, trial{name: "1f1b", spec: "1f1b", warmups: tc.warmups, memoryBytes: memory}, costs)
			if err != nil {
				t.Fatal(err)
			}
			if (run.Refused != "") != tc.refused {
				t.Errorf("warm-ups %v: %+v", tc.warmups, run)
			}
			if tc.refused && !strings.Contains(run.Refused, "out of device memory") {
				t.Errorf("warm-ups %v: refused because %s", tc.warmups, run.Refused)
			}
		}
	})
}

func TestBadScheduleOptions(t *testing.T) {
	for _, o := range []ScheduleOptions{
		{Stages: []int{1}},
		{Mbits: []int{0}},
		{Latencies: []time.Duration{-1}},
		{StageTime: time.Hour},
	} {
		if _, err := Schedules(t.Context(), o); err == nil || !strings.Contains(err.Error(), "take ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestChimeraHasTheGoldenRatio to plain 1F1B on links that take no time: its makespans are
// 16 and 21 units of a forward with 4 stages and micro-batches, 36 and 45 with 8 (Li and
// Hoefler 2021, and the rule (N+p-1)(f+b)).
func TestChimeraHasTheGoldenRatio(t *testing.T) {
	for stages, want := range map[int]float64{4: 16.0 / 21, 8: 36.0 / 45} {
		c, err := newScheduleCase(stages, 30*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		c.micros = stages
		synctest.Test(t, func(t *testing.T) {
			perfect := link.LinkConditions{BytesPerS: 1e12}
			rig, err := newScheduleRig(stages, perfect)
			if err != nil {
				t.Fatal(err)
			}
			defer rig.close()
			c.peers = rig.peers
			step := func(spec string) float64 {
				run, err := rig.measure(t.Context(), c, trial{name: spec, spec: spec, warmups: warmupsOf(spec, stages)}, c.costs(perfect, messageBytes))
				if err != nil || run.Refused != "" {
					t.Fatalf("%s: %v %s", spec, err, run.Refused)
				}
				return run.StepMS
			}
			if got := step("chimera") / step("1f1b"); got < want*0.95 || got > want*1.05 {
				t.Errorf("%d stages: chimera takes %.3f of 1F1B's step, want %.3f", stages, got, want)
			}
		})
	}
}

func warmupsOf(spec string, stages int) []int {
	if spec == "1f1b" {
		return schedule.DepthWarmups(stages, 1)
	}
	return nil
}
