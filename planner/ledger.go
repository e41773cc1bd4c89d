package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/model"
)

// trainingBytes is what a parameter's four bytes take in training: parameter, gradient
// and AdamW's two moments, all float32.
const trainingBytes = 4

// ledger is what the model's layers take of a device on which stages have one storage. Sums are
// prefixes over layers in bytes.
type ledger struct {
	storage model.Storage
	costs   []model.LayerCost
	// fixed is what layers take in training, saved what a micro-batch in flight keeps.
	fixed, saved []int64
	passBytes    int64 // of each stage, whatever the layers and the slots, with the node's own
	lean         []leanLayers
}

// ledger is a unit's.
func (c *cluster) ledger(unit int) *ledger { return c.ledgers[c.units[unit].storage] }

// sumLayers adds up what does not depend on storage: between layers all is float32.
func (c *cluster) sumLayers() {
	n := len(c.in.Costs)
	c.params, c.boundary = make([]int64, n+1), make([]int64, n)
	for l, k := range c.in.Costs {
		c.params[l+1] = c.params[l] + k.ParamBytes
		c.boundary[l] = k.BoundaryBytes
		c.activationBytes = max(c.activationBytes, k.BoundaryBytes)
	}
	c.sumMoments()
	// A slot also holds the stage's input, and the gradients of input and output.
	c.slotBytes = 3 * c.activationBytes
	if run := c.in.Run; run.Train.DocumentMask { // and where documents begin
		c.slotBytes += 4 * int64(run.Train.MicroBatch) * int64(run.Model.Context)
	}
}

// openLedger is the one of a storage, made when a unit first has it.
func (c *cluster) openLedger(s model.Storage) (*ledger, error) {
	if c.ledgers[s] != nil {
		return c.ledgers[s], nil
	}
	costs := c.in.Costs
	if s != model.StorageF32 {
		costs = c.in.HalfCosts
	}
	if len(costs) != c.layers() {
		return nil, fmt.Errorf("%w: %w", ErrBadInput, errNoHalfCosts)
	}
	l := &ledger{storage: s, costs: c.in.Run.Train.Recompute.fixedCosts(costs), saved: make([]int64, c.layers()+1)}
	c.ledgers[s] = l
	l.fixed = c.sumFixed(l.costs)
	var pass, halves, tables int64
	for i, k := range l.costs {
		l.saved[i+1] = l.saved[i] + k.SavedBytes
		pass, halves = max(pass, k.PassBytes-k.PassHalfBytes), max(halves, k.PassHalfBytes)
		tables = max(tables, k.TableBytes)
	}
	// The passes of all layers share what one needs, and two gradients of the stream.
	pass += 2 * c.activationBytes
	l.lean = c.leanLevels(l.costs, pass+halves)
	l.passBytes = max(0, c.in.NodeBytes) + pass + halves + tables
	return l, nil
}

// sumFixed adds up what layers take in training.
func (c *cluster) sumFixed(costs []model.LayerCost) []int64 {
	fixed := make([]int64, len(costs)+1)
	for l, k := range costs {
		trained := k.ParamBytes - k.FrozenBytes
		fixed[l+1] = fixed[l] + k.ParamBytes + (trainingBytes-1-momentVectors)*trained + c.momentBytes(l) + k.CopyBytes
	}
	return fixed
}

// sumMoments adds up the optimizer's state.
func (c *cluster) sumMoments() {
	c.moments = make([]int64, c.layers()+1)
	for l := range c.layers() {
		c.moments[l+1] = c.moments[l] + c.momentBytes(l)
	}
}

// resum gives the cluster sums of its own, for its parts of the optimizer state.
func (c *cluster) resum() {
	c.sumMoments()
	c.ledgers = slices.Clone(c.ledgers)
	for s, l := range c.ledgers {
		if l != nil {
			other := *l
			other.fixed = c.sumFixed(l.costs)
			c.ledgers[s] = &other
		}
	}
}

// fixedFor are the prefixes of what layers take of a device in a pipeline of so many stages, with
// their optimizer state away or not. One stage alone has both ends of a tied embedding and holds
// it, with its moments, once.
func (c *cluster) fixedFor(l *ledger, stages int, away bool) []int64 {
	if stages > 1 && !away {
		return l.fixed
	}
	sums := slices.Clone(l.fixed)
	if stages == 1 {
		sums[c.layers()] = c.fixedOf(l, 0, c.layers(), false)
	}
	if away {
		for i, bytes := range c.momentsFor(stages) {
			sums[i] -= bytes
		}
	}
	return sums
}

// fixedIn is what the layers [first,end) of one stage take of a unit, with their optimizer state
// away or not.
func (c *cluster) fixedIn(unit, first, end int, away bool) int64 {
	return c.fixedOf(c.ledger(unit), first, end, away)
}

func (c *cluster) fixedOf(l *ledger, first, end int, away bool) int64 {
	fixed := l.fixed[end] - l.fixed[first]
	if away {
		fixed += c.windowBytes(first, end) - c.momentsIn(first, end)
	}
	if first == 0 && end == c.layers() {
		// Parameters and moments are there once, the gradient of each end is not.
		tied, trained := int64(c.in.Run.Model.TiedLen()), int64(c.in.Run.Model.TiedGradLen())
		fixed -= 4*tied + momentVectors*4*trained/int64(c.shares(0))
		if l.storage != model.StorageF32 {
			fixed -= 2 * tied
		}
	}
	return fixed
}

// leastFixed is what the whole model takes at least in a pipeline of so many stages, with its
// optimizer state away or not, leastSaved what one micro-batch keeps of it at the leanest, each in the storage that is best for it.
func (c *cluster) leastFixed(stages int, away bool) int64 {
	least := int64(-1)
	for _, l := range c.ledgers {
		if l == nil {
			continue
		}
		if fixed := c.fixedFor(l, stages, away)[c.layers()]; least < 0 || fixed < least {
			least = fixed
		}
	}
	return max(0, least)
}

func (c *cluster) leastSaved() int64 {
	least := int64(-1)
	for _, l := range c.ledgers {
		if l == nil {
			continue
		}
		saved := l.saved[c.layers()]
		for _, lean := range l.lean {
			saved = min(saved, lean.saved[c.layers()])
		}
		if least < 0 || saved < least {
			least = saved
		}
	}
	return max(0, least)
}
