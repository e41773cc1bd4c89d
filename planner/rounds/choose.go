package rounds

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

const (
	// mostPercent is the part of the time that outer steps may take.
	mostPercent = 4
	// nearPercent is by how much longer a step may be than under the choice whose outer steps take least, where none is within mostPercent.
	nearPercent = 2
	// fewest is how many outer steps what is left of a run has at least, where the rule leaves that open.
	fewest = 40
	// mostLate is the part of a round for which messages of the one before may travel, at most, marginPercent the part by which they may take longer
	// than expected, and hiddenPermille the part of the time from which on inner steps go on meanwhile.
	mostLate, marginPercent, hiddenPermille = 5, 25, 10
	// usual is the most inner steps of a round before messages have fewer bits instead, leastTopK the fewest with those of the fewest bits,
	// and manyTopK how many outer steps those need to learn as much: 74 cost a small model 9% of its loss, where int8 cost 1%.
	usual, leastTopK, manyTopK = 100, 30, 200
)

var (
	everies = []plan.Step{10, 20, 30, 50, 100, 200, 500}
	codecs  = []string{"int8", "int4", "topk"}
)

// Choice says how replicas make outer steps.
type Choice struct {
	Every plan.Step
	Codec string
	Delay plan.Step
	// Takes is how long an outer step takes, Exposed for how long of that inner steps wait.
	Takes, Exposed schedule.Nanos
	keeps          kept
}

// kept says what a choice was chosen for.
type kept uint8

const (
	least kept = iota // nothing takes much less
	takes             // outer steps take mostPercent of the time at most
	waits             // inner steps wait for no longer, while outer steps take more
)

// PerStep returns by how much outer steps lengthen an inner one on average.
func (c Choice) PerStep() schedule.Nanos { return c.spread(c.Exposed) }

// spread returns the part of a time of a round that comes to one inner step.
func (c Choice) spread(t schedule.Nanos) schedule.Nanos {
	every := schedule.Nanos(max(c.Every, 1))
	return t/every + min(t%every, 1)
}

// Permille returns for what part of the time inner steps of some length wait.
func (c Choice) Permille(step schedule.Nanos) int64 {
	return int64(c.PerStep()) * 1000 / int64(max(step+c.PerStep(), 1))
}

// Local returns the choice as plans have it.
func (c Choice) Local() *plan.Local {
	return &plan.Local{Rounds: plan.Rounds{Every: c.Every, Fragments: 1, Delay: c.Delay}, Codec: c.Codec}
}

// Choose returns the first choice whose outer steps take mostPercent of the time of inner steps of so many nanoseconds at most, or the first one with
// about the least of it. An outer step takes all, by codec, and for travels of that its messages are on their way: where that is much, inner steps go on meanwhile. So
// many steps of the run are left: where they are too few for the fewest bits, it is enough that inner steps wait for no longer. What the rule says is not changed.
func Choose(rule plan.SyncRule, left plan.Step, step schedule.Nanos, outer func(codec string) (all, travels schedule.Nanos)) Choice {
	tried, paces := codecs, slices.Clone(everies)
	if rule.Codec != "" {
		tried = []string{rule.Codec}
	}
	paces = slices.DeleteFunc(paces, func(every plan.Step) bool {
		return every <= rule.Delay || every > max(everies[0], 2*rule.Delay) && every*fewest > left
	})
	if rule.Every > 0 {
		paces = []plan.Step{rule.Every}
	} else if len(paces) == 0 {
		paces = []plan.Step{min(2*rule.Delay, plan.MaxEvery)}
	}
	var all []Choice
	for _, codec := range tried {
		took, travels := outer(codec)
		for _, every := range paces {
			if len(tried) > 1 && codec == "topk" && every < min(leastTopK, slices.Max(paces)) {
				continue
			}
			c := Choice{Every: every, Codec: codec, Takes: took}
			all = append(all, c.hidden(rule, step, travels))
		}
	}
	last := func(c Choice) bool { return len(tried) > 1 && c.Codec == "topk" && c.Every*manyTopK > left }
	rank := func(c Choice) int {
		switch {
		case last(c):
			return 2
		case c.Every > usual: // after those of fewer in any codec
			return 1
		}
		return 0
	}
	few := slices.ContainsFunc(all, last)
	slices.SortStableFunc(all, func(a, b Choice) int { return cmp.Compare(rank(a), rank(b)) })
	for _, good := range []struct {
		keeps kept
		is    func(Choice) bool
	}{
		{takes, func(c Choice) bool { return !last(c) && c.within(step) }},
		{waits, func(c Choice) bool { return few && !last(c) && c.waits(step) }},
		{takes, func(c Choice) bool { return c.within(step) }},
	} {
		if i := slices.IndexFunc(all, good.is); i >= 0 {
			all[i].keeps = good.keeps
			return all[i]
		}
	}
	best := slices.MinFunc(all, func(a, b Choice) int { return cmp.Compare(a.spread(a.Takes), b.spread(b.Takes)) })
	near := func(c Choice) bool {
		return (step+c.spread(c.Takes))*100 <= (step+best.spread(best.Takes))*(100+nearPercent)
	}
	return all[slices.IndexFunc(all, near)]
}

// hidden returns the choice with inner steps that go on while messages travel for some time.
func (c Choice) hidden(rule plan.SyncRule, step, travels schedule.Nanos) Choice {
	c.Exposed, c.Delay = c.Takes, rule.Delay
	if rule.Delay == 0 && !rule.AtOnce && c.Permille(step) >= hiddenPermille {
		margin := travels + travels/100*marginPercent
		c.Delay = min(c.Every/mostLate, plan.Step(min(margin/max(step, 1)+1, plan.MaxEvery)))
	}
	if meanwhile := schedule.Nanos(c.Delay); travels/max(step, 1) >= meanwhile {
		c.Exposed -= meanwhile * step
	} else {
		c.Exposed -= travels
	}
	return c
}

// Why says how the steps and the codec were chosen.
func (c Choice) Why(rule plan.SyncRule, left plan.Step) string {
	what := "the fewest steps in the most exact codec that keep"
	switch {
	case rule.Every > 0 && rule.Codec != "":
		return "as the run asks"
	case rule.Every > 0:
		what = "the most exact codec that keeps"
	case rule.Codec != "":
		what = "the fewest steps that keep"
	}
	switch c.keeps {
	case takes:
		return fmt.Sprintf("%s this within %d%%", what, mostPercent)
	case waits:
		return fmt.Sprintf("%s what is waited for within %d%%", what, mostPercent)
	}
	why := "nothing that is tried takes much less"
	if rule.Every == 0 && left < fewest*everies[len(everies)-1] {
		why += fmt.Sprintf(", with %d outer steps or more in the %d steps that are left", min(fewest, max(left/everies[0], 1)), left)
	}
	return why
}

// within reports whether outer steps take mostPercent of the time of inner steps of some length at most.
func (c Choice) within(step schedule.Nanos) bool {
	return c.spread(c.Takes)*100 <= (step+c.spread(c.Takes))*mostPercent
}

// waits reports whether inner steps of some length wait for mostPercent of the time at most.
func (c Choice) waits(step schedule.Nanos) bool { return c.Permille(step) <= 10*mostPercent }
