package layout

import (
	"fmt"
	"math"

	"pnode/pipeline/model"
)

// sizeKey is what a stage's memory depends on beside its slots.
type sizeKey struct {
	first, end, ahead int
	split, offload    bool
	shares, levels    string
	storage           model.Storage
}

// size is fixed bytes of a device and those of each slot, and bytes in host memory.
type size struct{ fixed, slot, host int64 }

// Bytes is what a stage takes of its device.
func (s *Site) Bytes(k Cell) int64 {
	size := s.size(k)
	return size.fixed + int64(k.Use.Slots)*size.slot
}

// size is what a stage takes.
func (s *Site) size(k Cell) size {
	key := sizeKey{k.First, k.End, k.Ahead, k.Use.Split, k.Offload, fmt.Sprint(k.Shares), fmt.Sprint(k.Levels), s.Units[k.Unit].Storage}
	out, ok := s.sizes[key]
	if !ok {
		out = s.measure(k)
		s.sizes[key] = out
	}
	return out
}

// measure asks the model's stack; costs that come without a model are added up.
func (s *Site) measure(k Cell) size {
	if s.Stack == nil {
		return s.addUp(k)
	}
	var total [3]int64
	var host int64
	for slots := 1; slots <= 2; slots++ {
		m, err := s.Stack(k, slots)
		if err != nil {
			return size{fixed: math.MaxInt64 / 4}
		}
		total[slots], host = m.Total(), m.Host
	}
	each := total[2] - total[1]
	return size{total[1] - each, each, host}
}

// addUp is a stage's size by its ledger.
func (s *Site) addUp(k Cell) size {
	l, speed := s.Ledger(k.Unit), s.Units[k.Unit].Speed
	saved := l.Saved(k.First, k.End)
	for i, level := range k.Levels {
		costs := l.Costs()[k.First+i]
		saved -= costs.SavedBytes - costs.Lean[level].SavedBytes
	}
	out := size{fixed: l.Fixed(k.First, k.End, k.Offload) + l.Pass() - s.Books.NodeBytes(), slot: saved + s.Books.Slot()}
	for i, level := range s.levelsOf(k)[k.Len()-k.Ahead:] {
		out.fixed += l.Again(speed, k.End-k.Ahead+i, level).AheadBytes
	}
	if k.Offload {
		out.host = s.Books.Host(k.First, k.End)
	}
	return out
}

// SumNeeds adds up what the stages of each unit take.
func (s *Site) SumNeeds(l *Layout) {
	l.Need = make([]int64, len(s.Units))
	for _, row := range l.Rows {
		for _, k := range row {
			l.Need[k.Unit] += s.Bytes(k)
		}
	}
}

// FitBeside tells whether every unit has room for rows while its stages, one after the other,
// change over from other rows of the same layers.
func (s *Site) FitBeside(rows, from Rows) bool {
	need := make([]int64, len(s.Units))
	for r, row := range rows {
		for st, k := range row {
			need[k.Unit] += max(s.Bytes(k), s.Bytes(from[r][st]))
		}
	}
	for u, bytes := range need {
		if bytes > 0 && bytes > s.Room(u) {
			return false
		}
	}
	return true
}

// Caps is by worker how many activations of any of its stages fit at once with what the stages
// compute again, the fewest of all replicas, at most so many.
func (s *Site) Caps(l *Layout, most int64) []int {
	caps := make([]int, len(l.Rows[0])/l.chunks())
	for _, row := range l.Rows {
		for w := range caps {
			room, largest := s.Room(row[w].Unit), int64(1)
			for st := w; st < len(row); st += len(caps) {
				one, two := row[st], row[st]
				one.Use.Slots, two.Use.Slots = 1, 2
				slot := s.Bytes(two) - s.Bytes(one)
				room, largest = room-(s.Bytes(one)-slot), max(largest, slot)
			}
			fit := int(max(0, min(room/largest, most)))
			if caps[w] == 0 || fit < caps[w] {
				caps[w] = max(1, fit)
			}
		}
	}
	return caps
}
