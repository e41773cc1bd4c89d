package elastic

import (
	"math/bits"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// rung is what a stage has dropped after so many moves of its ladder, in comparison with
// nothing.
type rung struct {
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

// ladder are the moves of a stage, those that free the most bytes for a second of
// recomputation first; rung 0 drops nothing.
type ladder []rung

func newLadder(layers []cost.Recomputations) ladder {
	var moves []move
	for l, levels := range layers {
		moves = append(moves, movesOf(levels, l)...)
	}
	slices.SortStableFunc(moves, func(a, b move) int { return b.compare(a) })
	rungs := make(ladder, 1, len(moves)+1)
	for _, m := range moves {
		last := rungs[len(rungs)-1]
		rungs = append(rungs, rung{
			move: m, freed: last.freed + m.freed, time: last.time + m.time,
			pass: max(last.pass, layers[m.layer][m.level].PassBytes),
		})
	}
	return rungs
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

// moves are a layer's from level to level, each freeing fewer bytes a second than the one
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

// levels are a stage's of that many layers after the moves up to a rung; nil when nothing is
// recomputed.
func (l ladder) levels(rung, layers int) []model.Recompute {
	if rung == 0 {
		return nil
	}
	levels := make([]model.Recompute, layers)
	for _, step := range l[1 : rung+1] {
		levels[step.layer] = step.level
	}
	return levels
}

// Free picks what layers of one device compute again so that it has so many bytes more, the
// most bytes for a second first. FreedBytes are those of all micro-batches in flight. Where
// that much cannot be freed all is recomputed, and it is not enough.
func Free(layers []cost.Recomputations, bytes int64) (levels []model.Recompute, enough bool) {
	l := newLadder(layers)
	i := slices.IndexFunc(l, func(r rung) bool { return r.freed-r.pass >= bytes })
	if i < 0 {
		return l.levels(len(l)-1, len(layers)), false
	}
	if i == 0 {
		return model.RecomputeNothing.Uniform(len(layers)), true
	}
	return l.levels(i, len(layers)), true
}
