package model

// Share is one replica's part of what the optimizer keeps of a layer: part Index of Count.
// The zero value is the whole.
type Share struct{ Index, Count int }

// Range is the half-open range [First,End) of elements of a vector.
type Range struct{ First, End int }

// Len is the number of elements.
func (r Range) Len() int { return r.End - r.First }

// Of is the share of a range: ranges of nearly the same length, one behind the other. They differ by
// one of Pieces(Count) at most.
func (s Share) Of(r Range) Range {
	if s.Count <= 1 {
		return r
	}
	n, first, end := s.quanta()
	return Range{r.First + r.Len()*first/n, r.First + r.Len()*end/n}
}

// quanta returns of how many equal pieces, to an element, the share has those in [first,end).
func (s Share) quanta() (n, first, end int) {
	n = quanta(s.Count)
	return n, n * s.Index / s.Count, n * (s.Index + 1) / s.Count
}

// quanta returns 24, which most small numbers divide, doubled until it is count or more.
func quanta(count int) int {
	n := 24
	for n < count {
		n *= 2
	}
	return n
}

// Pieces returns a number of pieces of which the shares of any count up to most consist: what is
// summed by pieces has the same bits for any count.
func Pieces(most int) int {
	switch {
	case most <= 2:
		return max(most, 1)
	case most <= 4:
		return 12
	}
	return quanta(most)
}

// Has reports whether piece i of the n that Pieces counts is in the share.
func (s Share) Has(i, n int) bool {
	if s.Count <= 1 {
		return true
	}
	of, first, end := s.quanta()
	return i*of >= first*n && i*of < end*n
}
