package planner

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/layout"
	"pnode/planner/plan"
)

// layoutOf is a plan as far as the plan itself says. Errors wrap ErrBadPlan.
func (c *cluster) layoutOf(p plan.Plan) (*layout.Layout, error) {
	list, err := c.programsOf(p)
	if err != nil {
		return nil, err
	}
	l := &layout.Layout{Programs: list}
	seats := p.Workers()
	for r, pipe := range p.Replicas {
		row := make([]layout.Cell, len(pipe.Stages))
		for s, pl := range pipe.Stages {
			k := layout.Cell{
				Unit: c.find(pl.Peer, pl.Device), First: pl.Layers.First, End: pl.Layers.End, Worker: slices.Index(seats, pl.Worker()),
				Shares: p.Shares(plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)}), Ahead: pl.Ahead, Offload: pl.Offload,
			}
			if k.Unit < 0 {
				return nil, fmt.Errorf("%w: %s of %s is not there", plan.ErrBadPlan, pl.Device, pl.Peer)
			}
			if pl.Recompute != "" {
				if k.Levels, err = pl.Recompute.Expand(k.Len()); err != nil {
					return nil, err
				}
			}
			k.Use = list.Use(k.Worker, plan.Replica(r), plan.Stage(s))
			row[s] = k
		}
		codecs, err := pipe.Codecs()
		if err != nil {
			return nil, err
		}
		l.Rows, l.Codecs, l.Micros = append(l.Rows, row), append(l.Codecs, codecs), append(l.Micros, pipe.Micros)
	}
	return l, nil
}

// programsOf are a plan's without what is ahead of gradients, remembered by what they depend on:
// not which seats there are.
func (c *cluster) programsOf(p plan.Plan) (schedule.Schedule, error) {
	seats := p.Workers()
	key := fmt.Sprint(p.Schedule, p.Sharded)
	for _, pipe := range p.Replicas {
		key += fmt.Sprint(" ", pipe.FirstMicro, pipe.Micros, pipe.Warmups)
		for _, pl := range pipe.Stages {
			key += fmt.Sprint(" ", slices.Index(seats, pl.Worker()))
		}
	}
	if list, ok := c.programs[key]; ok {
		return list, nil
	}
	list, err := p.BackwardPrograms()
	if err != nil {
		return list, fmt.Errorf("%w: %w", plan.ErrBadPlan, err)
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
	_, narrowest := c.in.Run.Train.Codec.Bounds()
	for _, codecs := range l.Codecs {
		for b := range codecs {
			codecs[b] = narrowest
		}
	}
	if err := c.site.Fit(l); err != nil {
		return c.noLayout(err)
	}
	k.layout = l
	return nil
}

// noLayout puts names to a layout's refusal.
func (c *cluster) noLayout(err error) error {
	var no *layout.NoFit
	if !errors.As(err, &no) {
		return err
	}
	u := c.units[no.Unit]
	if no.Host {
		return fmt.Errorf("%w: %s", ErrNoFit, u.hostText("its stages", no.NeedBytes))
	}
	var stages, inFlight []string
	for i, at := range no.At {
		stages = append(stages, fmt.Sprintf("replica %d stage %d", at.Replica, at.Stage))
		inFlight = append(inFlight, fmt.Sprint(no.InFlight[i]))
	}
	return fmt.Errorf("%w: device %s of %s would need %s for %s under %s, which keeps %s micro-batches there, %s are free; take a schedule that keeps fewer (1f1b), add a node, or use a smaller model or a smaller micro-batch",
		ErrNoFit, u.device, u.node, plan.Size(no.NeedBytes), strings.Join(stages, " and "), c.order.spec, strings.Join(inFlight, " and "), plan.Size(no.FreeBytes))
}

// inFlight is by seat about how many micro-batches a lane's programs keep of its layers.
func (c *cluster) inFlight(seats, micros int) ([]int, error) {
	chunks := c.order.spec.Chunks()
	lane := plan.ReplicaGroup{Micros: micros, Layers: slices.Repeat([]int{chunks}, seats)}
	for i := range seats {
		lane.Workers = append(lane.Workers, plan.WorkerID{Device: strconv.Itoa(i)})
	}
	if slices.Contains(plan.WarmUps, c.order.spec.String()) {
		lane.Warmups = schedule.DepthWarmups(seats, 1)
	}
	p := plan.Plan{Schedule: c.order.spec.String()}
	var err error
	if p.Replicas, err = c.order.pipelines(lane, 0); err != nil {
		return nil, err
	}
	list, err := c.programsOf(p)
	if err != nil {
		return nil, err
	}
	sums := make([]int, seats)
	for _, seat := range p.Workers() {
		i, _ := strconv.Atoi(seat.Device)
		for _, at := range p.StagesOf(seat) {
			sums[i] += list.Use(list.Holder(at.Replica, at.Stage), at.Replica, at.Stage).Slots
		}
		sums[i] = (sums[i] + chunks - 1) / chunks
	}
	return sums, nil
}
