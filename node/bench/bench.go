package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrOptions is wrapped by errors about options; their texts name the flag.
var ErrOptions = errors.New("bad options")

// Sides holds the options of every comparison with another program.
type Sides struct {
	Rounds   int          // measurements of each side
	Python   string       // default python3
	Progress func(string) // receives what is measured now; nil for nobody
}

func (o *Sides) fill(rounds int) error {
	o.Rounds, o.Python = cmp.Or(o.Rounds, rounds), cmp.Or(o.Python, "python3")
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Rounds < 1 {
		return fmt.Errorf("--rounds is %d: take 1 or more", o.Rounds)
	}
	return nil
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

// first returns the first error, nil where there is none.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
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

func (e *eta) String() string {
	s := fmt.Sprintf(" (%d of %d", e.done+1, e.cells)
	if e.done > 0 {
		left := time.Since(e.begin) / time.Duration(e.done) * time.Duration(e.cells-e.done)
		s += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	return s + ")"
}
