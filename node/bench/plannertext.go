package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"pnode/pipeline/schedule"
	"pnode/planner/comparison"
	"pnode/planner/plan"
)

// parts makes the text of a row of a report in the order in which it is known.
type parts[T any] struct {
	// head comes before the first line.
	head string
	// line is what is said of each, nil for nothing, tail what is said of all.
	line func(i int, one T) string
	tail func(all []T) string
	// begun reports whether one that was not ended is worth to be kept; nil for none.
	begun func(one T) bool
}

func (p parts[T]) lineText(i int, one T) (text string) {
	if i == 0 {
		text = p.head
	}
	if p.line != nil {
		text += p.line(i, one)
	}
	return text
}

func (p parts[T]) tailText(all []T) string {
	if len(all) == 0 {
		return ""
	}
	text := "\n"
	if p.tail != nil {
		text = p.tail(all) + text
	}
	return text
}

func (p parts[T]) text(all []T) (text string) {
	for i, one := range all {
		text += p.lineText(i, one)
	}
	return text + p.tailText(all)
}

// Text returns the report for people.
func (r PlannerReport) Text() string {
	return chainParts(len(r.Chains) == 1).text(r.Chains) + gapParts("2 to 5 devices", rowSmall).text(r.Small) + gapParts("6 to 8 devices", rowMedium).text(r.Medium) +
		mixedParts().text(r.Mixed) + kindParts().text(r.Kinds) + timeParts(r.Layers).text(r.Times) + predictionParts().text(r.Predictions) + r.partialText()
}

// partialText marks a report that is not whole.
func (r PlannerReport) partialText() string {
	if r.Partial == "" || !r.HasRows() {
		return ""
	}
	return "PARTIAL: " + r.Partial + "\n"
}

// columns holds the headers of a table whose lines are written before all are known, each as wide as its cells mostly are.
type columns []string

func (c columns) line(cells ...any) string {
	var b strings.Builder
	for i, cell := range cells {
		text := fmt.Sprint(cell)
		b.WriteString(text)
		if i+1 < len(cells) {
			b.WriteString(strings.Repeat(" ", max(0, utf8.RuneCountInString(c[i])-utf8.RuneCountInString(text))+2))
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

func (c columns) header() string {
	cells := make([]any, len(c))
	for i, h := range c {
		cells[i] = h
	}
	return c.line(cells...)
}

// percent returns how much longer a step is than another, in percent.
func percent(least, step schedule.Nanos) float64 { return float64(comparison.Over(least, step)) / 1e4 }

// chainParts says of each chain where its steps grow; of a single one it has all sizes.
func chainParts(single bool) parts[comparison.Chain] {
	p := parts[comparison.Chain]{tail: chainText, begun: func(c comparison.Chain) bool { return len(c.Anew) > 0 }, line: func(_ int, c comparison.Chain) string { return chainLine(c) }}
	if single {
		p.line = func(_ int, c comparison.Chain) (text string) {
			for i := range c.Anew {
				text += sizeText(c, i)
			}
			return text
		}
	}
	return p
}

// sizeText writes a line of a table of a chain's sizes.
func sizeText(c comparison.Chain, i int) string {
	t, s, text := columns{"nodes", "step      ", "as they join", "best single device", "plan"}, c.Anew[i], ""
	if i == 0 {
		text = t.header()
	}
	return text + t.line(s.Nodes, stepText(s.Step), stepText(c.Joined[i].Step), stepText(s.Alone), s.Plan)
}

// chainLine sums one of many chains up.
func chainLine(c comparison.Chain) string {
	var grown []string
	for _, way := range []struct {
		how   string
		sizes comparison.Sizes
	}{{"as they join", c.Joined}, {"anew", c.Anew}} {
		if worst := way.sizes.Growths(mostGrowth); len(worst) > 0 {
			grown = append(grown, fmt.Sprintf("%s %+.1f%% at %s", way.how, float64(worst[0].Over())/1e4, plan.Count(worst[0].Nodes, "node")))
		}
	}
	last := len(c.Anew) - 1
	text := fmt.Sprintf("seed %d: %s, %s as they join, %s anew", c.Seed, plan.Count(c.Anew[last].Nodes, "node"), stepText(c.Joined[last].Step), stepText(c.Anew[last].Step))
	if len(grown) > 0 {
		text += "; longer than with fewer: " + strings.Join(grown, ", ")
	}
	return text + "\n"
}

// chainText sums chains up.
func chainText(chains []comparison.Chain) string {
	var w strings.Builder
	over, sizes, most := 0, 0, 0
	for _, c := range chains {
		if sizes += len(c.Anew); c.Anew.OverAlone().Nodes > 0 || c.Joined.OverAlone().Nodes > 0 {
			over++
		}
		most = max(most, c.Anew[len(c.Anew)-1].Nodes)
	}
	fmt.Fprintf(&w, "Nested clusters, %s of up to %s, %s in all: in %s a step is longer than on the best single device.\n",
		plan.Count(len(chains), "chain"), plan.Count(most, "node"), plan.Count(sizes, "size"), plan.Count(over, "chain"))
	growthText(&w, chains, "As the nodes join a run, each with the plan before in force", func(c comparison.Chain) comparison.Sizes { return c.Joined })
	growthText(&w, chains, "Each planned anew", func(c comparison.Chain) comparison.Sizes { return c.Anew })
	return w.String()
}

const (
	// mostGrowth is by how many parts per million a step may be longer than with fewer nodes.
	mostGrowth = 1000
	// grownShown is how many chains whose steps grow are named.
	grownShown = 10
)

// growthText says in how many chains a step is longer than with fewer nodes, and where it is by most.
func growthText(w *strings.Builder, chains []comparison.Chain, how string, sizes func(comparison.Chain) comparison.Sizes) {
	type grown struct {
		seed uint64
		comparison.Growth
	}
	var worst []grown // of each chain
	count := 0
	for _, c := range chains {
		all := sizes(c).Growths(mostGrowth)
		if count += len(all); len(all) > 0 {
			worst = append(worst, grown{c.Seed, all[0]})
		}
	}
	slices.SortStableFunc(worst, func(a, b grown) int { return cmp.Compare(b.Over(), a.Over()) })
	fmt.Fprintf(w, "%s: in %s, at %s, a step is over 0.1%% longer than with fewer nodes.\n", how, plan.Count(len(worst), "chain"), plan.Count(count, "size"))
	for i, g := range worst[:min(len(worst), grownShown)] {
		step := "no plan"
		if g.Step > 0 {
			step = plan.Time(g.Step)
		}
		what := "  "
		if i == 0 {
			what = "  worst: "
		}
		fmt.Fprintf(w, "%sseed %d, %s %s, %s %s (+%.1f%%)", what, g.seed, plan.Count(g.Nodes, "node"), step, plan.Count(g.Fewer.Nodes, "node"), plan.Time(g.Fewer.Step), float64(g.Over())/1e4)
		if i == 0 {
			fmt.Fprintf(w, ": pnode bench planner --only %s --chains 1 --seed %d", rowChains, g.seed)
		}
		w.WriteString("\n")
	}
}

// gapParts compares the plans of small clusters with the optimum.
func gapParts(what, row string) parts[comparison.Gap] {
	return parts[comparison.Gap]{tail: func(gaps []comparison.Gap) string { return gapText(what, row, gaps) }}
}

func gapText(what, row string, gaps []comparison.Gap) string {
	var w strings.Builder
	worst, exact, one, three, fits, open := gaps[0], 0, 0, 0, 0, 0
	for _, g := range gaps {
		if g.Step == 0 {
			continue
		}
		fits++
		over := percent(g.Least, g.Step)
		if !g.Proven {
			open++
		}
		if over <= 0 {
			exact++
		}
		if over <= 1 {
			one++
		}
		if over <= 3 {
			three++
		}
		if over > percent(worst.Least, worst.Step) {
			worst = g
		}
	}
	fmt.Fprintf(&w, "%s, seeds %d to %d, %d of which the model fits on: the plan is the optimum of all orders, cuts and replicas in %d, within 1%% in %d, within 3%% in %d; %d not proven.\n",
		what, gaps[0].Seed, gaps[len(gaps)-1].Seed, fits, exact, one, three, open)
	if worst.Best != "" {
		fmt.Fprintf(&w, "Worst: seed %d, %d layers, %s: %s, possible is %s (+%.1f%%): pnode bench planner --only %s --%s 1 --seed %d\n  plan  %s\n  best  %s\n",
			worst.Seed, worst.Layers, plan.Count(worst.Micros, "micro-batch"), plan.Time(worst.Step), plan.Time(worst.Least), percent(worst.Least, worst.Step), row, row, worst.Seed, worst.Plan, worst.Best)
	}
	return w.String()
}

func mixedParts() parts[comparison.Mixed] {
	t := columns{"nodes", "lines                                                  ", "step      ", "equal split", "by speed", "fastest alike", "plan"}
	return parts[comparison.Mixed]{line: func(i int, m comparison.Mixed) (text string) {
		if i == 0 {
			text = fmt.Sprintf("GPT-3 with 1.3 B parameters on V100, 3090, T4 and 1080 Ti, 128 micro-batches, seed %d. Times as long as the plan's step:\n", m.Seed) + t.header()
		}
		return text + t.line(m.Nodes, m.Lines, stepText(m.Step), times(m.Step, m.Equal), times(m.Step, m.Proportional), times(m.Step, m.Alike), m.Plan)
	}}
}

func kindParts() parts[comparison.Kinds] {
	t := columns{"stages", "micro-batches", "latency", "speeds", "step      ", "schedule            ", "1f1b", "least of one kind", ""}
	return parts[comparison.Kinds]{
		head: "Pipelines whose schedule is the planner's to choose:\n" + t.header(),
		line: func(_ int, k comparison.Kinds) string {
			speeds, plain := "like", schedule.Nanos(0)
			if k.Mixed {
				speeds = "mixed"
			}
			for _, a := range k.Alone {
				if a.Kind == plan.ScheduleName {
					plain = a.Step
				}
			}
			return t.line(k.Stages, k.Micros, fmt.Sprint(k.LatencyMS, " ms"), speeds, stepText(k.Step), k.Schedule, times(k.Step, plain), times(k.Step, k.Least().Step), k.Least().Kind)
		},
		tail: func(all []comparison.Kinds) string {
			slower := 0
			for _, k := range all {
				if k.Step > k.Least().Step {
					slower++
				}
			}
			gain, few := comparison.MeanGain(all)
			return fmt.Sprintf("%s: in %d another kind alone is shorter. With as many micro-batches as stages 1f1b takes %d.%03d times as long in the mean of %d.\n",
				plan.Count(len(all), "cell"), slower, gain/1000, gain%1000, few)
		},
	}
}

func timeParts(layers int) parts[PlanTime] {
	t := columns{"nodes", "plan   ", "after a loss", "repaired", ""}
	return parts[PlanTime]{
		head: fmt.Sprintf("Time of planning, %s, on this machine as it is now:\n", plan.Count(layers, "layer")) + t.header(),
		line: func(_ int, p PlanTime) string {
			repaired := "-"
			if p.RepairSeconds > 0 {
				repaired = fmt.Sprintf("%.3f s", p.RepairSeconds)
			}
			return t.line(p.Nodes, fmt.Sprintf("%.2f s", p.Seconds), fmt.Sprintf("%.2f s", p.AgainSeconds), repaired, p.Plan)
		},
	}
}

func predictionParts() parts[Prediction] {
	t := columns{"seed", "nodes", "micro-batches", "layers", "tied ", "replicas", "stages", "schedule   ", "predicted ", "measured  ", "error ", "memory"}
	return parts[Prediction]{
		head: "Predicted steps against those of workers on emulated devices and lines:\n" + t.header(),
		line: func(_ int, p Prediction) string {
			return t.line(p.Seed, p.Nodes, p.Micros, p.Layers, p.Tied, p.Replicas, p.Stages, firstWord(p.Schedule), stepText(p.Predicted), stepText(p.Measured),
				fmt.Sprintf("%+.1f%%", 100*p.Error()), fmt.Sprintf("%.1f%%", 100*p.Held()))
		},
		tail: func(all []Prediction) string {
			mean, worst := Predictions(all).Errors()
			fullest := Predictions(all).Fullest()
			return fmt.Sprintf("%s: mean error %.1f%%, worst %+.1f%% (seed %d). No device takes more than %.1f%% of what is counted for it (seed %d).\n",
				plan.Count(len(all), "cluster"), 100*mean, 100*worst.Error(), worst.Seed, 100*fullest.Held(), fullest.Seed)
		},
	}
}

// stepText returns a step's time, a dash where nothing fits.
func stepText(step schedule.Nanos) string {
	if step == 0 {
		return "-"
	}
	return plan.Time(step)
}

// times says how many times as long another step is.
func times(step, other schedule.Nanos) string {
	if step == 0 || other == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(other)/float64(step))
}
