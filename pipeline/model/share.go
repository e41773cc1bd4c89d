package model

// Share is one replica's part of what the optimizer keeps of a layer: part Index of Count.
// The zero value is the whole.
type Share struct{ Index, Count int }

// Range is the half-open range [First,End) of elements of a vector.
type Range struct{ First, End int }

// Len is the number of elements.
func (r Range) Len() int { return r.End - r.First }

// Of is the share of a range: ranges of nearly the same length, one behind the other.
func (s Share) Of(r Range) Range {
	if s.Count <= 1 {
		return r
	}
	return Range{r.First + r.Len()*s.Index/s.Count, r.First + r.Len()*(s.Index+1)/s.Count}
}

// ShareRanges are the elements of a layer's trained vector [TrainedLen] that belong to a
// share, in order: those of all shares cover it once. The two ends of a tied embedding are
// cut alike, so that who has a part of one has the same part of the other.
func (c Config) ShareRanges(layer int, s Share) []Range {
	n, tied, cut := c.TrainedLen(layer), c.TiedGradLen(), 0
	switch {
	case layer == 0:
		cut = tied
	case layer == c.Layers()-1:
		cut = n - tied
	}
	var ranges []Range
	for _, whole := range []Range{{0, cut}, {cut, n}} {
		own := s.Of(whole)
		switch last := len(ranges) - 1; {
		case own.Len() == 0:
		case last >= 0 && ranges[last].End == own.First:
			ranges[last].End = own.End
		default:
			ranges = append(ranges, own)
		}
	}
	return ranges
}
