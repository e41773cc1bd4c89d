package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/partition"
)

// isAway tells whether a unit keeps the optimizer state of its stages in the memory of its node.
func (c *cluster) isAway(unit int) bool { return c.away != nil && c.away[unit] }

// awayIn are the units that keep it there under a plan; nil for none.
func (c *cluster) awayIn(p Plan) (away []bool) {
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			if u := c.find(place.Peer, place.Device); place.Offload && u >= 0 {
				if away == nil {
					away = make([]bool, len(c.units))
				}
				away[u] = true
			}
		}
	}
	return away
}

// momentsIn is the optimizer state of the layers [first,end) of one stage, in bytes.
func (c *cluster) momentsIn(first, end int) int64 {
	bytes := c.moments[end] - c.moments[first]
	if first == 0 && end == c.layers() { // both ends of a tied embedding have it once
		bytes -= momentVectors * 4 * int64(c.in.Run.Model.TiedGradLen()) / int64(c.shares(0))
	}
	return max(0, bytes)
}

// momentsFor are the prefixes of that, as those of fixedFor.
func (c *cluster) momentsFor(stages int) []int64 {
	if stages > 1 {
		return c.moments
	}
	sums := slices.Clone(c.moments)
	sums[c.layers()] = c.momentsIn(0, c.layers())
	return sums
}

// alignedMoments is what the tensors of a layer's state may take beyond their sizes.
const alignedMoments = 64 * momentVectors

// hostIn is what the layers [first,end) of one stage take of host memory where their state is away.
func (c *cluster) hostIn(first, end int) int64 {
	return c.momentsIn(first, end) + alignedMoments*int64(end-first)
}

// divide gives a device that keeps optimizer state in host memory its own sums of what layers of
// so many stages take, and those of the host.
func (c *cluster) divide(d *partition.Device, unit, stages int) {
	d.Fixed, d.Beside, d.BesideBytes = c.ofCopies(c.fixedFor(c.ledger(unit), stages, true)), slices.Clone(c.momentsFor(stages)), c.units[unit].host
	for l := range d.Beside {
		d.Beside[l] += alignedMoments * int64(l)
	}
	d.Beside = c.ofCopies(d.Beside)
	d.FreeBytes -= int64(c.order.copies) * c.windowBytes(0, c.layers())
}

// windowBytes is the room on a device through which the state of a stage passes.
func (c *cluster) windowBytes(first, end int) int64 {
	return model.WindowBytes(momentVectors, c.momentsIn(first, end)/(4*momentVectors))
}

// crossing is what copies of a stage's state take to a unit, and back at the same time.
func (c *cluster) crossing(unit, first, end int) schedule.Nanos {
	return cost.Duration(c.momentsIn(first, end), c.units[unit].copies)
}

// offloaders are those of some units that may keep optimizer state in host memory; nil for none.
func (c *cluster) offloaders(units []int) (away []bool) {
	for _, u := range units {
		if c.units[u].copies > 0 && c.units[u].host > 0 {
			if away == nil {
				away = make([]bool, len(c.units))
			}
			away[u] = true
		}
	}
	return away
}

// arrange makes a candidate of units in order. Units that have memory of their own keep the
// optimizer state of their stages in that of their node if this brings what memory keeps others
// from: to fit at all or, of no very many units, a shorter step for all that the copies take.
func (c *cluster) arrange(s shape, order []int) (*candidate, error) {
	here, err := c.arrangeParts(s, order)
	away := c.offloaders(order)
	if away == nil || err == nil && (len(c.units) > settleUpTo || !c.of(here).wantsMemory(here)) {
		return here, err
	}
	there, fail := c.keeping(c.parts, away).arrangeParts(s, order)
	if err == nil && (fail != nil || there.estimate >= here.estimate) {
		return here, nil
	}
	return there, fail
}

// trimOffload has each unit of a candidate keep its optimizer state where the step is no longer
// with it there.
func (c *cluster) trimOffload(k *candidate) *candidate {
	simulated := k.simulated
	for u, away := range k.away {
		if !away {
			continue
		}
		fewer := slices.Clone(k.away)
		fewer[u] = false
		other, err := c.rekept(k, k.sharded, fewer)
		if err == nil && simulated {
			err = other.simulate()
		}
		if err == nil && other.step() <= k.step() {
			k = other
		}
	}
	return k
}

// offloadText tells what stages of a unit keep in host memory; empty for nothing.
func (c *cluster) offloadText(unit int, stages ...cell) string {
	bytes, took := int64(0), schedule.Nanos(0)
	for _, at := range stages {
		bytes, took = bytes+c.momentsIn(at.first, at.end), took+c.crossing(unit, at.first, at.end)
	}
	if !c.isAway(unit) {
		return ""
	}
	return fmt.Sprintf(", keeps %s of optimizer state in host memory to fit, %s a step for copies", cost.Size(bytes), cost.Time(took))
}

// hostFits wants that a unit's node has the memory for what stages keep there.
func (c *cluster) hostFits(l *layout, unit int) error {
	need := int64(0)
	for _, h := range l.cellsOn(unit) {
		need += c.cellSize(*l.cell(h)).host
	}
	if u := c.units[unit]; need > u.host {
		return fmt.Errorf("%w: %s", ErrNoFit, u.hostText("its stages", need))
	}
	return nil
}

// hostText says that a node lacks memory for the optimizer state of something.
func (u unit) hostText(of string, need int64) string {
	return fmt.Sprintf("%s of %s would keep the optimizer state of %s in the memory of its node, %s, where %s are free; add a node, or free memory there",
		u.device, u.peer, of, cost.Size(need), cost.Size(u.host))
}
