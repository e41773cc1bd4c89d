package planner

import (
	"fmt"
	"slices"
	"strconv"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// cell is a stage of a replica on a unit.
type cell struct {
	unit, first, end int
	// worker is the number of the unit's program.
	worker int
	use    schedule.Use
	shares []model.Share     // by layer, of the optimizer state; nil: all of it
	levels []model.Recompute // by layer; nil: nothing is computed again
	// offload keeps the optimizer state in host memory.
	offload bool
	// ahead of the last layers are computed again before their gradient is there.
	ahead int
	// seen is what the stage was seen to take per micro-batch, and its update, 0 where that was not
	// seen; nil where neither was.
	seen *schedule.StageTime
}

// layout is a plan under a schedule whose order does not follow from warm-ups alone: what its
// programs keep, and how long they take. Both come from the programs that the workers run.
type layout struct {
	rows   [][]cell          // by replica and stage
	codecs [][]cost.Codec    // by replica and boundary
	list   schedule.Schedule // with nothing computed again ahead of a gradient
	micros []int             // by replica
	need   []int64           // by unit, bytes beside the node's own
	end    schedule.Nanos    // of the last backward
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
			k := cell{unit: c.find(pl.Peer, pl.Device), first: pl.Layers.First, end: pl.Layers.End, worker: slices.Index(seats, pl.Seat()), shares: p.Shares(Holding{Replica(r), Stage(s)}), ahead: pl.Ahead, offload: pl.Offload}
			if k.unit < 0 {
				return nil, fmt.Errorf("%w: %s of %s is not there", ErrBadPlan, pl.Device, pl.Peer)
			}
			if pl.Recompute != "" {
				if k.levels, err = pl.Recompute.Expand(k.end - k.first); err != nil {
					return nil, err
				}
			}
			k.use = list.Use(k.worker, Replica(r), Stage(s))
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

// programsOf are a plan's without what is ahead of gradients, remembered by what they depend on:
// not which seats there are.
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
	list, err := p.programs()
	if err != nil {
		return list, fmt.Errorf("%w: %w", ErrBadPlan, err)
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
		if err := c.makeFit(l, u, 0); err != nil {
			return err
		}
	}
	k.layout = l
	return c.useWaits(l)
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
			sums[i] += list.Use(list.Holder(at.Replica, at.Stage), at.Replica, at.Stage).Slots
		}
		sums[i] = (sums[i] + chunks - 1) / chunks
	}
	return sums, nil
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
