package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	// Progress receives what is compared now, Show each part of the report's text as soon as it is known; nil for nobody.
	Progress, Show func(string)
}

func (o *PlannerOptions) fill() error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	show := o.Show
	o.Show = func(text string) {
		if show != nil && text != "" {
			show(text)
		}
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

	// Partial says where the comparison ended, if that was before its end.
	Partial string `json:"partial,omitempty"`
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
// those of one kind of schedule, all by predicted steps. It measures how long planning takes, and steps of plans. It returns what it has when ctx
// ends, and says that there is more.
func Planner(ctx context.Context, o PlannerOptions) (r PlannerReport, err error) {
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench planner: %w: %w", ErrOptions, err)
	}
	r.Layers = o.Layers
	rows := slices.DeleteFunc(PlannerRows(), func(row string) bool { return !slices.Contains(o.Only, row) })
	for i, row := range rows {
		switch row {
		case rowChains:
			r.Chains, err = o.chains(ctx)
		case rowSmall:
			r.Small, err = clusters(o, row, gapParts("2 to 5 devices", row), o.Small, func(seed uint64, _ func(string)) (comparison.Gap, error) {
				return comparison.FindGap(ctx, seed, 2, 5, work)
			})
		case rowMedium:
			r.Medium, err = clusters(o, row, gapParts("6 to 8 devices", row), o.Medium, func(seed uint64, _ func(string)) (comparison.Gap, error) {
				return comparison.FindGap(ctx, seed, 6, 8, work)
			})
		case rowMixed:
			lines := comparison.MixedLines()
			r.Mixed, err = clusters(o, row, mixedParts(), len(o.Mixed)*lines, func(seed uint64, _ func(string)) (comparison.Mixed, error) {
				i := int(seed - o.Seed)
				return comparison.CompareMixed(ctx, o.Seed, o.Mixed[i/lines], i%lines)
			})
		case rowKinds:
			r.Kinds, err = clusters(o, row, kindParts(), o.Cells, func(seed uint64, _ func(string)) (comparison.Kinds, error) {
				return comparison.CompareKinds(ctx, int(seed-o.Seed)*comparison.KindCells/o.Cells)
			})
		case rowTime:
			r.Times, err = clusters(o, row, timeParts(o.Layers), len(o.Times), func(seed uint64, _ func(string)) (PlanTime, error) {
				return timePlans(ctx, o.Seed, o.Times[seed-o.Seed], o.Layers)
			})
		case rowPredictions:
			r.Predictions, err = clusters(o, row, predictionParts(), o.Predictions, func(seed uint64, _ func(string)) (Prediction, error) { return Predict(ctx, seed) })
		}
		if err != nil {
			if at := new(ended); errors.As(err, &at) {
				r.Partial = fmt.Sprintf("%s after %d of %d", row, at.done, at.of)
			}
			if left := rows[i+1:]; len(left) > 0 {
				r.Partial += "; " + strings.Join(left, ", ") + " not at all"
			}
			o.Show(r.partialText())
			return r, fmt.Errorf("bench planner: %w", err)
		}
	}
	return r, nil
}

// chains plans nested clusters. The last chain may lack sizes where ctx ends.
func (o PlannerOptions) chains(ctx context.Context) ([]comparison.Chain, error) {
	of := chainParts(o.Chains == 1)
	if o.Chains == 1 { // its sizes are shown one by one
		of.head, of.line = "", nil
	}
	return clusters(o, rowChains, of, o.Chains, func(seed uint64, note func(string)) (comparison.Chain, error) {
		return comparison.PlanChain(ctx, seed, o.Nodes, o.Every, func(c comparison.Chain) {
			last := len(c.Anew) - 1
			if note(fmt.Sprintf("%d of %s", c.Anew[last].Nodes, plan.Count(o.Nodes, "node"))); o.Chains == 1 {
				o.Show(sizeText(c, last))
			}
		})
	})
}

// ended is why a row has so many clusters of those that were wanted.
type ended struct {
	row      string
	done, of int
	cause    error
}

func (e *ended) Error() string { return fmt.Sprintf("%s: cluster %d: %v", e.row, e.done+1, e.cause) }

func (e *ended) Unwrap() error { return e.cause }

// clusters compares so many clusters of a row, one seed after the other, and shows what is known of them. On an error it returns those so far, and the last one
// where enough of it is known.
func clusters[T any](o PlannerOptions, row string, of parts[T], n int, compare func(seed uint64, note func(string)) (T, error)) (all []T, err error) {
	eta := &eta{begin: time.Now(), cells: n}
	for i := range n {
		o.Progress(row + eta.String())
		one, failed := compare(o.Seed+uint64(i), func(what string) { o.Progress(row + eta.within(what)) })
		if failed == nil || of.begun != nil && of.begun(one) {
			all = append(all, one)
			o.Show(of.lineText(i, one))
		}
		if failed != nil {
			err = &ended{row, i, n, failed}
			break
		}
		eta.done++
	}
	o.Show(of.tailText(all))
	return all, err
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
