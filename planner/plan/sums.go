package plan

import (
	"fmt"
	"math/bits"
)

// Sums fixes the order in which the gradients of a step's Micros micro-batches are added, whoever
// computes them. The step is cut into Groups of consecutive micro-batches, whose sizes differ by at
// most one. Within a group they are added one after the other. The groups' sums are added pairwise,
// in a binary tree: the sum of n groups is that of the first n/2 of them, rounded up, and that of the
// rest (Higham 2002, section 4.2).
//
// A replica takes whole groups. It adds up the subtrees that it has all groups of; the tree over them
// is the same however many replicas there are.
type Sums struct{ Micros, Groups int }

// Sums returns the order of a run's sums. Without SumGroups each micro-batch is a group of its own.
func (t TrainSpec) Sums() Sums {
	if t.SumGroups == 0 {
		return Sums{t.Micros, t.Micros}
	}
	return Sums{t.Micros, t.SumGroups}
}

// GroupRange is the half-open range [First, End) of groups: a replica's share, or a subtree.
type GroupRange struct{ First, End int }

// Len returns the number of groups in the range.
func (r GroupRange) Len() int { return r.End - r.First }

// Validate returns an error unless each group has a micro-batch. It wraps ErrBadInput.
func (s Sums) Validate() error {
	if s.Groups < 1 || s.Groups > s.Micros {
		return fmt.Errorf("%w: %d sum groups of %s, want 1 to %d", ErrBadInput, s.Groups, Count(s.Micros, "micro-batch"), s.Micros)
	}
	return nil
}

// First returns a group's first micro-batch; that of group Groups follows the last micro-batch.
func (s Sums) First(group int) Micro { return Micro(s.Micros * group / s.Groups) }

// Of returns the group of a micro-batch, and whether it is the group's last one.
func (s Sums) Of(m Micro) (group int, last bool) {
	group = (s.Groups*(int(m)+1) - 1) / s.Micros
	return group, s.First(group+1) == m+1
}

// Share returns the groups of so many micro-batches from the first one on; not ok unless they are
// whole groups, one or more.
func (s Sums) Share(first Micro, micros int) (share GroupRange, ok bool) {
	end := int(first) + micros
	if first < 0 || micros < 1 || end > s.Micros {
		return share, false
	}
	begin, _ := s.Of(first)
	last, whole := s.Of(Micro(end - 1))
	return GroupRange{begin, last + 1}, whole && s.First(begin) == first
}

// MicrosOf returns how many micro-batches the groups of a range have.
func (s Sums) MicrosOf(r GroupRange) int { return int(s.First(r.End) - s.First(r.First)) }

// halves returns the two subtrees of a subtree of several groups.
func (r GroupRange) halves() (left, right GroupRange) {
	middle := r.First + (r.Len()+1)/2
	return GroupRange{r.First, middle}, GroupRange{middle, r.End}
}

// Pair reports whether two ranges of groups are the halves of a subtree.
func (s Sums) Pair(a, b GroupRange) bool {
	whole, tree := GroupRange{a.First, b.End}, GroupRange{0, s.Groups}
	for tree.Len() > whole.Len() {
		left, right := tree.halves()
		if tree = left; whole.First >= right.First {
			tree = right
		}
	}
	left, right := tree.halves()
	return tree == whole && left == a && right == b
}

// Subtrees returns the largest subtrees of a range of groups, in order: their sums are all that others
// have to know of it.
func (s Sums) Subtrees(r GroupRange) (trees []GroupRange) {
	s.add(r, func(after []GroupRange) { trees = after })
	return trees
}

// add calls each with the subtrees whose sums there are after each group of a range.
func (s Sums) add(r GroupRange, each func(trees []GroupRange)) {
	var trees []GroupRange
	for g := r.First; g < r.End; g++ {
		trees = append(trees, GroupRange{g, g + 1})
		for n := len(trees); n > 1 && s.Pair(trees[n-2], trees[n-1]); n = len(trees) {
			trees = append(trees[:n-2], GroupRange{trees[n-2].First, trees[n-1].End})
		}
		each(trees)
	}
}

// Partials returns how many sums of subtrees wait at most while a replica computes a share, besides
// the vector that the kernels add to: none for one group, at most about log2 of the groups.
func (s Sums) Partials(share GroupRange) (most int) {
	s.add(share, func(trees []GroupRange) {
		waiting := len(trees)
		if trees[waiting-1].End == share.End {
			waiting-- // the last sum stays where it is
		}
		most = max(most, waiting)
	})
	return most
}

// MostPartials returns the Partials of the worst share of so many groups, or a bound on them where there are
// many.
func (s Sums) MostPartials(groups int) (most int) {
	if s.Groups > 64 {
		return 2 * bits.Len(uint(groups-1))
	}
	for first := range s.Groups - groups + 1 {
		most = max(most, s.Partials(GroupRange{first, first + groups}))
	}
	return most
}

// Even returns so many shares of the groups that differ in size by about one unit: the subtrees of a level of the
// tree, 2, 4, 8 ... of them, or all groups. Of 2, 4, 8 ... shares each is one subtree.
func (s Sums) Even(shares, units int) (all []GroupRange) {
	if shares&(shares-1) == 0 {
		units = shares
	}
	level := s.Level(units)
	for i := range shares {
		all = append(all, GroupRange{level[ceilDiv(units*i, shares)].First, level[ceilDiv(units*(i+1), shares)-1].End})
	}
	return all
}

// Level returns the subtrees of a level of the tree, 1, 2, 4, 8 ... of them, or all groups.
func (s Sums) Level(units int) []GroupRange {
	level := []GroupRange{{0, s.Groups}}
	for len(level) < units {
		var next []GroupRange
		for _, tree := range level {
			if tree.Len() == 1 {
				next = append(next, tree)
				continue
			}
			left, right := tree.halves()
			next = append(next, left, right)
		}
		level = next
	}
	return level
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
