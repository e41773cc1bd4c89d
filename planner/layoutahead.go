package planner

import (
	"cmp"
	"slices"
	"sort"

	"pnode/pipeline/schedule"
)

// useWaits has the units recompute ahead of gradients what they have room for: first the stages
// whose backwards wait longest. Between such a recomputation and its backward a program has
// nothing, whatever else its device holds, so that no schedule is the slower for it
// (schedule.WithRecompute); it gains nothing where the next stage is on the same device. A unit
// recomputes more than it must where the room that this makes is worth it.
func (c *cluster) useWaits(l *layout) error {
	waits, err := c.backwardWaits(l)
	if err != nil {
		return err
	}
	for unit := range c.units {
		c.fillAhead(l, unit, waits)
	}
	if err := c.timeLayout(l); err != nil {
		return err
	}
	for unit := range c.units {
		if err := c.tryMore(l, unit, waits); err != nil {
			return err
		}
	}
	return nil
}

// fillAhead gives what room is left on a unit to recomputation ahead of gradients.
func (c *cluster) fillAhead(l *layout, unit int, waits map[Holding]schedule.Nanos) {
	for _, h := range l.waiting(unit, waits) {
		c.fillCell(l, h)
	}
}

// waiting are the stages of a unit that wait for gradients, the longest first.
func (l *layout) waiting(unit int, waits map[Holding]schedule.Nanos) []Holding {
	at := slices.DeleteFunc(l.cellsOn(unit), func(h Holding) bool { return waits[h] == 0 })
	slices.SortStableFunc(at, func(a, b Holding) int { return cmp.Compare(waits[b], waits[a]) })
	return at
}

// tryMore has a unit recompute so much that there is room for what it restores now ahead of
// gradients, and keeps to that where the step is the shorter for it.
func (c *cluster) tryMore(l *layout, unit int, waits map[Holding]schedule.Nanos) error {
	reserve, late := int64(0), false
	for _, h := range l.waiting(unit, waits) {
		k := l.cell(h)
		for i, level := range c.levelsOf(*k) {
			if k.early(level) {
				reserve += c.leanOf(unit, k.first+i, level).AheadBytes
				late = late || i < k.end-k.first-k.ahead
			}
		}
	}
	if !late || c.leanCount() == 0 || c.simulated >= simulateActions {
		return nil
	}
	more := l.clone()
	for _, h := range more.cellsOn(unit) {
		k := more.cell(h)
		k.levels, k.ahead = nil, 0
	}
	if c.makeFit(more, unit, reserve) != nil {
		return nil // there is nothing more to drop
	}
	c.fillAhead(more, unit, waits)
	c.simulated += 2 * c.in.Run.Train.Micros * len(l.rows[0])
	err := c.timeLayout(more)
	if err == nil && more.end < l.end {
		*l = *more
	}
	return err
}

// clone is the layout with cells of its own.
func (l *layout) clone() *layout {
	other := *l
	other.need, other.rows = slices.Clone(l.need), make([][]cell, len(l.rows))
	for r, row := range l.rows {
		other.rows[r] = slices.Clone(row)
	}
	return &other
}

// fillCell has as many of a stage's last layers computed again ahead as its unit has room for.
func (c *cluster) fillCell(l *layout, at Holding) {
	k := l.cell(at)
	before, room := c.cellBytes(*k), c.stageRoom(k.unit)
	counts := c.aheadCounts(*k)
	with := func(i int) cell {
		more := *k
		more.ahead = counts[i]
		return more
	}
	n := sort.Search(len(counts), func(i int) bool { return l.need[k.unit]-before+c.cellBytes(with(i)) > room })
	if n > 0 {
		*k = with(n - 1)
		l.need[k.unit] += c.cellBytes(*k) - before
	}
}

// aheadCounts are the numbers of last layers of a stage that begin with one whose recomputation
// has a use ahead of the gradient.
func (c *cluster) aheadCounts(k cell) (counts []int) {
	for i, level := range slices.Backward(c.levelsOf(k)) {
		if k.early(level) && c.leanOf(k.unit, k.first+i, level).AheadBytes > 0 {
			counts = append(counts, k.end-k.first-i)
		}
	}
	return counts
}

// backwardWaits is by stage how long its device waits for gradients from another one, where
// the stage computes something again.
func (c *cluster) backwardWaits(l *layout) (map[Holding]schedule.Nanos, error) {
	waits := map[Holding]schedule.Nanos{}
	if !slices.ContainsFunc(l.rows, func(row []cell) bool {
		return slices.ContainsFunc(row, func(k cell) bool { return len(c.aheadCounts(k)) > 0 })
	}) {
		return waits, nil
	}
	line, err := schedule.Simulate(l.list, c.timing(l))
	if err != nil {
		return nil, err
	}
	for _, spans := range line.Workers {
		free := schedule.Nanos(0)
		for _, s := range spans {
			at := Holding{s.Action.Replica, s.Action.Stage}
			backward := s.Action.Op == schedule.Backward || s.Action.Op == schedule.BackwardInput
			if backward && s.Start > free && l.elsewhere(at) {
				waits[at] += s.Start - free
			}
			free = max(free, s.End)
		}
	}
	return waits, nil
}

// elsewhere tells whether a stage's gradient comes from another device.
func (l *layout) elsewhere(at Holding) bool {
	row := l.rows[at.Replica]
	return int(at.Stage) < len(row)-1 && row[at.Stage+1].unit != row[at.Stage].unit
}
