package elastic

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
)

const (
	// composeUpTo is the number of micro-batches up to which unequal groups are looked for.
	composeUpTo = 16
	// maxSimulations bounds the pairs of forward and backward groups that are timed for one
	// depth; where there are more, one side is held while all groups of the other are timed, in
	// turns. It bounds these, too: those of many groups are left out.
	maxSimulations = 1 << 12
	maxDepth       = 6
)

// Interleaving is a pipeline whose workers hold several stages each: stage s is on worker s
// modulo the workers.
type Interleaving struct {
	Workers, Micros int
	// Costs are of all stages, a multiple of Workers.
	Costs schedule.Costs
	// Caps are by worker the activations of a stage and a micro-batch that fit at once; nil is
	// no limit.
	Caps []int
}

// Grouping is how micro-batches go together through the chunks of an interleaved pipeline.
type Grouping struct {
	Depth             int
	Forward, Backward []int
	Makespan          schedule.Nanos
	// Peak is by worker the most activations kept at once.
	Peak []int
}

// Options are those that the schedule is generated from.
func (g Grouping) options(p Interleaving) schedule.Options {
	return schedule.Options{
		Shape:  schedule.Shape{Stages: len(p.Costs.Stages), Micros: p.Micros},
		Chunks: len(p.Costs.Stages) / p.Workers, Depth: g.Depth, Forward: g.Forward, Backward: g.Backward,
	}
}

// Spec names the schedule for a plan.
func (g Grouping) Spec(p Interleaving) schedule.Spec {
	return schedule.Spec{Kind: "interleaved", Params: []schedule.Param{
		{Name: "v", Values: []int{len(p.Costs.Stages) / p.Workers}},
		{Name: "d", Values: []int{g.Depth}},
		{Name: "f", Values: g.Forward},
		{Name: "b", Values: g.Backward},
	}}
}

// ChooseGroups simulates groupings and takes the one that ends first within the caps; of
// equals the one that keeps least, then the one of fewer groups. Up to 16 micro-batches
// these are all compositions of forward and of backward groups (PipeMesh, TPDS 2025), in pairs
// as far as maxSimulations allows, else in turns; of more micro-batches equal groups.
func ChooseGroups(p Interleaving) (Grouping, error) {
	stages := len(p.Costs.Stages)
	if p.Workers < 2 || stages == 0 || stages%p.Workers != 0 || stages == p.Workers || p.Micros < 1 || (p.Caps != nil && len(p.Caps) != p.Workers) {
		return Grouping{}, fmt.Errorf("%w: %d stages on %d workers with %d caps, want several stages on each of 2 workers or more, and a cap for each", ErrBadProblem, stages, p.Workers, len(p.Caps))
	}
	var best Grouping
	for depth := 1; depth <= p.deepest(); depth++ {
		least := (depth*(p.Workers-1) + 2) / 2
		lists := groupings(p.Micros, least)
		var err error
		if p.Micros <= composeUpTo && len(lists)*len(lists) > maxSimulations {
			err = p.alternate(&best, depth, lists, least)
		} else {
			err = p.pairs(&best, depth, lists)
		}
		if err != nil {
			return Grouping{}, err
		}
	}
	if best.Depth == 0 {
		return Grouping{}, fmt.Errorf("elastic: no grouping of %d micro-batches keeps within %v activations; recompute, or hold fewer stages on a worker", p.Micros, p.Caps)
	}
	return best, nil
}

// pairs tries every pair of lists; of many micro-batches each with itself.
func (p Interleaving) pairs(best *Grouping, depth int, lists [][]int) error {
	for _, forward := range lists {
		for _, backward := range lists {
			if p.Micros > composeUpTo && !slices.Equal(forward, backward) {
				continue
			}
			if _, err := p.try(best, Grouping{Depth: depth, Forward: forward, Backward: backward}); err != nil {
				return err
			}
		}
	}
	return nil
}

// alternate tries all lists forward for the best one backward, then all backward for the best
// forward, until neither gets better; it begins with equal groups of several sizes.
func (p Interleaving) alternate(best *Grouping, depth int, lists [][]int, least int) error {
	for size := least; size <= p.Micros; size *= 2 {
		groups := equalGroups(p.Micros, size)
		var own Grouping
		if _, err := p.try(&own, Grouping{Depth: depth, Forward: groups, Backward: groups}); err != nil {
			return err
		}
		if own.Depth == 0 { // not within the caps: from there on any that is
			own = Grouping{Depth: depth, Forward: groups, Backward: groups, Makespan: math.MaxInt64}
		}
		for better := true; better; {
			better = false
			for side := range 2 {
				held := own
				for _, list := range lists {
					g := Grouping{Depth: depth, Forward: list, Backward: held.Backward}
					if side == 1 {
						g.Forward, g.Backward = held.Forward, list
					}
					took, err := p.try(&own, g)
					if err != nil {
						return err
					}
					better = better || took
				}
			}
		}
		if own.Makespan < math.MaxInt64 && (best.Depth == 0 || own.before(*best)) {
			*best = own
		}
	}
	return nil
}

// try takes a grouping that is better than the best one so far, and tells whether it did.
func (p Interleaving) try(best *Grouping, g Grouping) (took bool, err error) {
	if err := p.time(&g); err != nil {
		return false, err
	}
	if took = p.fits(g) && (best.Depth == 0 || best.Makespan == math.MaxInt64 || g.before(*best)); took {
		*best = g
	}
	return took, nil
}

// deepest is the depth behind which nothing is left to hide: the slowest round trip between
// neighbours over what a worker computes meanwhile, and one.
func (p Interleaving) deepest() int {
	var round, busy schedule.Nanos
	for _, b := range p.Costs.Boundaries {
		round = max(round, b.Activation.Transfer+b.Activation.Latency+b.Gradient.Transfer+b.Gradient.Latency)
	}
	for _, s := range p.Costs.Stages {
		busy = max(busy, s.Micro())
	}
	return int(min(maxDepth, 2+round/max(busy, 1)))
}

// time simulates a grouping; one that cannot progress takes for ever.
func (p Interleaving) time(g *Grouping) error {
	s, err := schedule.Grouped(g.options(p))
	if err != nil {
		return err
	}
	g.Makespan = math.MaxInt64
	line, err := schedule.Simulate(s, schedule.Timing{Replicas: []schedule.Costs{p.Costs}})
	if errors.Is(err, schedule.ErrInvalid) { // it comes to a stop
		return nil
	}
	if err != nil {
		return err
	}
	g.Makespan, g.Peak = line.Makespan, line.PeakLive
	return nil
}

// fits tells whether a timed grouping comes to its end within the caps.
func (p Interleaving) fits(g Grouping) bool {
	if g.Makespan == math.MaxInt64 {
		return false
	}
	for w, limit := range p.Caps {
		if g.Peak[w] > limit {
			return false
		}
	}
	return true
}

// before tells whether g is better than o.
func (g Grouping) before(o Grouping) bool {
	if g.Makespan != o.Makespan {
		return g.Makespan < o.Makespan
	}
	if a, b := slices.Max(g.Peak), slices.Max(o.Peak); a != b {
		return a < b
	}
	return len(g.Forward)+len(g.Backward) < len(o.Forward)+len(o.Backward)
}

// groupings are the lists of groups worth a look: every composition where their pairs are
// within maxSimulations, else, up to so many lists, those of groups of at least so many but for
// one at either end (smaller ones in between wait for gradients that they keep from being made),
// and for many micro-batches those of equal groups.
func groupings(micros, least int) [][]int {
	least = min(least, micros)
	if micros > composeUpTo {
		var equal [][]int
		for size := least; size <= micros; size += max(1, size/4) {
			equal = append(equal, equalGroups(micros, size))
		}
		return append(equal, []int{micros})
	}
	few := func(lists [][]int) bool { return len(lists)*len(lists) <= maxSimulations }
	if all := compositions(nil, micros, 1, micros); few(all) {
		return all
	}
	for most := micros; ; most-- {
		lists := slices.DeleteFunc(compositions(nil, micros, 1, most), func(groups []int) bool {
			return smallWithin(groups, least)
		})
		if len(lists) <= maxSimulations || most == 1 {
			return lists
		}
	}
}

// smallWithin tells whether a group of fewer than least stands between others, or two do at
// the ends.
func smallWithin(groups []int, least int) bool {
	small := 0
	for i, g := range groups {
		if g >= least {
			continue
		}
		if i > 0 && i < len(groups)-1 {
			return true
		}
		small++
	}
	return small > 1
}

// equalGroups are as many groups as have at least size. The rest makes the first ones larger
// by one: it would be too small alone, and the warm-up of a worker counts with the first.
func equalGroups(micros, size int) []int {
	count := micros / size
	groups := slices.Repeat([]int{micros / count}, count)
	for i := range micros % count {
		groups[i]++
	}
	return groups
}

// compositions are all lists that begin with head and go on with at most that many numbers
// of at least `least` that add up to micros.
func compositions(head []int, micros, least, most int) (lists [][]int) {
	if micros == 0 {
		return [][]int{slices.Clone(head)}
	}
	if most == 0 {
		return nil
	}
	for n := least; n <= micros; n++ {
		lists = append(lists, compositions(append(head, n), micros-n, least, most-1)...)
	}
	return lists
}
