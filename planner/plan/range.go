package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Range is the half-open range [First, End) of layer indices. Layer 0 is the
// embedding, the last one the head.
type LayerRange struct {
	First int `json:"first"`
	End   int `json:"end"`
}

// Len is the number of layers in the range.
func (r LayerRange) Len() int { return r.End - r.First }

// Contains tells whether layer is in the range.
func (r LayerRange) Contains(layer int) bool { return layer >= r.First && layer < r.End }

// Ranges are some of a model's layers: ranges in order, with layers between them.
type LayerRanges []LayerRange

// Contains tells whether layer is in one of the ranges.
func (rs LayerRanges) Contains(layer int) bool {
	return slices.ContainsFunc(rs, func(r LayerRange) bool { return r.Contains(layer) })
}

// With are the layers, of so many, of either ranges.
func (rs LayerRanges) With(others LayerRanges, layers int) LayerRanges {
	return join(layers, func(l int) bool { return rs.Contains(l) || others.Contains(l) })
}

// Without are the layers, of so many, that are not in the others.
func (rs LayerRanges) Without(others LayerRanges, layers int) LayerRanges {
	return join(layers, func(l int) bool { return rs.Contains(l) && !others.Contains(l) })
}

// join are the ranges of the layers, of so many, that are in.
func join(layers int, in func(layer int) bool) (ranges LayerRanges) {
	for l := range layers {
		switch last := len(ranges) - 1; {
		case !in(l):
		case last >= 0 && ranges[last].End == l:
			ranges[last].End++
		default:
			ranges = append(ranges, LayerRange{l, l + 1})
		}
	}
	return ranges
}

// String prints ranges as "[0,2) and [5,6)".
func (rs LayerRanges) String() string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = fmt.Sprintf("[%d,%d)", r.First, r.End)
	}
	return strings.Join(texts, " and ")
}
