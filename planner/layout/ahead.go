package layout

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
func (s *Site) useWaits(l *Layout) error {
	waits, err := s.backwardWaits(l)
	if err != nil {
		return err
	}
	for unit := range s.Units {
		s.fillAhead(l, unit, waits)
	}
	if err := s.Time(l); err != nil {
		return err
	}
	for unit := range s.Units {
		if err := s.tryMore(l, unit, waits); err != nil {
			return err
		}
	}
	return nil
}

// fillAhead gives what room is left on a unit to recomputation ahead of gradients.
func (s *Site) fillAhead(l *Layout, unit int, waits map[At]schedule.Nanos) {
	for _, h := range l.waiting(unit, waits) {
		s.fillCell(l, h)
	}
}

// waiting are the stages of a unit that wait for gradients, the longest first.
func (l *Layout) waiting(unit int, waits map[At]schedule.Nanos) []At {
	at := slices.DeleteFunc(l.On(unit), func(h At) bool { return waits[h] == 0 })
	slices.SortStableFunc(at, func(a, b At) int { return cmp.Compare(waits[b], waits[a]) })
	return at
}

// tryMore has a unit recompute so much that there is room for what it restores now ahead of
// gradients, and keeps to that where the step is the shorter for it.
func (s *Site) tryMore(l *Layout, unit int, waits map[At]schedule.Nanos) error {
	reserve, late := int64(0), false
	for _, h := range l.waiting(unit, waits) {
		k := l.Cell(h)
		for i, level := range s.levelsOf(*k) {
			if k.early(level) {
				reserve += s.again(*k, i, level).AheadBytes
				late = late || i < k.Len()-k.Ahead
			}
		}
	}
	if !late || s.Books.MostLevels() == 0 || s.Simulated >= s.MostSimulated {
		return nil
	}
	more := l.clone()
	for _, h := range more.On(unit) {
		k := more.Cell(h)
		k.Levels, k.Ahead = nil, 0
	}
	if s.makeFit(more, unit, reserve) != nil {
		return nil // there is nothing more to drop
	}
	s.fillAhead(more, unit, waits)
	s.Simulated += 2 * s.Micros * len(l.Rows[0])
	err := s.Time(more)
	if err == nil && more.End < l.End {
		*l = *more
	}
	return err
}

// fillCell has as many of a stage's last layers computed again ahead as its unit has room for.
func (s *Site) fillCell(l *Layout, at At) {
	k := l.Cell(at)
	before, room := s.Bytes(*k), s.Room(k.Unit)
	counts := s.aheadCounts(*k)
	with := func(i int) Cell {
		more := *k
		more.Ahead = counts[i]
		return more
	}
	n := sort.Search(len(counts), func(i int) bool { return l.Need[k.Unit]-before+s.Bytes(with(i)) > room })
	if n > 0 {
		*k = with(n - 1)
		l.Need[k.Unit] += s.Bytes(*k) - before
	}
}

// aheadCounts are the numbers of last layers of a stage that begin with one whose recomputation
// has a use ahead of the gradient.
func (s *Site) aheadCounts(k Cell) (counts []int) {
	for i, level := range slices.Backward(s.levelsOf(k)) {
		if k.early(level) && s.again(k, i, level).AheadBytes > 0 {
			counts = append(counts, k.Len()-i)
		}
	}
	return counts
}

// backwardWaits is by stage how long its device waits for gradients from another one, where
// the stage computes something again.
func (s *Site) backwardWaits(l *Layout) (map[At]schedule.Nanos, error) {
	waits := map[At]schedule.Nanos{}
	if !slices.ContainsFunc(l.Rows, func(row []Cell) bool {
		return slices.ContainsFunc(row, func(k Cell) bool { return len(s.aheadCounts(k)) > 0 })
	}) {
		return waits, nil
	}
	line, err := schedule.Simulate(l.Programs, s.Timing(l))
	if err != nil {
		return nil, err
	}
	for _, spans := range line.Workers {
		free := schedule.Nanos(0)
		for _, span := range spans {
			at := At{span.Action.Replica, span.Action.Stage}
			backward := span.Action.Op == schedule.Backward || span.Action.Op == schedule.BackwardInput
			if backward && span.Start > free && l.elsewhere(at) {
				waits[at] += span.Start - free
			}
			free = max(free, span.End)
		}
	}
	return waits, nil
}

// elsewhere tells whether a stage's gradient comes from another device.
func (l *Layout) elsewhere(at At) bool {
	row := l.Rows[at.Replica]
	return int(at.Stage) < len(row)-1 && row[at.Stage+1].Unit != row[at.Stage].Unit
}
