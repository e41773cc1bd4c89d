package memory

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// Ledger is what the model's layers take of a device on which stages have one storage.
type Ledger struct {
	books   *Books
	storage model.Storage
	costs   []model.LayerCost
	// fixed is what layers take in training, saved what a micro-batch in flight keeps.
	fixed, saved []int64
	pass         int64
	levels       []Level
}

// Open is the ledger of a storage, made when it is first asked for. The error is ErrNoHalfCosts.
func (b *Books) Open(s model.Storage) (*Ledger, error) {
	if b.ledgers[s] != nil {
		return b.ledgers[s], nil
	}
	costs := b.model.Costs
	if s != model.StorageF32 {
		costs = b.model.HalfCosts
	}
	if len(costs) != b.Layers() {
		return nil, ErrNoHalfCosts
	}
	l := &Ledger{books: b, storage: s, costs: b.model.fixedCosts(costs), saved: make([]int64, b.Layers()+1)}
	b.ledgers[s] = l
	l.sumFixed()
	var pass, halves, tables int64
	for i, k := range l.costs {
		l.saved[i+1] = l.saved[i] + k.SavedBytes
		pass, halves = max(pass, k.PassBytes-k.PassHalfBytes), max(halves, k.PassHalfBytes)
		tables = max(tables, k.TableBytes)
	}
	// The passes of all layers share what one needs, and two gradients of the stream.
	pass += 2 * b.activation
	l.levels = l.openLevels(pass + halves)
	l.pass = b.NodeBytes() + pass + halves + tables
	return l, nil
}

// Ledger is one that was opened, nil for any other.
func (b *Books) Ledger(s model.Storage) *Ledger { return b.ledgers[s] }

// Costs are by layer those of a micro-batch, under the level that is fixed.
func (l *Ledger) Costs() []model.LayerCost { return l.costs }

// Pass is what each stage takes whatever the layers and the slots, with the node's own.
func (l *Ledger) Pass() int64 { return l.pass }

// Saved is what a micro-batch in flight keeps of the layers [first,end).
func (l *Ledger) Saved(first, end int) int64 { return l.saved[end] - l.saved[first] }

// SavedFor are the prefixes of that.
func (l *Ledger) SavedFor() []int64 { return l.saved }

// Fixed is what the layers [first,end) of one stage take, with their optimizer state away or not.
func (l *Ledger) Fixed(first, end int, away bool) int64 {
	b, fixed := l.books, l.fixed[end]-l.fixed[first]
	if away {
		fixed += b.Window(first, end) - b.Moments(first, end)
	}
	if first == 0 && end == b.Layers() {
		// Parameters and moments are there once, the gradient of each end is not.
		tied, trained := int64(b.model.Tied), int64(b.model.TiedGrad)
		fixed -= 4*tied + plan.MomentVectors*4*trained/int64(b.parts.of(0))
		if l.storage != model.StorageF32 {
			fixed -= 2 * tied
		}
	}
	return fixed
}

// FixedFor are the prefixes of that in a pipeline of so many stages, without the window.
func (l *Ledger) FixedFor(stages int, away bool) []int64 {
	sums := l.books.alone(l.fixed, stages, func(first, end int) int64 { return l.Fixed(first, end, false) })
	if !away {
		return sums
	}
	sums = slices.Clone(sums)
	for i, bytes := range l.books.momentsFor(stages) {
		sums[i] -= bytes
	}
	return sums
}

// sumFixed adds up what layers take in training.
func (l *Ledger) sumFixed() {
	l.fixed = make([]int64, len(l.costs)+1)
	for i, k := range l.costs {
		trained := k.ParamBytes - k.FrozenBytes
		l.fixed[i+1] = l.fixed[i] + k.ParamBytes + (trainingBytes-1-plan.MomentVectors)*trained + l.books.momentBytes(i) + k.CopyBytes
	}
}

// LeastFixed is what the whole model takes at least in a pipeline of so many stages, with its
// optimizer state away or not, in the storage that is best for it.
func (b *Books) LeastFixed(stages int, away bool) int64 {
	return b.least(func(l *Ledger) int64 { return l.FixedFor(stages, away)[b.Layers()] })
}

// LeastSaved is what one micro-batch keeps of the whole model at the leanest, in the storage
// that is best for it.
func (b *Books) LeastSaved() int64 {
	return b.least(func(l *Ledger) int64 {
		saved := l.saved[b.Layers()]
		for _, level := range l.levels {
			saved = min(saved, level.saved[b.Layers()])
		}
		return saved
	})
}

// least is the least of the open ledgers, 0 of none.
func (b *Books) least(of func(*Ledger) int64) int64 {
	least := int64(-1)
	for _, l := range b.ledgers {
		if l == nil {
			continue
		}
		if bytes := of(l); least < 0 || bytes < least {
			least = bytes
		}
	}
	return max(0, least)
}
