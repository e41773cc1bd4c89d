package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
)

// cell is a stage of a replica on a unit.
type cell struct {
	unit, first, end int
	// worker is the number of the unit's program.
	worker int
	use    schedule.Use
	share  model.Share       // of the optimizer state
	levels []model.Recompute // by layer; nil: nothing is computed again
}

// layout is a plan under a schedule whose order does not follow from warm-ups alone: what its
// programs keep, and how long they take. Both come from the programs that the workers run.
type layout struct {
	rows   [][]cell       // by replica and stage
	codecs [][]cost.Codec // by replica and boundary
	list   schedule.Schedule
	micros []int          // by replica
	need   []int64        // by unit, bytes beside the node's own
	end    schedule.Nanos // of the last backward
	// exposed is by replica and boundary the end with the next more exact codec there.
	exposed map[[2]int]schedule.Nanos
}

// layoutOf is a plan as far as the plan itself says. Errors wrap ErrBadPlan.
func (c *cluster) layoutOf(p Plan) (*layout, error) {
	list, err := c.programsOf(p)
	if err != nil {
		return nil, err
	}
	l := &layout{list: list}
	seats := p.Seats()
	for r, pipe := range p.Replicas {
		row := make([]cell, len(pipe.Stages))
		for s, pl := range pipe.Stages {
			k := cell{unit: c.find(pl.Peer, pl.Device), first: pl.Layers.First, end: pl.Layers.End, worker: slices.Index(seats, pl.Seat()), share: p.Share(Replica(r))}
			if k.unit < 0 {
				return nil, fmt.Errorf("%w: %s of %s is not there", ErrBadPlan, pl.Device, pl.Peer)
			}
			if pl.Recompute != "" {
				if k.levels, err = pl.Recompute.Expand(k.end - k.first); err != nil {
					return nil, err
				}
			}
			k.use = schedule.UseOf(list.Workers[k.worker], Replica(r), Stage(s))
			row[s] = k
		}
		codecs, err := pipe.codecs()
		if err != nil {
			return nil, err
		}
		l.rows, l.codecs, l.micros = append(l.rows, row), append(l.codecs, codecs), append(l.micros, pipe.Micros)
	}
	return l, nil
}

// programsOf are a plan's, remembered by what they depend on: not which seats there are.
func (c *cluster) programsOf(p Plan) (schedule.Schedule, error) {
	seats := p.Seats()
	key := fmt.Sprint(p.Schedule, p.Sharded)
	for _, pipe := range p.Replicas {
		key += fmt.Sprint(" ", pipe.FirstMicro, pipe.Micros, pipe.Warmups)
		for _, pl := range pipe.Stages {
			key += fmt.Sprint(" ", slices.Index(seats, pl.Seat()))
		}
	}
	if list, ok := c.programs[key]; ok {
		return list, nil
	}
	list, err := p.Programs()
	if err != nil {
		return list, err
	}
	c.programs[key] = list
	return list, nil
}

// arrangeLayout makes a candidate's layout: what has to be recomputed for it to fit, and when
// it ends. Errors wrap ErrNoFit or ErrBadPlan.
func (c *cluster) arrangeLayout(k *candidate) error {
	plan, err := c.skeleton(k)
	if err != nil {
		return err
	}
	l, err := c.layoutOf(plan)
	if err != nil {
		return err
	}
	_, narrowest := c.in.Run.Train.Codec.bounds()
	for _, codecs := range l.codecs {
		for b := range codecs {
			codecs[b] = narrowest
		}
	}
	for u := range c.units {
		if err := c.makeFit(l, u); err != nil {
			return err
		}
	}
	k.layout = l
	return c.timeLayout(l)
}

// timeLayout runs the programs.
func (c *cluster) timeLayout(l *layout) (err error) {
	l.end, err = schedule.Makespan(l.list, c.timing(l))
	return err
}

// inFlight is by seat about how many micro-batches a lane's programs keep of its layers.
func (c *cluster) inFlight(seats, micros int) ([]int, error) {
	chunks := c.order.spec.Chunks()
	lane := Lane{Micros: micros, Layers: slices.Repeat([]int{chunks}, seats)}
	for i := range seats {
		lane.Seats = append(lane.Seats, Seat{Device: strconv.Itoa(i)})
	}
	if slices.Contains(warmUps, c.order.spec.String()) {
		lane.Warmups = schedule.DepthWarmups(seats, 1)
	}
	p := Plan{Schedule: c.order.spec.String()}
	var err error
	if p.Replicas, err = c.order.pipelines(lane, 0); err != nil {
		return nil, err
	}
	list, err := c.programsOf(p)
	if err != nil {
		return nil, err
	}
	sums := make([]int, seats)
	for _, seat := range p.Seats() {
		i, _ := strconv.Atoi(seat.Device)
		for _, at := range p.Holdings(seat) {
			sums[i] += schedule.UseOf(list.Workers[list.Holder(at.Replica, at.Stage)], at.Replica, at.Stage).Slots
		}
		sums[i] = (sums[i] + chunks - 1) / chunks
	}
	return sums, nil
}

// timing is what passes and messages of a layout take. Reductions and updates come behind.
func (c *cluster) timing(l *layout) (t schedule.Timing) {
	for r, row := range l.rows {
		costs := schedule.Costs{Stages: make([]schedule.StageTime, len(row))}
		for s, k := range row {
			costs.Stages[s] = c.cellTime(k)
			if s > 0 {
				from, to := row[s-1].unit, k.unit
				bytes := l.codecs[r][s-1].Bytes(elements(c.boundary[k.first-1]))
				costs.Boundaries = append(costs.Boundaries, schedule.Boundary{Activation: c.link(from, to).Hop(bytes), Gradient: c.link(to, from).Hop(bytes)})
			}
		}
		t.Replicas = append(t.Replicas, costs)
	}
	return t
}

// cellTime is what a stage takes per micro-batch. Where its backward is split, what the weight
// gradient alone reads is computed again there, and a whole block and the head's logits twice.
func (c *cluster) cellTime(k cell) schedule.StageTime {
	u := c.units[k.unit]
	t := u.times[k.end].Sub(u.times[k.first])
	out := schedule.StageTime{Forward: t.Forward, Input: t.Input, Weight: t.Weight}
	for l := k.first; l < k.end; l++ {
		if k.use.Split {
			out.Weight += cost.Duration(c.in.Costs[l].SplitFLOPs, u.speed.MatMulFLOPS)
		}
		if k.levels == nil || k.levels[l-k.first] == model.RecomputeNothing {
			continue
		}
		again := u.speed.Again(c.in.Costs[l], k.levels[l-k.first])
		if k.use.Split {
			out.Weight += again
		}
		if !k.use.Split || k.levels[l-k.first] == model.RecomputeBlock {
			out.Input += again
		}
	}
	return out
}

// cellsOn are the stages of a unit, by replica and stage.
func (l *layout) cellsOn(unit int) (at []Holding) {
	for r, row := range l.rows {
		for s, k := range row {
			if k.unit == unit {
				at = append(at, Holding{Replica(r), Stage(s)})
			}
		}
	}
	return at
}

func (l *layout) cell(at Holding) *cell { return &l.rows[at.Replica][at.Stage] }

// makeFit has a unit recompute no more than it takes for its stages to fit. The error says
// which do not.
func (c *cluster) makeFit(l *layout, unit int) error {
	if l.need == nil {
		l.need = make([]int64, len(c.units))
	}
	at := l.cellsOn(unit)
	room := c.stageRoom(unit)
	for free, more := int64(0), len(c.lean) > 0; ; {
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
	return c.units[unit].free + c.passBytes - max(0, c.in.NodeBytes)
}

// stackKey is what a stage's memory depends on beside its slots.
type stackKey struct {
	first, end int
	split      bool
	share      model.Share
	levels     Levels
}

// stackSize is fixed bytes and those of each slot.
type stackSize struct{ fixed, slot int64 }

// cellBytes is what a stage takes of its device.
func (c *cluster) cellBytes(k cell) int64 {
	key := stackKey{k.first, k.end, k.use.Split, k.share, JoinLevels(k.levels)}
	size, ok := c.stacks[key]
	if !ok {
		size = c.stackSize(k)
		c.stacks[key] = size
	}
	return size.fixed + int64(k.use.Slots)*size.slot
}

// stackSize asks the model's stack; costs that come without a model are added up.
func (c *cluster) stackSize(k cell) stackSize {
	run := c.in.Run
	if run.Model.Validate() != nil || run.Model.Layers() != c.layers() {
		saved := c.saved[k.end] - c.saved[k.first]
		for i, level := range k.levels {
			saved -= c.in.Costs[k.first+i].SavedBytes - c.in.Costs[k.first+i].Lean[level].SavedBytes
		}
		return stackSize{c.fixedIn(k.first, k.end) + c.passBytes - max(0, c.in.NodeBytes), saved + c.slotBytes}
	}
	place := Placement{Layers: LayerRange{k.first, k.end}, Recompute: JoinLevels(k.levels)}
	var total [3]int64
	for slots := 1; slots <= 2; slots++ {
		m, err := run.Stack(place, k.share, schedule.Use{Slots: slots, Split: k.use.Split}).Memory()
		if err != nil {
			return stackSize{fixed: math.MaxInt64 / 4}
		}
		total[slots] = m.Total()
	}
	each := total[2] - total[1]
	return stackSize{total[1] - each, each}
}

// widenLayout takes the most exact codecs that do not lengthen the step, as elastic.Widen does
// for a period.
func (c *cluster) widenLayout(k *candidate) error {
	l := k.layout
	most := l.end + l.end*elastic.ExposedPercent/100
	l.exposed = map[[2]int]schedule.Nanos{}
	for _, at := range c.fastestFirst(l) {
		if err := c.widenBoundary(l, at, most); err != nil {
			return err
		}
	}
	if err := c.timeLayout(l); err != nil {
		return err
	}
	if err := c.estimate(k); err != nil {
		return err
	}
	return k.simulate()
}

// widenBoundary gives a boundary (replica, stage before) the most exact codec with which the
// layout ends in time.
func (c *cluster) widenBoundary(l *layout, at [2]int, most schedule.Nanos) error {
	widest, narrowest := c.in.Run.Train.Codec.bounds()
	codec := &l.codecs[at[0]][at[1]]
	for *codec = widest; *codec < narrowest; *codec++ {
		if err := c.timeLayout(l); err != nil {
			return err
		}
		if l.end <= most {
			return nil
		}
		l.exposed[at] = l.end
	}
	return nil
}

// fastestFirst are the boundaries (replica, stage before) by what a message takes.
func (c *cluster) fastestFirst(l *layout) (order [][2]int) {
	transfers := map[[2]int]schedule.Nanos{}
	for r, costs := range c.timing(l).Replicas {
		for b, boundary := range costs.Boundaries {
			at := [2]int{r, b}
			order, transfers[at] = append(order, at), max(boundary.Activation.Transfer, boundary.Gradient.Transfer)
		}
	}
	slices.SortStableFunc(order, func(a, b [2]int) int { return cmp.Compare(transfers[a], transfers[b]) })
	return order
}
