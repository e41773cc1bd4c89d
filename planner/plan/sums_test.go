package plan

import (
	"errors"
	"math/bits"
	"testing"
)

// TestGroupsHaveTheMicroBatchesOnce, in order, and sizes that differ by at most one.
func TestGroupsHaveTheMicroBatchesOnce(t *testing.T) {
	for micros := 1; micros <= 40; micros++ {
		for groups := 1; groups <= micros; groups++ {
			s, next := Sums{micros, groups}, 0
			for g := range groups {
				n := s.MicrosOf(GroupRange{g, g + 1})
				if n != micros/groups && n != (micros+groups-1)/groups {
					t.Fatalf("%+v: group %d has %d micro-batches", s, g, n)
				}
				for i := range n {
					if got, last := s.Of(Micro(next)); got != g || last != (i == n-1) {
						t.Fatalf("%+v: micro-batch %d is in group %d, last %t", s, next, got, last)
					}
					next++
				}
			}
			if next != micros {
				t.Fatalf("%+v: %d micro-batches in all", s, next)
			}
		}
	}
}

// TestSharesAreWholeGroups: a range of micro-batches is a share where groups begin and end.
func TestSharesAreWholeGroups(t *testing.T) {
	s := Sums{Micros: 7, Groups: 3} // 2, 2 and 3 micro-batches
	for _, c := range []struct {
		first  Micro
		micros int
		want   GroupRange
		ok     bool
	}{
		{0, 7, GroupRange{0, 3}, true},
		{0, 2, GroupRange{0, 1}, true},
		{2, 5, GroupRange{1, 3}, true},
		{0, 3, GroupRange{}, false},
		{1, 3, GroupRange{}, false},
		{4, 4, GroupRange{}, false},
		{-1, 3, GroupRange{}, false},
		{2, 0, GroupRange{}, false},
	} {
		if got, ok := s.Share(c.first, c.micros); ok != c.ok || ok && got != c.want {
			t.Errorf("%d+%d: %+v, %t", c.first, c.micros, got, ok)
		}
	}
	for _, bad := range []Sums{{}, {Micros: 3}, {Micros: 3, Groups: 4}, {Micros: 3, Groups: -1}} {
		if err := bad.Validate(); !errors.Is(err, ErrBadInput) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// trees lists every subtree under one, by the definition.
func trees(tree GroupRange) map[GroupRange]bool {
	all := map[GroupRange]bool{tree: true}
	if tree.Len() > 1 {
		middle := tree.First + (tree.Len()+1)/2
		for _, half := range []GroupRange{{tree.First, middle}, {middle, tree.End}} {
			for t := range trees(half) {
				all[t] = true
			}
		}
	}
	return all
}

// TestSubtreesCoverARange with as few subtrees as there can be, and few of them wait meanwhile.
func TestSubtreesCoverARange(t *testing.T) {
	for groups := 1; groups <= 20; groups++ {
		s, all := Sums{groups, groups}, trees(GroupRange{0, groups})
		for first := range groups {
			for end := first + 1; end <= groups; end++ {
				share := GroupRange{first, end}
				next, subtrees := first, s.Subtrees(share)
				for i, tree := range subtrees {
					if !all[tree] || tree.First != next {
						t.Fatalf("%d groups, %v: %v", groups, share, subtrees)
					}
					for larger := tree.End + 1; larger <= end; larger++ {
						if all[GroupRange{tree.First, larger}] {
							t.Fatalf("%d groups, %v: %v, and %d to %d is a subtree", groups, share, subtrees, tree.First, larger)
						}
					}
					if i > 0 && s.Pair(subtrees[i-1], tree) {
						t.Fatalf("%d groups, %v: %v and %v are a pair", groups, share, subtrees[i-1], tree)
					}
					next = tree.End
				}
				if next != end {
					t.Fatalf("%d groups, %v: %v", groups, share, subtrees)
				}
				if n := s.Partials(share); n < len(subtrees)-1 || n > s.MostPartials(share.Len()) || n > 2*bits.Len(uint(share.Len()-1)) {
					t.Errorf("%d groups, %v: %d partial sums", groups, share, n)
				}
			}
		}
		if n := s.Partials(GroupRange{0, groups}); n != bits.Len(uint(groups))-1 {
			t.Errorf("%d groups: %d partial sums wait, want log2 of them, rounded down", groups, n)
		}
	}
}

// TestEvenSharesOfPowersOfTwoAreSubtrees, so that each replica sends one sum.
func TestEvenSharesOfPowersOfTwoAreSubtrees(t *testing.T) {
	for groups := 1; groups <= 40; groups++ {
		s := Sums{groups, groups}
		for shares := 1; shares <= groups; shares++ {
			for _, units := range []int{groups, 4, 2} {
				if units < shares || units > groups {
					continue
				}
				next := 0
				for _, share := range s.Even(shares, units) {
					if share.First != next || share.Len() < 1 || units == groups && share.Len() > (groups+shares-1)/shares {
						t.Fatalf("%d groups in %d shares: %+v", groups, shares, share)
					}
					if next = share.End; shares&(shares-1) == 0 && len(s.Subtrees(share)) != 1 {
						t.Errorf("%d groups in %d shares: %+v has the subtrees %v", groups, shares, share, s.Subtrees(share))
					}
				}
				if next != groups {
					t.Errorf("%d groups in %d shares end at %d", groups, shares, next)
				}
			}
		}
	}
}
