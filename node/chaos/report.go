package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pnode/node/ledger"
	"pnode/planner/plan"
)

const maxProblems = 20

// Injected is a fault that was carried out.
type Injected struct {
	Fault
	Step plan.Step `json:"step"` // the newest one at the time
	// PauseS is the longest time between two new steps from the fault to the next one, in seconds.
	PauseS float64 `json:"pause_s"`
	at     time.Time
}

// Report says what came of a run with faults.
type Report struct {
	Seed   uint64     `json:"seed"`
	Nodes  int        `json:"nodes"`
	Dir    string     `json:"dir"`
	Faults []Injected `json:"faults"`
	// Seconds from the end of the quiet start to the end of the faults, and Steps committed within.
	Seconds float64   `json:"seconds"`
	Steps   plan.Step `json:"steps"`
	// QuietStepS is the mean time of a step in the quiet start, with all nodes, in seconds.
	QuietStepS float64 `json:"quiet_step_s"`
	// Kept is Steps over what the nodes alive at each moment could give: the seconds, each times the share of nodes alive
	// (at most 1), over QuietStepS.
	Kept float64 `json:"kept"`
	// Refused are the sentences of nodes that did not go on with a damaged store.
	Refused []string      `json:"refused"`
	Audit   ledger.Report `json:"audit"`
	// Compared counts steps whose loss was compared with the run without faults, Differ those that differ, and Weights
	// the nodes whose checkpoint of the last step was.
	Compared int      `json:"compared"`
	Differ   int      `json:"differ"`
	Weights  int      `json:"weights"`
	Problems []string `json:"problems"`
	begun    time.Time
	at       plan.Step // then
}

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Err returns what is wrong, nil where nothing is.
func (r Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; the schedule again: --seed %d, the logs: %s", ErrFailed, r.Problems[0], r.Seed, r.Dir)
}

// begin notes the end of the quiet start.
func (r *Report) begin(first, newest progress) {
	r.begun, r.at = newest.at, newest.Step
	r.QuietStepS = newest.at.Sub(first.at).Seconds() / float64(newest.Step-first.Step)
}

// measure reads pauses and throughput off what the fleet saw.
func (r *Report) measure(f *fleet) {
	if r.begun.IsZero() {
		return
	}
	end := f.newest.at
	for i := range r.Faults {
		until := end
		if i+1 < len(r.Faults) {
			until = r.Faults[i+1].at
		}
		for _, g := range f.gaps {
			if g.to.After(r.Faults[i].at) && !g.to.After(until) {
				r.Faults[i].PauseS = max(r.Faults[i].PauseS, g.to.Sub(g.from).Seconds())
			}
		}
	}
	r.Steps, r.Seconds = f.newest.Step-r.at, end.Sub(r.begun).Seconds()
	whole := 0.0 // seconds of all nodes
	for i, s := range f.alive {
		from, to := s.from, end
		if i+1 < len(f.alive) {
			to = f.alive[i+1].from
		}
		if from.Before(r.begun) {
			from = r.begun
		}
		if to.After(from) {
			whole += to.Sub(from).Seconds() * float64(min(s.alive, r.Nodes)) / float64(r.Nodes)
		}
	}
	if whole > 0 {
		r.Kept = float64(r.Steps) * r.QuietStepS / whole
	}
}

// quantile returns the q-th of sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d nodes: %s in %.0f s, %d steps\n", r.Seed, r.Nodes, plan.Count(len(r.Faults), "fault"), r.Seconds, r.Steps)
	fmt.Fprintf(&b, "%-8s %6s   longest time without a step: median, 95%%, worst\n", "fault", "count")
	for _, kind := range Kinds {
		var pauses []float64
		for _, x := range r.Faults {
			if x.Kind == kind {
				pauses = append(pauses, x.PauseS)
			}
		}
		if slices.Sort(pauses); len(pauses) > 0 {
			fmt.Fprintf(&b, "%-8s %6d   %6.2f s %6.2f s %6.2f s\n", kind, len(pauses), quantile(pauses, .5), quantile(pauses, .95), pauses[len(pauses)-1])
		}
	}
	fmt.Fprintf(&b, "throughput kept: %.1f%% of what the nodes alive at each moment could give (%.3f s a step in the quiet start)\n", 100*r.Kept, r.QuietStepS)
	for _, why := range r.Refused {
		fmt.Fprintf(&b, "joined anew after damage: %s\n", why)
	}
	if err := r.Audit.Print(&b); err != nil {
		return err
	}
	fmt.Fprintf(&b, "losses compared with a run without faults: %d steps, %d differ; weights: %s\n", r.Compared, r.Differ, plan.Count(r.Weights, "node"))
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "wrong: %s\n", p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
