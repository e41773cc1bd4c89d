package plan

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// streamOf returns the stream of the numbers that are not used, of those below fresh, and all from there on.
func streamOf(used map[int64]bool, fresh int64) (s Stream) {
	for fresh > 0 && !used[fresh-1] {
		fresh--
	}
	s.Fresh = fresh
	for n := range fresh {
		if used[n] {
			continue
		}
		if last := len(s.Given) - 1; last >= 0 && s.Given[last].End == n {
			s.Given[last].End++
		} else {
			s.Given = append(s.Given, MicroRange{n, n + 1})
		}
	}
	return s
}

// TestStreamsAreSets takes random places from streams, and compares with what remains one by one.
func TestStreamsAreSets(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		s, used, fresh := Stream{}, map[int64]bool{}, int64(0)
		for range 12 {
			var taken []MicroRange
			var numbers []int64 // in the places taken
			next := int64(0)
			for range rng.IntN(4) {
				r := MicroRange{First: next + rng.Int64N(7)}
				r.End = r.First + rng.Int64N(9)
				for place := r.First; place < r.End; place++ {
					numbers = append(numbers, s.At(place))
				}
				taken, next = append(taken, r), r.End+rng.Int64N(2)
			}
			was := Stream{slices.Clone(s.Given), s.Fresh}
			rest := s.Without(taken)
			if !slices.Equal(s.Given, was.Given) {
				t.Fatalf("%v without %v is changed itself: %v", was, taken, s)
			}
			for _, n := range numbers {
				if used[n] {
					t.Fatalf("%v has %d, which was taken before", s, n)
				}
				used[n] = true
				fresh = max(fresh, n+1)
			}
			want := streamOf(used, fresh)
			if !slices.Equal(rest.Given, want.Given) || rest.Fresh != want.Fresh {
				t.Fatalf("%v without %v: %v, want %v", s, taken, rest, want)
			}
			if err := rest.Validate(); err != nil {
				t.Fatal(err)
			}
			for place, i := int64(0), int64(0); place < 40; i++ { // all that is not used, in order
				if !used[i] {
					if got := rest.At(place); got != i {
						t.Fatalf("place %d of %v has %d, want %d", place, rest, got, i)
					}
					place++
				}
			}
			s = rest
		}
	}
}

// TestStreamsHaveABound: the last ranges beyond it are dropped.
func TestStreamsHaveABound(t *testing.T) {
	var odd []MicroRange
	for i := range int64(MaxGiven + 3) {
		odd = append(odd, MicroRange{2*i + 1, 2*i + 2})
	}
	s := Stream{}.Without(odd)
	if err := s.Validate(); err != nil || len(s.Given) != MaxGiven || s.Given[MaxGiven-1] != (MicroRange{2*MaxGiven - 2, 2*MaxGiven - 1}) || s.Fresh != 2*(MaxGiven+3) {
		t.Errorf("%d ranges up to %v, then from %d on (%v)", len(s.Given), s.Given[len(s.Given)-1], s.Fresh, err)
	}
}

func TestBadStreams(t *testing.T) {
	for _, s := range []Stream{
		{Fresh: -1},
		{Fresh: 1 << 60},
		{Given: []MicroRange{{0, 5}}},
		{Given: []MicroRange{{0, 5}}, Fresh: 5},
		{Given: []MicroRange{{-1, 2}}, Fresh: 5},
		{Given: []MicroRange{{2, 2}}, Fresh: 5},
		{Given: []MicroRange{{2, 1}}, Fresh: 5},
		{Given: []MicroRange{{0, 2}, {2, 3}}, Fresh: 5},
		{Given: []MicroRange{{3, 4}, {0, 1}}, Fresh: 5},
		{Given: make([]MicroRange, MaxGiven+1), Fresh: 5},
	} {
		if err := s.Validate(); !errors.Is(err, ErrBadPlan) {
			t.Errorf("%v is taken: %v", s, err)
		}
	}
	if err := (Stream{Given: []MicroRange{{0, 1}, {2, 4}}, Fresh: 5}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestStreamsInBrief: nothing is written where every step has taken its own micro-batches, and it is read as such.
func TestStreamsInBrief(t *testing.T) {
	for s, plain := range map[*Stream]bool{
		{Fresh: 40}: true, {}: false, {Fresh: 38}: false, {Fresh: 42}: false, {Given: []MicroRange{{5, 7}}, Fresh: 40}: false,
	} {
		brief := s.Brief(10, 4)
		if full := brief.Full(10, 4); s.Fresh != 0 && (full.Fresh != s.Fresh || !slices.Equal(full.Given, s.Given)) || (s.Fresh != 0 && brief.Fresh == 0) != plain {
			t.Errorf("%v in brief is %v, which is %v", *s, brief, full)
		}
	}
}

// TestSamples: places of a full stream are numbered as steps take them.
func TestSamples(t *testing.T) {
	s := Stream{}.Full(3, 4)
	if step, micro := s.Sample(0, 4); step != 4 || micro != 0 {
		t.Errorf("the first micro-batch after step 3 is %d of step %d", micro, step)
	}
	s.Given = []MicroRange{{First: 2, End: 3}, {First: 7, End: 9}}
	for place, want := range [][2]int{{1, 2}, {2, 3}, {3, 0}, {4, 0}, {4, 1}} {
		if step, micro := s.Sample(int64(place), 4); int(step) != want[0] || int(micro) != want[1] {
			t.Errorf("place %d is micro-batch %d of step %d, want %v", place, micro, step, want)
		}
	}
}
