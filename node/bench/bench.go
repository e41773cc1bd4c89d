package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/planner/plan"
)

// ErrOptions is wrapped by errors about options; their texts name the flag.
var ErrOptions = errors.New("bad options")

// Sides holds the options of every comparison with another program.
type Sides struct {
	Rounds   int          // measurements of each side
	Python   string       // with what the other program needs
	Progress func(string) // receives what is measured now; nil for nobody
}

func (o *Sides) fill() error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return checkRange("rounds", 1, 10_000, o.Rounds)
}

// checkNames refuses names that are not among the known ones.
func checkNames(flag string, known []string, given ...string) error {
	for _, name := range given {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--%s is %q: take one of %s", flag, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// checkRange refuses values outside of low to high.
func checkRange[T int | time.Duration](flag string, low, high T, given ...T) error {
	for _, x := range given {
		if x < low || x > high {
			return fmt.Errorf("--%s is %v: take %v to %v", flag, x, low, high)
		}
	}
	return nil
}

// orElse returns what was given, or the usual values where nothing was.
func orElse[T any](given []T, usual ...T) []T {
	if len(given) == 0 {
		return usual
	}
	return given
}

// Beside names the sides of a measurement on the processor.
type Beside struct {
	CPU string `json:"cpu"`
	// Kernel is the instruction set of this program's kernels.
	Kernel string `json:"kernel"`
	// Dropped says which instruction sets of the processor computed wrong.
	Dropped []string  `json:"dropped,omitempty"`
	Peers   []Program `json:"peers,omitempty"`
	Rounds  int       `json:"rounds"`
}

// Program is another program or library beside which something is measured.
type Program struct {
	Name string `json:"name"` // with its version
	// Kernel is its name of the instruction set that it computed with, if it says.
	Kernel string `json:"kernel,omitempty"`
	// With are libraries that it computes by, with their versions.
	With []string `json:"with,omitempty"`
	// From is the file that was taken, Others are those that were not, and why.
	From   string   `json:"from,omitempty"`
	Others []string `json:"others,omitempty"`
	// Missing says why it could not be measured, and how to get it.
	Missing string `json:"missing,omitempty"`
}

// meet adds what a peer says of itself, once.
func (b *Beside) meet(p *peer) {
	if !slices.ContainsFunc(b.Peers, func(known Program) bool { return known.Name == p.hello.Name }) {
		b.Peers = append(b.Peers, p.program())
	}
}

func (p *peer) program() Program {
	return Program{Name: p.hello.Name, Kernel: p.hello.Kernel, With: p.hello.With}
}

// text begins a report.
func (b Beside) text() string {
	lines := append([]string{b.CPU + ", kernels " + b.Kernel}, b.Dropped...)
	for _, p := range b.Peers {
		if p.Missing != "" {
			lines = append(lines, fmt.Sprintf("no %s: %s", p.Name, p.Missing))
			continue
		}
		text := "peer " + p.Name
		if p.Kernel != "" {
			text += ", kernels " + p.Kernel
		}
		if len(p.With) > 0 {
			text += ", with " + strings.Join(p.With, ", ")
		}
		if p.From != "" {
			text += ", from " + p.From
		}
		lines = append(lines, text)
		for _, other := range p.Others {
			lines = append(lines, "not taken: "+other)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// side measures one round of one program.
type side func() (answer, error)

// result holds what a side answered, by round: nothing where it is absent or failed.
type result struct {
	answers []answer
	err     error
}

// takeTurns runs the rounds, in each of them every side once. A side may be nil; one that fails is
// left out from then on.
func takeTurns(rounds int, sides ...side) []result {
	results := make([]result, len(sides))
	for range rounds {
		for i, measure := range sides {
			r := &results[i]
			if measure == nil || r.err != nil {
				continue
			}
			a, err := measure()
			if r.answers = append(r.answers, a); err != nil {
				r.answers, r.err = nil, err
			}
		}
	}
	return results
}

// rate returns the median rate of requests of so many units each, in units a second.
func (r result) rate(units float64) float64 {
	var rates []float64
	for _, a := range r.answers {
		rates = append(rates, units/a.Seconds)
	}
	return median(rates)
}

// ratio returns the median over the rounds of a side's rate to a peer's that had as much to do, 0
// without a peer.
func (r result) ratio(peer result) float64 {
	var ratios []float64
	for i := range min(len(r.answers), len(peer.answers)) {
		ratios = append(ratios, peer.answers[i].Seconds/r.answers[i].Seconds)
	}
	return median(ratios)
}

// median sorts x and returns its median, 0 without any.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// eta estimates how long the rest takes from the cells so far.
type eta struct {
	begin       time.Time
	done, cells int
}

func (e *eta) String() string { return e.within("") }

// within also says how much of the cell that runs is done.
func (e *eta) within(cell string) string {
	s := fmt.Sprintf(" (%d of %d", e.done+1, e.cells)
	if cell != "" {
		s += ", " + cell
	}
	if e.done > 0 {
		left := time.Since(e.begin) / time.Duration(e.done) * time.Duration(e.cells-e.done)
		s += fmt.Sprintf(", about %s left", plan.Duration(left.Round(time.Second)))
	}
	return s + ")"
}
