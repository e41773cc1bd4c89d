package planner

import (
	"fmt"
	"math"
	"strings"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
)

// makeFit has a unit recompute no more than it takes for its stages to fit beside a reserve.
// The error says which do not.
func (c *cluster) makeFit(l *layout, unit int, reserve int64) error {
	if l.need == nil {
		l.need = make([]int64, len(c.units))
	}
	if err := c.hostFits(l, unit); err != nil {
		return err
	}
	at := l.cellsOn(unit)
	room := c.stageRoom(unit) - reserve
	for free, more := int64(0), c.leanCount() > 0; ; {
		l.need[unit] = 0
		for _, h := range at {
			l.need[unit] += c.cellBytes(*l.cell(h))
		}
		over := l.need[unit] - room
		switch {
		case over <= 0:
			return nil
		case !more:
			return c.noRoom(l, unit, at, room)
		}
		free += over
		more = c.recomputeCells(l, at, free)
	}
}

// recomputeCells frees so many bytes of the stages of one unit, by what their costs say; false
// where all is recomputed.
func (c *cluster) recomputeCells(l *layout, at []Holding, free int64) bool {
	var layers []elastic.Layer
	for _, h := range at {
		k := l.cell(h)
		for _, layer := range c.choices(k.unit, k.first, k.end) {
			for i := range layer {
				layer[i].FreedBytes *= int64(k.use.Slots)
			}
			layers = append(layers, layer)
		}
	}
	levels, enough := elastic.Free(layers, free)
	if levels == nil {
		return false // there is nothing to free
	}
	for _, h := range at {
		k := l.cell(h)
		k.levels, levels = levels[:k.end-k.first:k.end-k.first], levels[k.end-k.first:]
	}
	return enough
}

func (c *cluster) noRoom(l *layout, unit int, at []Holding, room int64) error {
	var stages, inFlight []string
	for _, h := range at {
		stages = append(stages, fmt.Sprintf("replica %d stage %d", h.Replica, h.Stage))
		inFlight = append(inFlight, fmt.Sprint(l.cell(h).use.Slots))
	}
	u := c.units[unit]
	return fmt.Errorf("%w: device %s of %s would need %s for %s under %s, which keeps %s micro-batches there, %s are free; take a schedule that keeps fewer (1f1b), add a node, or use a smaller model or a smaller micro-batch",
		ErrNoFit, u.device, u.peer, cost.Size(l.need[unit]), strings.Join(stages, " and "), c.order.spec, strings.Join(inFlight, " and "), cost.Size(room))
}

// stageRoom is what a unit has for its stages.
func (c *cluster) stageRoom(unit int) int64 {
	return c.units[unit].free + c.ledger(unit).passBytes - max(0, c.in.NodeBytes)
}

// stackKey is what a stage's memory depends on beside its slots.
type stackKey struct {
	first, end int
	ahead      int
	split      bool
	offload    bool
	shares     string
	levels     Levels
	storage    model.Storage
}

// stackSize is fixed bytes of a device and those of each slot, and bytes in host memory.
type stackSize struct{ fixed, slot, host int64 }

// cellBytes is what a stage takes of its device.
func (c *cluster) cellBytes(k cell) int64 {
	size := c.cellSize(k)
	return size.fixed + int64(k.use.Slots)*size.slot
}

// cellSize is what a stage takes.
func (c *cluster) cellSize(k cell) stackSize {
	key := stackKey{k.first, k.end, k.ahead, k.use.Split, k.offload, fmt.Sprint(k.shares), JoinLevels(k.levels), c.units[k.unit].storage}
	size, ok := c.stacks[key]
	if !ok {
		size = c.stackSize(k)
		c.stacks[key] = size
	}
	return size
}

// stackSize asks the model's stack; costs that come without a model are added up.
func (c *cluster) stackSize(k cell) stackSize {
	run := c.in.Run
	if run.Model.Validate() != nil || run.Model.Layers() != c.layers() {
		l := c.ledger(k.unit)
		saved := l.saved[k.end] - l.saved[k.first]
		for i, level := range k.levels {
			saved -= l.costs[k.first+i].SavedBytes - l.costs[k.first+i].Lean[level].SavedBytes
		}
		size := stackSize{fixed: c.fixedIn(k.unit, k.first, k.end, k.offload) + l.passBytes - max(0, c.in.NodeBytes), slot: saved + c.slotBytes}
		for i, level := range c.levelsOf(k)[k.end-k.first-k.ahead:] {
			size.fixed += c.leanOf(k.unit, k.end-k.ahead+i, level).AheadBytes
		}
		if k.offload {
			size.host = c.hostIn(k.first, k.end)
		}
		return size
	}
	place := Placement{Layers: LayerRange{k.first, k.end}, Recompute: JoinLevels(k.levels), Ahead: k.ahead, Offload: k.offload, Storage: c.units[k.unit].storage}
	var total [3]int64
	var host int64
	for slots := 1; slots <= 2; slots++ {
		m, err := run.Stack(place, k.shares, schedule.Use{Slots: slots, Split: k.use.Split}).Memory()
		if err != nil {
			return stackSize{fixed: math.MaxInt64 / 4}
		}
		total[slots], host = m.Total(), m.Host
	}
	each := total[2] - total[1]
	return stackSize{total[1] - each, each, host}
}
