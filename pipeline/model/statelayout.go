package model

// StateLayout says which optimizer state the layers of a model have, and how replicas share it.
type StateLayout struct {
	Model Config
	// WholeMatrices reports that an update takes the Matrices as a whole: no share ends within one, and each has the first moment alone.
	WholeMatrices bool
}

// Share returns the elements of a layer's trained vector [TrainedLen] that belong to a share, in order: those of all shares
// cover it once. The two ends of a tied embedding are cut alike, so that who has a part of one has the same part of the other.
func (o StateLayout) Share(layer int, s Share) []Range {
	n, tied, cut := o.Model.TrainedLen(layer), o.Model.TiedGradLen(), 0
	switch {
	case layer == 0:
		cut = tied
	case layer == o.Model.Layers()-1:
		cut = n - tied
	}
	var matrices []Range
	if o.WholeMatrices && s.Count > 1 {
		matrices = o.Model.trainedMatrices(layer)
	}
	var ranges []Range
	for _, whole := range []Range{{0, cut}, {cut, n}} {
		own := s.Of(whole)
		own.First, own.End = outside(matrices, own.First), outside(matrices, own.End)
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

// outside returns the end of a matrix that is nearest to an element within it, of two the first; any other element stays.
func outside(matrices []Range, element int) int {
	for _, m := range matrices {
		if m.First < element && element < m.End {
			if element-m.First <= m.End-element {
				return m.First
			}
			return m.End
		}
	}
	return element
}

// Owned returns the elements of a layer's share that have moment i, in order.
func (o StateLayout) Owned(layer, i int, s Share) []Range {
	share := o.Share(layer, s)
	if !o.WholeMatrices || i == 0 {
		return share
	}
	var rest []Range
	for _, r := range share {
		for _, m := range o.Model.trainedMatrices(layer) {
			if r.First <= m.First && m.End <= r.End {
				if r.First < m.First {
					rest = append(rest, Range{r.First, m.First})
				}
				r.First = m.End
			}
		}
		if r.Len() > 0 {
			rest = append(rest, r)
		}
	}
	return rest
}

// Placed returns where the elements that Owned returns lie in moment i of the whole layer.
func (o StateLayout) Placed(layer, i int, s Share) []Range {
	placed, whole := o.Owned(layer, i, s), o.Owned(layer, i, Share{})
	for k, r := range placed {
		first := Offset(whole, r.First)
		placed[k] = Range{first, first + r.Len()}
	}
	return placed
}

// Len returns how long moment i of a whole layer is.
func (o StateLayout) Len(layer, i int) int { return Total(o.Owned(layer, i, Share{})) }

// Total is the number of elements of ranges.
func Total(ranges []Range) (n int) {
	for _, r := range ranges {
		n += r.Len()
	}
	return n
}

// Offset returns where an element of one of some ranges is, where they lie one behind the other.
func Offset(ranges []Range, element int) (at int) {
	for _, r := range ranges {
		if element < r.End {
			return at + element - r.First
		}
		at += r.Len()
	}
	return at
}
