package layout

import (
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/memory"
)

// Unit is a device that may hold stages.
type Unit struct {
	// Storage is how its stages store what products read, Speed what it reaches in that.
	Storage model.Storage
	Speed   cost.Speed
	// Times and Micro are prefixes over layers: what they take, all of it and per micro-batch.
	Times []cost.LayerTime
	Micro []schedule.Nanos
	// FreeBytes are for layers and slots: what passes need is taken off.
	FreeBytes int64
	// CopyBytesPerS is the rate of copies each way, HostBytes the memory of its node for what it
	// keeps off the device; 0 where it keeps nothing there.
	CopyBytesPerS, HostBytes int64
}

// Whole is what the whole model takes on the unit per micro-batch.
func (u *Unit) Whole() schedule.Nanos { return max(1, u.Micro[len(u.Micro)-1]) }

// Site is the units, what they hold layers of, and what joins them.
type Site struct {
	Units []*Unit
	Books *memory.Books
	// Away are the units that keep the optimizer state of their stages in the memory of their
	// node; nil for none.
	Away []bool
	// Link joins one unit to another.
	Link func(from, to int) cost.Link
	// Stack is what a stage with so many slots allocates; nil where costs come without a model.
	Stack func(at Cell, slots int) (model.Memory, error)
	// Micros is how many micro-batches a step has.
	Micros int
	// Simulated counts the actions that have been simulated, of which MostSimulated should do.
	Simulated, MostSimulated int

	sizes map[sizeKey]size // of cells, as far as they have been asked for
}

// New is a site without units yet.
func New(books *memory.Books, link func(from, to int) cost.Link) Site {
	return Site{Books: books, Link: link, sizes: map[sizeKey]size{}}
}

// Keeping is the site with other books, and other units that keep optimizer state away.
func (s *Site) Keeping(books *memory.Books, away []bool) Site {
	out := *s
	out.Books, out.Away = books, away
	return out
}

// Ledger is a unit's.
func (s *Site) Ledger(unit int) *memory.Ledger { return s.Books.Ledger(s.Units[unit].Storage) }

// IsAway tells whether a unit keeps its optimizer state in the memory of its node.
func (s *Site) IsAway(unit int) bool { return s.Away != nil && s.Away[unit] }

// Fixed is what the layers [first,end) of one stage take of a unit, whatever is in flight.
func (s *Site) Fixed(unit, first, end int) int64 {
	return s.Ledger(unit).Fixed(first, end, s.IsAway(unit))
}

// Room is what a unit has for its stages.
func (s *Site) Room(unit int) int64 {
	return s.Units[unit].FreeBytes + s.Ledger(unit).Pass() - s.Books.NodeBytes()
}

// Crossing is what copies of a stage's optimizer state take to a unit, and back at the same time.
func (s *Site) Crossing(unit, first, end int) schedule.Nanos {
	return cost.Duration(s.Books.Moments(first, end), s.Units[unit].CopyBytesPerS)
}

// Update is what the optimizer takes on a unit for the layers [first,end).
func (s *Site) Update(unit, first, end int) schedule.Nanos {
	times := s.Units[unit].Times
	between := func(from, to int) schedule.Nanos {
		if to <= from {
			return 0
		}
		return times[to].Update - times[from].Update
	}
	sum, parts := between(first, end), s.Books.Parts()
	for _, r := range parts.Layers {
		part := between(max(first, r.First), min(end, r.End))
		sum -= part - part/schedule.Nanos(parts.Replicas)
	}
	if s.IsAway(unit) {
		sum = max(sum, s.Crossing(unit, first, end))
	}
	return sum
}

// Again is what a unit computes again of layers from first on for a micro-batch: what the last
// so many of them do ahead of the gradient, and in all.
func (s *Site) Again(unit, first int, levels []model.Recompute, ahead int) (early, all schedule.Nanos) {
	for i, level := range levels {
		if level == model.RecomputeNothing {
			continue
		}
		again := s.Ledger(unit).Again(s.Units[unit].Speed, first+i, level).Time
		if all += again; i >= len(levels)-ahead {
			early += again
		}
	}
	return early, all
}

// Elements of a boundary tensor behind a layer.
func (s *Site) Elements(layer int) int64 { return Elements(s.Books.Boundary(layer)) }

// Elements of a tensor of so many bytes in float32.
func Elements(bytes int64) int64 { return (bytes + 3) / 4 }
