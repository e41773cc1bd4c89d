package layout

import (
	"fmt"

	"pnode/planner/elastic"
)

// NoFit says which unit is too small for its stages. It is an error.
type NoFit struct {
	Unit                 int
	NeedBytes, FreeBytes int64
	// At are the stages, InFlight how many micro-batches each of them keeps.
	At       []At
	InFlight []int
	// Host tells that it is the memory of the unit's node that is too small.
	Host bool
}

func (e *NoFit) Error() string {
	return fmt.Sprintf("layout: unit %d needs %d bytes for %d stages, %d are free", e.Unit, e.NeedBytes, len(e.At), e.FreeBytes)
}

// Fit has every unit of a layout recompute what it takes for its stages to fit, and times it with
// as much of that as there is room for in the waits for gradients. The error says what does not
// fit (NoFit).
func (s *Site) Fit(l *Layout) error {
	for u := range s.Units {
		if err := s.makeFit(l, u, 0); err != nil {
			return err
		}
	}
	return s.useWaits(l)
}

// makeFit has a unit recompute no more than it takes for its stages to fit beside a reserve.
func (s *Site) makeFit(l *Layout, unit int, reserve int64) error {
	if l.Need == nil {
		l.Need = make([]int64, len(s.Units))
	}
	if err := s.hostFits(l, unit); err != nil {
		return err
	}
	at := l.On(unit)
	room := s.Room(unit) - reserve
	for free, more := int64(0), s.Books.MostLevels() > 0; ; {
		l.Need[unit] = 0
		for _, h := range at {
			l.Need[unit] += s.Bytes(*l.Cell(h))
		}
		over := l.Need[unit] - room
		switch {
		case over <= 0:
			return nil
		case !more:
			return l.noRoom(unit, at, room)
		}
		free += over
		more = s.recompute(l, at, free)
	}
}

// hostFits wants that a unit's node has the memory for what stages keep there.
func (s *Site) hostFits(l *Layout, unit int) error {
	need := int64(0)
	for _, h := range l.On(unit) {
		need += s.size(*l.Cell(h)).host
	}
	if u := s.Units[unit]; need > u.HostBytes {
		return &NoFit{Unit: unit, NeedBytes: need, FreeBytes: u.HostBytes, Host: true}
	}
	return nil
}

// recompute frees so many bytes of the stages of one unit, by what their costs say; false
// where all is recomputed.
func (s *Site) recompute(l *Layout, at []At, free int64) bool {
	var layers []elastic.Layer
	for _, h := range at {
		k := l.Cell(h)
		for _, layer := range s.Ledger(k.Unit).Choices(s.Units[k.Unit].Speed, k.First, k.End) {
			for i := range layer {
				layer[i].FreedBytes *= int64(k.Use.Slots)
			}
			layers = append(layers, layer)
		}
	}
	levels, enough := elastic.Free(layers, free)
	if levels == nil {
		return false // there is nothing to free
	}
	for _, h := range at {
		k := l.Cell(h)
		k.Levels, levels = levels[:k.Len():k.Len()], levels[k.Len():]
	}
	return enough
}

func (l *Layout) noRoom(unit int, at []At, room int64) error {
	e := &NoFit{Unit: unit, NeedBytes: l.Need[unit], FreeBytes: room, At: at}
	for _, h := range at {
		e.InFlight = append(e.InFlight, l.Cell(h).Use.Slots)
	}
	return e
}
