package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pnode/node"
	"pnode/node/api"
	"pnode/node/ledger"
	"pnode/planner/plan"
)

const maxProblems = 20

// Injected is a fault that was carried out.
type Injected struct {
	Fault
	Step plan.Step `json:"step"` // the newest one at the time
	// Leader says that the node led the run.
	Leader bool `json:"leader"`
	// PauseS is the longest time between two new steps from the fault to the next one, in seconds.
	PauseS float64 `json:"pause_s"`
	// NextS is the time from the fault to the first step of a later plan, in seconds; 0 where none came before the next fault.
	NextS float64 `json:"next_s"`
	// Interruption says where the time went on the way to that plan, or to the first step of a substitute where there was one;
	// nil where no node has told. After a substitute Healed says it of the plan.
	Interruption *api.Interruption `json:"interruption,omitempty"`
	Healed       *api.Interruption `json:"healed,omitempty"`

	generation plan.Generation
	at         time.Time
}

// Times summarises the faults of a kind: the longest time without a step, and the time to the first step of a later plan, in
// seconds.
type Times struct {
	Kind Kind `json:"kind"`
	// Leader says that these are the faults of nodes that led the run.
	Leader bool  `json:"leader"`
	Pause  Three `json:"pause_s"`
	Next   Three `json:"next_s"`
}

// Three are quantiles of Count values.
type Three struct {
	Count  int     `json:"count"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Worst  float64 `json:"worst"`
}

// Report says what came of a run with faults.
type Report struct {
	Seed  uint64 `json:"seed"`
	Nodes int    `json:"nodes"`
	Dir   string `json:"dir"`
	// Network is where the nodes were, Line what each had there, Emulated whether their devices were emulated.
	Network  Network    `json:"network"`
	Line     Line       `json:"line"`
	Emulated bool       `json:"emulated"`
	Faults   []Injected `json:"faults"`
	Times    []Times    `json:"times"`
	Parts    []Parts    `json:"parts"`
	// Seconds from the end of the quiet start to the end of the faults, and Steps committed within.
	Seconds float64   `json:"seconds"`
	Steps   plan.Step `json:"steps"`
	// QuietStepS is the mean time of a step in the quiet start, with all nodes, in seconds.
	QuietStepS float64 `json:"quiet_step_s"`
	// Kept is Steps over what the nodes alive at each moment could give: the seconds, each times the share of nodes alive
	// (at most 1), over QuietStepS.
	Kept float64 `json:"kept"`
	// Redone are steps that were committed, and then computed again by a later plan.
	Redone int `json:"redone"`
	// Early are nodes that left without having handed over.
	Early int `json:"early"`
	// Refused are the sentences of nodes that did not go on with a damaged store.
	Refused []string `json:"refused"`
	// NoRoom are the sentences of nodes that ended as their disk was full when a plan needed a state to be kept.
	NoRoom []string      `json:"no_room"`
	Audit  ledger.Report `json:"audit"`
	// Compared counts steps whose loss was compared with the run without faults, Differ those that differ, and Weights
	// the nodes whose checkpoint of the last step was.
	Compared int `json:"compared"`
	Differ   int `json:"differ"`
	Weights  int `json:"weights"`
	// Recomputed says what came of that for replicas with local steps: nothing is compared with a run without faults, whose rounds are others.
	Recomputed *node.Recomputed `json:"recomputed,omitempty"`
	Problems   []string         `json:"problems"`
	begun      time.Time
	at         plan.Step // then
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

// nodesUp says how many nodes are up, of those that the run began with or beside them.
func nodesUp(up float64, began int) string {
	if more := up - float64(began); more > 0 {
		return fmt.Sprintf("%d nodes and %g that joined", began, more)
	}
	return fmt.Sprintf("%g of %d nodes", up, began)
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
			x := &r.Faults[i]
			if !g.to.After(x.at) || g.to.After(until) {
				continue
			}
			x.PauseS = max(x.PauseS, g.to.Sub(g.from).Seconds())
			if x.NextS == 0 && g.generation > x.generation {
				x.NextS = g.to.Sub(x.at).Seconds()
			}
		}
	}
	r.Times = timesOf(r.Faults)
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
			whole += to.Sub(from).Seconds() * min(s.alive/float64(r.Nodes), 1)
		}
	}
	if whole > 0 {
		r.Kept = float64(r.Steps) * r.QuietStepS / whole
	}
}

// timesOf summarises faults, by kind and by whether the node led.
func timesOf(faults []Injected) (all []Times) {
	for _, kind := range Kinds {
		for _, leader := range []bool{false, true} {
			var pauses, next []float64
			for _, x := range faults {
				if x.Kind != kind || x.Leader != leader {
					continue
				}
				pauses = append(pauses, x.PauseS)
				if x.NextS > 0 {
					next = append(next, x.NextS)
				}
			}
			if len(pauses) > 0 {
				all = append(all, Times{kind, leader, threeOf(pauses), threeOf(next)})
			}
		}
	}
	return all
}

// nameOf returns the kind, and whether the node led.
func nameOf(k Kind, leader bool) string {
	if leader {
		return string(k) + ", leader"
	}
	return string(k)
}

func threeOf(values []float64) Three {
	n := len(values)
	if n == 0 {
		return Three{}
	}
	slices.Sort(values)
	return Three{n, values[n/2], values[min(n*95/100, n-1)], values[n-1]}
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d nodes, %s: %s in %.0f s, %d steps\n", r.Seed, r.Nodes, r.Network, plan.Count(len(r.Faults), "fault"), r.Seconds, r.Steps)
	fmt.Fprintf(&b, "%-15s %6s   longest time without a step: median, 95%%, worst; to the first step of a later plan\n", "fault", "count")
	for _, x := range r.Times {
		fmt.Fprintf(&b, "%-15s %6d   %6.2f s %6.2f s %6.2f s; %6.2f s %6.2f s %6.2f s\n", nameOf(x.Kind, x.Leader), x.Pause.Count,
			x.Pause.Median, x.Pause.P95, x.Pause.Worst, x.Next.Median, x.Next.P95, x.Next.Worst)
	}
	if len(r.Parts) > 0 {
		fmt.Fprintf(&b, "%-34s %6s   median s: in all; noticed, agreed, saved, planned, loaded, replayed, first step\n", "went on by, or with a plan from", "count")
	}
	for _, p := range r.Parts {
		fmt.Fprintf(&b, "%-34s %6d   %6.2f; %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f\n",
			p.name(), p.Count, p.Total, p.Detect, p.Agree, p.Save, p.Plan, p.Load, p.Replay, p.Step)
	}
	fmt.Fprintf(&b, "throughput kept: %.1f%% of what the nodes alive at each moment could give (%.3f s a step in the quiet start)\n", 100*r.Kept, r.QuietStepS)
	fmt.Fprintf(&b, "steps redone: %d; nodes that left without handing over: %d\n", r.Redone, r.Early)
	for _, why := range r.Refused {
		fmt.Fprintf(&b, "joined anew after damage: %s\n", why)
	}
	for _, why := range r.NoRoom {
		fmt.Fprintf(&b, "ended for want of room, and came back: %s\n", why)
	}
	if err := r.Audit.Print(&b); err != nil {
		return err
	}
	if again := r.Recomputed; again != nil {
		fmt.Fprintf(&b, "trained again by its log to step %d, with the messages of its replicas: %s differ; %s of the model compared %s\n",
			again.Step, plan.Count(len(again.Problems), "thing"), plan.Count(again.Layers, "layer"), plan.Count(again.Compared, "time"))
	} else {
		fmt.Fprintf(&b, "losses compared with a run without faults: %d steps, %d differ; weights: %s\n", r.Compared, r.Differ, plan.Count(r.Weights, "node"))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "wrong: %s\n", p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
