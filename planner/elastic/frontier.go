package elastic

import (
	"math/bits"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// point has what a stage has dropped after so many moves along its frontier, in comparison with
// nothing.
type point struct {
	move
	freed, pass int64
	time        schedule.Nanos
}

// move takes a layer from its level to a leaner one.
type move struct {
	layer int
	level model.Recompute
	freed int64
	time  schedule.Nanos
}

// frontier has the moves of a stage, those that free the most bytes for a second of
// recomputation first; point 0 drops nothing.
type frontier []point

func newFrontier(layers []cost.Recomputations) frontier {
	var moves []move
	for l, levels := range layers {
		moves = append(moves, movesOf(levels, l)...)
	}
	slices.SortStableFunc(moves, func(a, b move) int { return b.compare(a) })
	points := make(frontier, 1, len(moves)+1)
	for _, m := range moves {
		last := points[len(points)-1]
		points = append(points, point{
			move: m, freed: last.freed + m.freed, time: last.time + m.time,
			pass: max(last.pass, layers[m.layer][m.level].PassBytes),
		})
	}
	return points
}

// compare orders moves by the bytes they free for a second; more is greater.
func (m move) compare(o move) int {
	high, low := bits.Mul64(uint64(m.freed), uint64(o.time))
	otherHigh, otherLow := bits.Mul64(uint64(o.freed), uint64(m.time))
	switch {
	case high > otherHigh || (high == otherHigh && low > otherLow):
		return 1
	case high == otherHigh && low == otherLow:
		return 0
	}
	return -1
}

// movesOf returns a layer's moves from level to level, each freeing fewer bytes a second than the one
// before: a level that a straight line between others passes is left out.
func movesOf(levels cost.Recomputations, layer int) []move {
	var path []move
	at := cost.Recomputation{}
	for from := 0; from < len(levels); {
		best, next := move{}, 0
		for level := from + 1; level < len(levels); level++ {
			m := move{layer, model.Recompute(level), levels[level].FreedBytes - at.FreedBytes, levels[level].Time - at.Time}
			if m.time = max(m.time, 0); m.freed > 0 && (next == 0 || m.compare(best) > 0) {
				best, next = m, level
			}
		}
		if next == 0 {
			break
		}
		path, at, from = append(path, best), levels[next], next
	}
	return path
}

// levels returns the levels of a stage of so many layers after the moves up to a point; nil when
// nothing is recomputed.
func (f frontier) levels(upTo, layers int) []model.Recompute {
	if upTo == 0 {
		return nil
	}
	levels := make([]model.Recompute, layers)
	for _, step := range f[1 : upTo+1] {
		levels[step.layer] = step.level
	}
	return levels
}

// Free picks what layers of one device recompute so that it has so many bytes more, the
// most bytes for a second first. FreedBytes count all micro-batches in flight. Where
// that much cannot be freed everything is recomputed, and it is not enough.
func Free(layers []cost.Recomputations, bytes int64) (levels []model.Recompute, enough bool) {
	f := newFrontier(layers)
	i := slices.IndexFunc(f, func(r point) bool { return r.freed-r.pass >= bytes })
	if i < 0 {
		return f.levels(len(f)-1, len(layers)), false
	}
	if i == 0 {
		return model.RecomputeNothing.Uniform(len(layers)), true
	}
	return f.levels(i, len(layers)), true
}
