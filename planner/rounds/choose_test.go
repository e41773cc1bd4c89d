package rounds

import (
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// bytesOn returns what an outer step of 30 million parameters takes on a line of so many Mbit/s, all of which is on the way.
func bytesOn(mbits int64) func(string) (all, travels schedule.Nanos) {
	return func(codec string) (all, travels schedule.Nanos) {
		bits := map[string]int64{"f32": 32_000, "bf16": 16_000, "int8": 8250, "int4": 4250, "topk": 219}[codec]
		all = schedule.Nanos(30_000_000 * bits / mbits)
		return all, all
	}
}

func TestChoose(t *testing.T) {
	const (
		second = schedule.Nanos(1e9)
		best   = "the fewest steps in the most exact codec that keep this within 4%"
	)
	for name, c := range map[string]struct {
		rule  plan.SyncRule
		left  plan.Step
		step  schedule.Nanos
		mbits int64
		every plan.Step
		codec string
		why   string
	}{
		"a fast line":                {plan.SyncRule{}, 100_000, 10 * second, 1000, 10, "int8", best},
		"100 Mbit/s":                 {plan.SyncRule{}, 100_000, 2 * second, 100, 30, "int8", best},
		"60 Mbit/s":                  {plan.SyncRule{}, 100_000, second, 60, 100, "int8", best},
		"fewer bits than usual":      {plan.SyncRule{}, 100_000, second, 40, 100, "int4", best},
		"the largest elements":       {plan.SyncRule{}, 100_000, second, 10, 30, "topk", best},
		"few steps are left":         {plan.SyncRule{}, 800, second, 50, 20, "int4", "the fewest steps in the most exact codec that keep what is waited for within 4%"},
		"few, on a slow line":        {plan.SyncRule{}, 800, second, 10, 20, "topk", best},
		"many, on a slow line":       {plan.SyncRule{}, 6000, second, 10, 30, "topk", best},
		"not as many":                {plan.SyncRule{}, 5999, second, 10, 100, "int4", "the fewest steps in the most exact codec that keep what is waited for within 4%"},
		"so few that none is":        {plan.SyncRule{}, 10, second, 1000, 10, "int8", best},
		"the rule's pace":            {plan.SyncRule{Every: 7}, 100_000, second, 10, 7, "topk", "nothing that is tried takes much less"},
		"the rule's codec":           {plan.SyncRule{Codec: "f32"}, 100_000, second, 100, 500, "f32", "the fewest steps that keep this within 4%"},
		"no line is fast enough":     {plan.SyncRule{}, 1000, second, 1, 20, "topk", "nothing that is tried takes much less, with 40 outer steps or more in the 1000 steps that are left"},
		"both, on any line":          {plan.SyncRule{Every: 3, Codec: "bf16"}, 100_000, second, 1, 3, "bf16", "as the run asks"},
		"the rule's, with the run's": {plan.SyncRule{Codec: "int8"}, 100_000, second, 1, 500, "int8", "nothing that is tried takes much less"},
	} {
		got := Choose(c.rule, c.left, c.step, bytesOn(c.mbits))
		if got.Every != c.every || got.Codec != c.codec {
			t.Errorf("%s: every %d steps in %s, want %d in %s: %d permille", name, got.Every, got.Codec, c.every, c.codec, got.Permille(c.step))
		}
		if why := got.Why(c.rule, c.left); why != c.why {
			t.Errorf("%s: %s, want %s", name, why, c.why)
		}
		if l := got.Local(); l.Rounds.Validate() != nil || l.Every != got.Every || l.Codec != got.Codec {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestExactnessIsNotGivenAwayForNothing: where most of an outer step is not its messages, fewer bits would make steps hardly shorter.
func TestExactnessIsNotGivenAwayForNothing(t *testing.T) {
	const step, rest = schedule.Nanos(100e6), schedule.Nanos(300e6)
	got := Choose(plan.SyncRule{Every: 5}, 1000, step, func(codec string) (all, travels schedule.Nanos) {
		_, travels = bytesOn(100_000)(codec)
		return rest + travels, travels
	})
	if got.Codec != "int8" {
		t.Errorf("in %s, want int8", got.Codec)
	}
}

// TestWhyIsTheRuleThatChose: what nothing takes much less than may have nobody wait as well.
func TestWhyIsTheRuleThatChose(t *testing.T) {
	const step = schedule.Nanos(100e6)
	rule := plan.SyncRule{Every: 30}
	got := Choose(rule, 100_000, step, func(string) (all, travels schedule.Nanos) { return 300e6, 300e6 })
	if why, want := got.Why(rule, 100_000), "nothing that is tried takes much less"; got.Codec != "int8" || !got.waits(step) || got.within(step) || why != want {
		t.Errorf("%+v: %s, want %s", got, why, want)
	}
}

// TestSlowerLinesWaitLonger: with each slower line rounds are no shorter, or messages have fewer bits, and no choice keeps inner steps waiting longer than a rarer
// one in the same codec.
func TestSlowerLinesWaitLonger(t *testing.T) {
	for step := schedule.Nanos(1e6); step < 1e12; step *= 7 {
		before := schedule.Nanos(0)
		for mbits := int64(10_000); mbits > 0; mbits /= 3 {
			c := Choose(plan.SyncRule{AtOnce: true}, 1<<30, step, bytesOn(mbits))
			if c.PerStep() > step/19+1 { // nothing keeps the wait short: the least is taken
				if c.PerStep() < before {
					t.Errorf("%d Mbit/s: %v a step, less than on the faster line: %v", mbits, c.PerStep(), before)
				}
				before = c.PerStep()
			}
			late := Choose(plan.SyncRule{}, 1<<30, step, bytesOn(mbits))
			if late.Every != c.Every || late.Codec != c.Codec || late.PerStep() > c.PerStep() || late.Delay*mostLate > late.Every {
				t.Errorf("%d Mbit/s, steps of %v: %+v, at once %+v", mbits, step, late, c)
			}
		}
	}
}

// TestInnerStepsGoOn while messages travel, where that takes much of the time: for as many steps as they need and some more, but not for much of a round.
func TestInnerStepsGoOn(t *testing.T) {
	const second = schedule.Nanos(1e9)
	line := func(still, travels schedule.Nanos) func(string) (all, travels schedule.Nanos) {
		return func(string) (schedule.Nanos, schedule.Nanos) { return still + travels, travels }
	}
	for name, c := range map[string]struct {
		rule           plan.SyncRule
		still, travels schedule.Nanos
		delay          plan.Step
		exposed        schedule.Nanos
	}{
		"little time":       {plan.SyncRule{}, 0, second / 10, 0, second / 10},
		"three steps":       {plan.SyncRule{}, second / 5, 3 * second, 4, second / 5},
		"the rule says not": {plan.SyncRule{AtOnce: true}, 0, 3 * second, 0, 3 * second},
		"the rule says two": {plan.SyncRule{Delay: 2}, 0, 3 * second, 2, second},
		"too slow":          {plan.SyncRule{}, 0, 30 * second, 4, 26 * second},
	} {
		c.rule.Every, c.rule.Codec = 20, "int8"
		if got := Choose(c.rule, 1000, second, line(c.still, c.travels)); got.Delay != c.delay || got.Exposed != c.exposed || got.Local().Validate() != nil {
			t.Errorf("%s: %+v, want %d steps and %v", name, got, c.delay, c.exposed)
		}
	}
	for _, delay := range []plan.Step{1, 3, 9, 27, 81, 243, 729, 2187, plan.MaxEvery/2 + 1, plan.MaxEvery - 1} {
		if got := Choose(plan.SyncRule{Delay: delay}, 100, second, line(0, second)); got.Delay != delay || got.Local().Validate() != nil {
			t.Errorf("a delay of %d: %+v", delay, got)
		}
	}
}
