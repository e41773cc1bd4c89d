package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/comparison"
	"pnode/planner/plan"
)

// Rows of a planner report.
const (
	rowChains = "chains"
	rowSmall  = "small"
	rowMedium = "medium"
	rowMixed  = "mixed"
	rowKinds  = "kinds"
	rowTime   = "time"
	// rowPredictions runs in real time: it is compared where it is asked for.
	rowPredictions = "predictions"
)

// PlannerRows returns the names of what Planner compares.
func PlannerRows() []string {
	return []string{rowChains, rowSmall, rowMedium, rowMixed, rowKinds, rowTime, rowPredictions}
}

// PlannerOptions say what plans are compared with; the zero value takes few and small clusters.
type PlannerOptions struct {
	// Only names the rows that are wanted; none: all but predictions, which take as long as what they predict.
	Only []string
	// Seed is the first cluster's of each row; the others count up from it.
	Seed uint64
	// Chains of nested clusters have up to Nodes nodes. Those of up to Every nodes are all planned, of larger ones each that has a quarter more
	// nodes than the one before.
	Chains, Nodes, Every int
	// Small counts clusters of two to five devices, Medium those of six to eight.
	Small, Medium int
	// Mixed has the sizes of mixed clusters.
	Mixed []int
	// Cells counts pipelines whose plans are compared with those of each kind of schedule, evenly of comparison.KindCells.
	Cells int
	// Times has the sizes of clusters whose planning is timed, with a model of Layers layers.
	Times  []int
	Layers int
	// Predictions counts clusters whose plans workers run.
	Predictions int
	// Progress receives what is compared now; nil for nobody.
	Progress func(string)
}

func (o *PlannerOptions) fill() error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	quick := slices.DeleteFunc(PlannerRows(), func(row string) bool { return row == rowPredictions })
	o.Only, o.Mixed, o.Times = orElse(o.Only, quick...), orElse(o.Mixed, 8, 16), orElse(o.Times, 8, 16, 32, 64)
	o.Chains, o.Nodes, o.Small, o.Medium, o.Layers = cmp.Or(o.Chains, 3), cmp.Or(o.Nodes, 12), cmp.Or(o.Small, 100), cmp.Or(o.Medium, 10), cmp.Or(o.Layers, 96)
	o.Every, o.Cells, o.Predictions = cmp.Or(o.Every, comparison.EveryUpTo), cmp.Or(o.Cells, comparison.KindCells), cmp.Or(o.Predictions, 4)
	return cmp.Or(checkNames("only", PlannerRows(), o.Only...),
		checkRange("chains", 1, 10_000, o.Chains), checkRange("nodes", 1, 1000, o.Nodes), checkRange("every", 1, 1000, o.Every),
		checkRange("small", 1, 1_000_000, o.Small), checkRange("medium", 1, 1_000_000, o.Medium), checkRange("layers", 1, 1000, o.Layers), checkRange("cells", 1, comparison.KindCells, o.Cells),
		checkRange("predictions", 1, 10_000, o.Predictions), checkRange("mixed", 4, 1000, o.Mixed...), checkRange("times", 2, 1000, o.Times...))
}

// PlannerReport is the result of Planner. A cluster's seed makes it again.
type PlannerReport struct {
	Chains []comparison.Chain `json:"chains,omitempty"`
	Small  []comparison.Gap   `json:"small,omitempty"`
	Medium []comparison.Gap   `json:"medium,omitempty"`
	Mixed  []comparison.Mixed `json:"mixed,omitempty"`
	Kinds  []comparison.Kinds `json:"kinds,omitempty"`
	Times  []PlanTime         `json:"times,omitempty"`
	Layers int                `json:"layers"`

	Predictions Predictions `json:"predictions,omitempty"`
}

// PlanTime is how long planning took.
type PlanTime struct {
	Nodes int `json:"nodes"`
	// Seconds is the first plan's, AgainSeconds that of the plan after a node of it is lost, RepairSeconds that of a repair, 0 where nothing
	// can be repaired.
	Seconds       float64 `json:"seconds"`
	AgainSeconds  float64 `json:"again_seconds"`
	RepairSeconds float64 `json:"repair_seconds"`
	Plan          string  `json:"plan"`
}

// HasRows reports whether there is something to show, whatever ended the comparison.
func (r PlannerReport) HasRows() bool {
	return len(r.Chains)+len(r.Small)+len(r.Medium)+len(r.Mixed)+len(r.Kinds)+len(r.Times)+len(r.Predictions) > 0
}

// work bounds the proof of an optimum, as planner.Optimum counts it.
const work = 1 << 24

// Planner compares plans with those of fewer nodes, with the optimum of small clusters, with splits that people make by hand and with
// those of one kind of schedule, all by predicted steps. It measures how long planning takes, and steps of plans. It returns what it has when ctx ends.
func Planner(ctx context.Context, o PlannerOptions) (r PlannerReport, err error) {
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench planner: %w: %w", ErrOptions, err)
	}
	r.Layers = o.Layers
	for _, row := range PlannerRows() {
		if !slices.Contains(o.Only, row) || err != nil {
			continue
		}
		switch row {
		case rowChains:
			r.Chains, err = clusters(o, row, o.Chains, func(seed uint64) (comparison.Chain, error) {
				return comparison.PlanChain(ctx, seed, o.Nodes, o.Every)
			})
		case rowSmall:
			r.Small, err = clusters(o, row, o.Small, func(seed uint64) (comparison.Gap, error) {
				return comparison.FindGap(ctx, seed, 2, 5, work)
			})
		case rowMedium:
			r.Medium, err = clusters(o, row, o.Medium, func(seed uint64) (comparison.Gap, error) {
				return comparison.FindGap(ctx, seed, 6, 8, work)
			})
		case rowMixed:
			lines := comparison.MixedLines()
			r.Mixed, err = clusters(o, row, len(o.Mixed)*lines, func(seed uint64) (comparison.Mixed, error) {
				i := int(seed - o.Seed)
				return comparison.CompareMixed(ctx, o.Seed, o.Mixed[i/lines], i%lines)
			})
		case rowKinds:
			r.Kinds, err = clusters(o, row, o.Cells, func(seed uint64) (comparison.Kinds, error) {
				return comparison.CompareKinds(ctx, int(seed-o.Seed)*comparison.KindCells/o.Cells)
			})
		case rowTime:
			r.Times, err = clusters(o, row, len(o.Times), func(seed uint64) (PlanTime, error) {
				return timePlans(ctx, o.Seed, o.Times[seed-o.Seed], o.Layers)
			})
		case rowPredictions:
			r.Predictions, err = clusters(o, row, o.Predictions, func(seed uint64) (Prediction, error) { return Predict(ctx, seed) })
		}
	}
	if err != nil {
		err = fmt.Errorf("bench planner: %w", err)
	}
	return r, err
}

// clusters compares so many clusters of a row, one seed after the other. On an error it returns those so far.
func clusters[T any](o PlannerOptions, row string, n int, compare func(seed uint64) (T, error)) (all []T, err error) {
	eta := &eta{begin: time.Now(), cells: n}
	for i := range n {
		o.Progress(row + eta.String())
		one, err := compare(o.Seed + uint64(i))
		if err != nil {
			return all, fmt.Errorf("%s: cluster %d: %w", row, i+1, err)
		}
		all = append(all, one)
		eta.done++
	}
	return all, nil
}

// timePlans measures how long a plan takes, and the next one after the first node of it is lost.
func timePlans(ctx context.Context, seed uint64, nodes, layers int) (PlanTime, error) {
	out, in := PlanTime{Nodes: nodes}, comparison.Large(seed, nodes, layers)
	begin := time.Now()
	p, reasons, err := planner.Make(ctx, in)
	if err != nil {
		return out, err
	}
	out.Seconds, out.Plan = time.Since(begin).Seconds(), reasons.Lines()[0]
	lost := p.Peers()[0]
	in.Generation, in.Previous = 2, &p
	in.Members = slices.DeleteFunc(slices.Clone(in.Members), func(m planner.Member) bool { return m.Peer == lost })
	begin = time.Now()
	if _, _, err = planner.Make(ctx, in); err != nil {
		return out, err
	}
	out.AgainSeconds = time.Since(begin).Seconds()
	begin = time.Now()
	if _, _, err = planner.Repair(in); err == nil {
		out.RepairSeconds = time.Since(begin).Seconds()
	}
	return out, nil
}

// percent returns how much longer a step is than another, in percent.
func percent(least, step schedule.Nanos) float64 { return float64(comparison.Over(least, step)) / 1e4 }

// Text returns the report for people.
func (r PlannerReport) Text() string {
	var w strings.Builder
	r.chainText(&w)
	gapText(&w, "2 to 5 devices", rowSmall, r.Small)
	gapText(&w, "6 to 8 devices", rowMedium, r.Medium)
	r.mixedText(&w)
	r.kindsText(&w)
	r.timeText(&w)
	r.Predictions.text(&w)
	return w.String()
}

func (r PlannerReport) chainText(w *strings.Builder) {
	if len(r.Chains) == 0 {
		return
	}
	over, sizes := 0, 0
	for _, c := range r.Chains {
		if sizes += len(c.Anew); c.Anew.OverAlone().Nodes > 0 || c.Joined.OverAlone().Nodes > 0 {
			over++
		}
	}
	fmt.Fprintf(w, "Nested clusters, %s of up to %s, %s in all: in %s a step is longer than on the best single device.\n",
		plan.Count(len(r.Chains), "chain"), plan.Count(r.Chains[0].Anew[len(r.Chains[0].Anew)-1].Nodes, "node"), plan.Count(sizes, "size"), plan.Count(over, "chain"))
	r.growthText(w, "As the nodes join a run, each with the plan before in force", func(c comparison.Chain) comparison.Sizes { return c.Joined })
	r.growthText(w, "Each planned anew", func(c comparison.Chain) comparison.Sizes { return c.Anew })
	if len(r.Chains) == 1 {
		t := table(w, "nodes\tstep\tas they join\tbest single device\tplan\t")
		for i, s := range r.Chains[0].Anew {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t\n", s.Nodes, stepText(s.Step), stepText(r.Chains[0].Joined[i].Step), stepText(s.Alone), s.Plan)
		}
		_ = t.Flush() // a Builder takes all
	}
	w.WriteString("\n")
}

const (
	// mostGrowth is by how many parts per million a step may be longer than with fewer nodes.
	mostGrowth = 1000
	// grownShown is how many chains whose steps grow are named.
	grownShown = 10
)

// growthText says in how many chains a step is longer than with fewer nodes, and where it is by most.
func (r PlannerReport) growthText(w *strings.Builder, how string, sizes func(comparison.Chain) comparison.Sizes) {
	type grown struct {
		seed uint64
		comparison.Growth
	}
	var worst []grown // of each chain
	count := 0
	for _, c := range r.Chains {
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

// gapText compares the plans of small clusters with the optimum.
func gapText(w *strings.Builder, what, row string, gaps []comparison.Gap) {
	if len(gaps) == 0 {
		return
	}
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
	fmt.Fprintf(w, "%s, seeds %d to %d, %d of which the model fits on: the plan is the optimum of all orders, cuts and replicas in %d, within 1%% in %d, within 3%% in %d; %d not proven.\n",
		what, gaps[0].Seed, gaps[len(gaps)-1].Seed, fits, exact, one, three, open)
	if worst.Best != "" {
		fmt.Fprintf(w, "Worst: seed %d, %d layers, %s: %s, possible is %s (+%.1f%%): pnode bench planner --only %s --%s 1 --seed %d\n  plan  %s\n  best  %s\n",
			worst.Seed, worst.Layers, plan.Count(worst.Micros, "micro-batch"), plan.Time(worst.Step), plan.Time(worst.Least), percent(worst.Least, worst.Step), row, row, worst.Seed, worst.Plan, worst.Best)
	}
	w.WriteString("\n")
}

func (r PlannerReport) mixedText(w *strings.Builder) {
	if len(r.Mixed) == 0 {
		return
	}
	fmt.Fprintf(w, "GPT-3 with 1.3 B parameters on V100, 3090, T4 and 1080 Ti, 128 micro-batches, seed %d. Times as long as the plan's step:\n", r.Mixed[0].Seed)
	t := table(w, "nodes\tlines\tstep\tequal split\tby speed\tfastest alike\tplan\t")
	for _, m := range r.Mixed {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", m.Nodes, m.Lines, stepText(m.Step), times(m.Step, m.Equal), times(m.Step, m.Proportional), times(m.Step, m.Alike), m.Plan)
	}
	_ = t.Flush()
	w.WriteString("\n")
}

func (r PlannerReport) kindsText(w *strings.Builder) {
	if len(r.Kinds) == 0 {
		return
	}
	slower := 0
	for _, k := range r.Kinds {
		if k.Step > k.Least().Step {
			slower++
		}
	}
	gain, few := comparison.MeanGain(r.Kinds)
	fmt.Fprintf(w, "Pipelines whose schedule is the planner's to choose, %s: in %d another kind alone is shorter. With as many micro-batches as stages 1f1b takes %d.%03d times as long in the mean of %d.\n",
		plan.Count(len(r.Kinds), "cell"), slower, gain/1000, gain%1000, few)
	t := table(w, "stages\tmicro-batches\tlatency\tspeeds\tstep\tschedule\t1f1b\tleast of one kind\t\t")
	for _, k := range r.Kinds {
		speeds, plain := "like", schedule.Nanos(0)
		if k.Mixed {
			speeds = "mixed"
		}
		for _, a := range k.Alone {
			if a.Kind == plan.ScheduleName {
				plain = a.Step
			}
		}
		fmt.Fprintf(t, "%d\t%d\t%d ms\t%s\t%s\t%s\t%s\t%s\t%s\t\n", k.Stages, k.Micros, k.LatencyMS, speeds, stepText(k.Step), k.Schedule,
			times(k.Step, plain), times(k.Step, k.Least().Step), k.Least().Kind)
	}
	_ = t.Flush()
	w.WriteString("\n")
}

func (r PlannerReport) timeText(w *strings.Builder) {
	if len(r.Times) == 0 {
		return
	}
	fmt.Fprintf(w, "Time of planning, %d layers, on this machine as it is now:\n", r.Layers)
	t := table(w, "nodes\tplan\tafter a loss\trepaired\t\t")
	for _, p := range r.Times {
		repaired := "-"
		if p.RepairSeconds > 0 {
			repaired = fmt.Sprintf("%.3f s", p.RepairSeconds)
		}
		fmt.Fprintf(t, "%d\t%.2f s\t%.2f s\t%s\t%s\t\n", p.Nodes, p.Seconds, p.AgainSeconds, repaired, p.Plan)
	}
	_ = t.Flush()
}

// table begins a table with a header.
func table(w *strings.Builder, header string) *tabwriter.Writer {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, header)
	return t
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
