package losses

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"pnode/planner/plan"
)

// Report holds the runs of a folder, as far as they are.
type Report struct {
	// Arms has the names of the arms: the first is what the others are compared with.
	Arms  []string `json:"arms"`
	Steps int      `json:"steps"`
	Runs  []Run    `json:"runs"`
}

// Effect says what an arm does against the first one with the same seeds, over the seeds whose runs have both ended. Losses are in nats a token, and were evaluated
// in float32 throughout.
type Effect struct {
	Seeds int
	// Last compares the losses after the last step, Best the least ones.
	Last, Best Difference
	// Reaches is how many of the steps that the first arm needs for its least loss the arm needs for the same one, in the mean over the seeds; 0 where some seed
	// does not come to it.
	Reaches float64
}

// Difference is a mean over seeds with its least and most.
type Difference struct {
	Mean, Least, Most float64
	// Relative is the mean as a part of the first arm's loss.
	Relative float64
}

func (d *Difference) add(n int, x, of float64) {
	if n == 0 {
		d.Least, d.Most = x, x
	}
	d.Least, d.Most = min(d.Least, x), max(d.Most, x)
	d.Mean = (d.Mean*float64(n) + x) / float64(n+1)
	d.Relative = (d.Relative*float64(n) + x/of) / float64(n+1)
}

// Effect returns that of an arm.
func (r Report) Effect(arm string) (e Effect) {
	reaches, all := 0.0, true
	for _, run := range r.Runs {
		if run.Arm != arm {
			continue
		}
		first := r.find(r.Arms[0], run.Seed)
		last, ended := run.Last(r.Steps)
		plain, compared := first.Last(r.Steps)
		if !ended || !compared {
			continue
		}
		e.Last.add(e.Seeds, last.Exact-plain.Exact, plain.Exact)
		e.Best.add(e.Seeds, run.Best().Exact-first.Best().Exact, first.Best().Exact)
		part, reached := run.reaches(first.Best())
		reaches, all = reaches+part, all && reached
		e.Seeds++
	}
	if all && e.Seeds > 0 {
		e.Reaches = reaches / float64(e.Seeds)
	}
	return e
}

// reaches returns the step at which a run comes to another one's loss, as a part of the step at which that one had it. Between points losses are taken to fall evenly.
func (r Run) reaches(p Point) (part float64, ok bool) {
	i := slices.IndexFunc(r.Points, func(q Point) bool { return q.Exact <= p.Exact })
	if i < 0 {
		return 0, false
	}
	at := float64(r.Points[i].Step)
	if i > 0 {
		before := r.Points[i-1]
		at -= float64(r.Points[i].Step-before.Step) * (p.Exact - r.Points[i].Exact) / (before.Exact - r.Points[i].Exact)
	}
	return at / float64(p.Step), true
}

// find returns a run, one without points where there is none.
func (r Report) find(arm string, seed uint64) Run {
	i := slices.IndexFunc(r.Runs, func(run Run) bool { return run.Arm == arm && run.Seed == seed })
	if i < 0 {
		return Run{}
	}
	return r.Runs[i]
}

// seeds returns the seeds of the runs, each once.
func (r Report) seeds() (seeds []uint64) {
	for _, run := range r.Runs {
		if !slices.Contains(seeds, run.Seed) {
			seeds = append(seeds, run.Seed)
		}
	}
	return seeds
}

// HasRows reports whether there is something to show, whatever ended the training.
func (r Report) HasRows() bool { return len(r.Runs) > 0 }

// Table returns the losses after the last step, and what arms change, for people.
func (r Report) Table() string {
	var w strings.Builder
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\t")
	for _, seed := range r.seeds() {
		fmt.Fprintf(t, "seed %d\t", seed)
	}
	fmt.Fprintf(t, "beside %s\tleast\tmost\tpart\tbest\tsteps\t\n", r.Arms[0])
	for _, arm := range r.Arms {
		fmt.Fprintf(t, "%s\t", arm)
		for _, seed := range r.seeds() {
			fmt.Fprintf(t, "%s\t", r.cell(arm, seed))
		}
		e := r.Effect(arm)
		if e.Seeds == 0 || arm == r.Arms[0] {
			fmt.Fprintln(t, "-\t-\t-\t-\t-\t-\t")
			continue
		}
		steps := "never"
		if e.Reaches > 0 {
			steps = fmt.Sprintf("%.2f", e.Reaches)
		}
		fmt.Fprintf(t, "%+.5f\t%+.5f\t%+.5f\t%+.2f%%\t%+.2f%%\t%s\t\n", e.Last.Mean, e.Last.Least, e.Last.Most, 100*e.Last.Relative, 100*e.Best.Relative, steps)
	}
	t.Flush()
	return w.String()
}

// Text returns the report for people.
func (r Report) Text() string {
	return fmt.Sprintf("Held-out losses after %s in nats a token, evaluated in float32 throughout. Runs of one seed begin with the same parameters and read the same samples.\n\n%s\n"+
		"part: of the first row's loss, in the mean. best: the same for the least losses of runs. steps: how many of those that the first row needs for its least loss.\n",
		plan.Count(r.Steps, "step"), r.Table())
}

// cell returns a run's last loss, or how far it is.
func (r Report) cell(arm string, seed uint64) string {
	run := r.find(arm, seed)
	if last, ended := run.Last(r.Steps); ended {
		return fmt.Sprintf("%.5f", last.Exact)
	}
	if len(run.Points) == 0 {
		return "-"
	}
	return fmt.Sprintf("(step %d)", run.Points[len(run.Points)-1].Step)
}
