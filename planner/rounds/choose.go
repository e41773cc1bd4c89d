package rounds

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

const (
	// mostPercent is the part of the time that inner steps may wait for outer ones.
	mostPercent = 4
	// nearPercent is by how much longer a step may be than under the choice that waits least, where no choice waits for few enough.
	nearPercent = 2
	// fewest is how many outer steps what is left of a run has at least, where the rule leaves that open.
	fewest = 40
	// usual is the most inner steps of a round before messages have fewer bits instead, leastTopK the fewest with those of the fewest bits.
	usual, leastTopK = 100, 30
)

var (
	everies = []plan.Step{10, 20, 30, 50, 100, 200, 500}
	codecs  = []string{"int8", "int4", "topk"}
)

// Choice says how replicas make outer steps.
type Choice struct {
	Every plan.Step
	Codec string
	// Exposed is how long inner steps wait for each outer step.
	Exposed schedule.Nanos
}

// PerStep returns by how much outer steps lengthen an inner one on average.
func (c Choice) PerStep() schedule.Nanos {
	every := schedule.Nanos(max(c.Every, 1))
	return c.Exposed/every + min(c.Exposed%every, 1)
}

// Permille returns for what part of the time inner steps of some length wait.
func (c Choice) Permille(step schedule.Nanos) int64 {
	return int64(c.PerStep()) * 1000 / int64(max(step+c.PerStep(), 1))
}

// Local returns the choice as plans have it.
func (c Choice) Local() *plan.Local {
	return &plan.Local{Rounds: plan.Rounds{Every: c.Every, Fragments: 1}, Codec: c.Codec}
}

// Choose returns the first choice under which inner steps of so many nanoseconds wait for at most mostPercent of the time, or the first one under
// which they take about as long as under the one that waits least. An outer step takes exposed, by codec. So many steps of the run are left. What the rule says is not changed.
func Choose(rule plan.SyncRule, left plan.Step, step schedule.Nanos, exposed func(codec string) schedule.Nanos) Choice {
	tried, paces := codecs, slices.Clone(everies)
	if rule.Codec != "" {
		tried = []string{rule.Codec}
	}
	if paces = slices.DeleteFunc(paces, func(every plan.Step) bool { return every > everies[0] && every*fewest > left }); rule.Every > 0 {
		paces = []plan.Step{rule.Every}
	}
	var all []Choice
	for _, codec := range tried {
		took := exposed(codec)
		for _, every := range paces {
			if len(tried) > 1 && codec == "topk" && every < min(leastTopK, slices.Max(paces)) {
				continue
			}
			all = append(all, Choice{every, codec, took})
		}
	}
	slices.SortStableFunc(all, func(a, b Choice) int { return cmp.Compare(rare(a), rare(b)) })
	least := all[0].PerStep()
	for _, c := range all {
		if c.within(step) {
			return c
		}
		least = min(least, c.PerStep())
	}
	near := func(c Choice) bool { return (step+c.PerStep())*100 <= (step+least)*(100+nearPercent) }
	return all[slices.IndexFunc(all, near)]
}

// Why says how the steps and the codec were chosen, for inner steps of some length.
func (c Choice) Why(rule plan.SyncRule, left plan.Step, step schedule.Nanos) string {
	what := "the fewest steps in the most exact codec that keep"
	switch {
	case rule.Every > 0 && rule.Codec != "":
		return "as the run asks"
	case rule.Every > 0:
		what = "the most exact codec that keeps"
	case rule.Codec != "":
		what = "the fewest steps that keep"
	}
	if c.within(step) {
		return fmt.Sprintf("%s this within %d%%", what, mostPercent)
	}
	why := "nothing that is tried takes much less"
	if rule.Every == 0 && left < fewest*everies[len(everies)-1] {
		why += fmt.Sprintf(", with %d outer steps or more in the %d steps that are left", min(fewest, max(left/everies[0], 1)), left)
	}
	return why
}

// within reports whether inner steps of some length wait for mostPercent of the time at most.
func (c Choice) within(step schedule.Nanos) bool {
	return c.PerStep()*100 <= (step+c.PerStep())*mostPercent
}

// rare returns 1 for rounds of many inner steps, which come after those of fewer in any codec.
func rare(c Choice) int {
	if c.Every > usual {
		return 1
	}
	return 0
}
