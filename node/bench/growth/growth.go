package growth

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"pnode/kernels/cpu"
	"pnode/node/bench"
	"pnode/node/config"
	"pnode/planner/plan"
)

// Axis names what grows.
type Axis string

// The axes.
const (
	Tokens   Axis = "tokens"
	Sequence Axis = "sequence"
	Layers   Axis = "layers"
	Nodes    Axis = "nodes"
	Replicas Axis = "replicas"
	Local    Axis = "local"
)

// Axes returns the names of all axes, in the order in which they are measured.
func Axes() []string {
	return []string{string(Tokens), string(Sequence), string(Layers), string(Nodes), string(Replicas), string(Local)}
}

// Processes reports whether the rows of an axis are runs of real processes with emulated devices.
func (a Axis) Processes() bool { return a == Nodes || a == Replicas || a == Local }

// Options say what grows, and how far.
type Options struct {
	// Only names the axes; none: all.
	Only []string
	// Sizes of each axis; none: the usual ones.
	Micros, Sequences, Blocks, Nodes, Replicas []int
	// Rounds counts the measurements of each row, of roundSteps steps each.
	Rounds  int
	Threads int // of computed rows; 0: every core
	Binary  string
	// Progress receives what is measured now; nil for nobody.
	Progress func(string)
}

func (o *Options) fill() error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for _, sizes := range []struct {
		flag string
		of   *[]int
		most int
		all  []int
	}{
		{"micros", &o.Micros, 4096, []int{1, 4, 16}},
		{"sequences", &o.Sequences, 16384, []int{128, 512, 2048}},
		{"layers", &o.Blocks, 1024, []int{2, 8, 24}},
		{"nodes", &o.Nodes, config.MaxLocal, []int{1, 4, 16}},
		{"replicas", &o.Replicas, config.MaxLocal, []int{1, 4, 16}},
	} {
		for _, n := range *sizes.of {
			if n < 1 || n > sizes.most {
				return fmt.Errorf("--%s is %d: take 1 to %d", sizes.flag, n, sizes.most)
			}
		}
		if *sizes.of = slices.Clone(*sizes.of); len(*sizes.of) == 0 {
			*sizes.of = sizes.all
		}
		slices.Sort(*sizes.of)
		*sizes.of = slices.Compact(*sizes.of)
	}
	for _, name := range o.Only {
		if !slices.Contains(Axes(), name) {
			return fmt.Errorf("--only is %q: take one of %s", name, strings.Join(Axes(), ", "))
		}
	}
	if o.Rounds = cmp.Or(o.Rounds, 3); o.Rounds < 1 || o.Rounds > 1000 {
		return fmt.Errorf("--rounds is %d: take 1 to 1000", o.Rounds)
	}
	if o.Threads < 0 || o.Threads > 1024 {
		return fmt.Errorf("--threads is %d: take 1 to 1024, or 0 for every core", o.Threads)
	}
	return nil
}

// sizes returns the sizes of an axis.
func (o Options) sizes(a Axis) []int {
	switch a {
	case Tokens:
		return o.Micros
	case Sequence:
		return o.Sequences
	case Layers:
		return o.Blocks
	case Nodes:
		return o.Nodes
	case Replicas:
		return o.Replicas
	default:
		return slices.DeleteFunc(slices.Clone(o.Replicas), func(n int) bool { return n < 2 }) // one has nobody to meet
	}
}

// Row is a step of one size.
type Row struct {
	Axis Axis `json:"axis"`
	Size int  `json:"size"`
	// StepMS is the median of the rounds, BoundMS what an ideal takes. Ratio is the median of the rounds' step over the bound: of computed rows by the
	// rate of products in the same round.
	StepMS  float64 `json:"step_ms"`
	BoundMS float64 `json:"bound_ms"`
	Ratio   float64 `json:"ratio"`

	StepTokens int     `json:"step_tokens"`
	TokensPerS float64 `json:"tokens_per_s"`
	// MemoryBytes is the most that buffers took, or that the process of one node had.
	MemoryBytes int64 `json:"memory_bytes"`
	// Control is there for rows of processes.
	Control *Control `json:"control,omitempty"`
}

// Control sums up what the nodes of a row spent besides what an emulated device would compute. Rates are those of one node, in the mean of all.
type Control struct {
	// CPUMS is processor time of a node for each step, LeaderCPUMS the leader's.
	CPUMS       float64 `json:"cpu_ms"`
	LeaderCPUMS float64 `json:"leader_cpu_ms"`
	// Sent is what streams of the control plane carried, by kind; MostBytesPerS the most of one node.
	Sent          map[string]Rate `json:"sent"`
	WritesPerS    float64         `json:"writes_per_s"`
	BytesPerS     float64         `json:"bytes_per_s"`
	MostBytesPerS float64         `json:"most_bytes_per_s"`
	// DataBytes is the payload that a node sent for each step: activations, gradients, reports, outer steps.
	DataBytes float64 `json:"data_bytes"`
	// PlanMS is how long a first plan of such nodes takes.
	PlanMS float64 `json:"plan_ms"`
	// StartS is the time until the first step has come.
	StartS float64 `json:"start_s"`
}

// Rate says how much a node sends of one kind.
type Rate struct {
	WritesPerS float64 `json:"writes_per_s"`
	BytesPerS  float64 `json:"bytes_per_s"`
}

// Report is the result of Measure.
type Report struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Rounds int    `json:"rounds"`
	Rows   []Row  `json:"rows"`
	// Partial says before which row the measurement ended, if that was before its end.
	Partial string `json:"partial,omitempty"`
}

// HasRows reports whether there is something to show, whatever ended the measurement.
func (r Report) HasRows() bool { return len(r.Rows) > 0 }

// Measure measures all sizes of all axes that are asked for, and returns what it has when ctx ends.
func Measure(ctx context.Context, o Options) (r Report, err error) {
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench growth: %w: %w", bench.ErrOptions, err)
	}
	r = Report{CPU: (*cpu.Device)(nil).Model(), Cores: runtime.NumCPU(), Rounds: o.Rounds}
	type cell struct {
		axis Axis
		size int
	}
	var cells []cell
	for _, name := range Axes() {
		if len(o.Only) == 0 || slices.Contains(o.Only, name) {
			for _, size := range o.sizes(Axis(name)) {
				cells = append(cells, cell{Axis(name), size})
			}
		}
	}
	began := time.Now()
	for i, c := range cells {
		what := fmt.Sprintf("%s %d", c.axis, c.size)
		note := func(more string) {
			o.Progress(fmt.Sprintf("%s (%d of %d, after %s)%s", what, i+1, len(cells), plan.Duration(time.Since(began).Round(time.Second)), more))
		}
		note("")
		measure := o.computed
		if c.axis.Processes() {
			measure = o.fleet
		}
		row, err := measure(ctx, c.axis, c.size, func(more string) { note(": " + more) })
		if err = cmp.Or(ctx.Err(), err); err != nil {
			r.Partial = what
			return r, fmt.Errorf("bench growth: %s: %w", what, err)
		}
		r.Rows = append(r.Rows, row)
	}
	return r, nil
}

// median returns the median of x, which it sorts; NaN without any.
func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
