package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// ordering is the schedule that a run's plans have on their lanes.
type ordering struct {
	spec schedule.Spec
	// copies of the model are on each lane, whatever the schedule: losses depend on it.
	copies int
	// open: the run asks for no schedule, so that the planner may take groups where they end
	// sooner.
	open bool
}

// newOrdering reads a TrainSpec's Schedule, for its model.
func newOrdering(text string, m model.Config) (ordering, error) {
	open := text == ""
	if open {
		text = plan.ScheduleName
	}
	spec, err := schedule.ParseSpec(text)
	if err == nil && spec.Segments() > 1 {
		err = m.CheckSegments(spec.Segments())
	}
	if err != nil {
		return ordering{}, fmt.Errorf("%w: %w", plan.ErrBadInput, err)
	}
	return ordering{spec, spec.Replicas(), open}, nil
}

// plain has the same copies one beside the other on a lane, each as 1F1B. It fits any lane.
func (o ordering) plain() ordering {
	return ordering{spec: schedule.Spec{Kind: plan.ScheduleName}, copies: o.copies}
}

// elastic tells whether warm-ups alone say in which order each seat computes: then what a plan
// keeps and takes has formulas, otherwise it has to be read off its programs.
func (o ordering) elastic() bool { return o.copies == 1 && o.any() }

// any tells whether the ordering fits every lane.
func (o ordering) any() bool { return o.spec.Kind == plan.ScheduleName }

// pipelines lays the copies over a lane.
func (o ordering) pipelines(l plan.ReplicaGroup, first plan.Replica) ([]plan.Pipeline, error) {
	if o.spec.Replicas() == o.copies {
		return l.Pipelines(o.spec, first)
	}
	var pipes []plan.Pipeline
	for i := range o.copies {
		part := l
		from, to := l.Micros*i/o.copies, l.Micros*(i+1)/o.copies
		part.First, part.Micros = l.First+plan.Micro(from), to-from
		more, err := part.Pipelines(o.spec, first+plan.Replica(i))
		if err != nil {
			return nil, err
		}
		pipes = append(pipes, more...)
	}
	return pipes, nil
}

// fits tells why the ordering cannot be had on lanes of a shape, for a model of so many
// layers and a step of so many micro-batches.
func (o ordering) fits(s shape, layers, micros int) error {
	if o.any() {
		return nil
	}
	for _, share := range []int{micros / s.replicas, (micros + s.replicas - 1) / s.replicas} {
		lane := plan.ReplicaGroup{Micros: share}
		for i := range s.stages {
			lane.Workers = append(lane.Workers, plan.WorkerID{Device: "any"})
			lane.Layers = append(lane.Layers, layers*(i+1)/s.stages-layers*i/s.stages)
		}
		if slices.Contains(plan.WarmUps, o.spec.String()) {
			lane.Warmups = schedule.DepthWarmups(s.stages, 1)
		}
		if _, err := o.pipelines(lane, 0); err != nil {
			return fmt.Errorf("%s: %w", plan.Count(s.stages, "device"), err)
		}
	}
	return nil
}

// CheckSchedule tells whether a run can have a schedule on so many lanes of so many devices;
// 0 leaves either to the planner. The error says what does not fit.
func CheckSchedule(text string, lanes, stages int, m model.Config, micros int) error {
	o, err := newOrdering(text, m)
	if err != nil || stages == 0 {
		return err
	}
	return o.fits(shape{max(lanes, 1), stages}, m.Layers(), micros)
}

// deepened is the pipe, cut so that each unit has a layer for each chunk.
func (c *cluster) deepened(p *pipe) (*pipe, error) {
	var layers []int
	for s := range p.units {
		first, end := p.layers(s)
		layers = append(layers, end-first)
	}
	deep := deepen(layers, c.order.spec.Chunks())
	if slices.Equal(deep, layers) {
		return p, nil
	}
	ends := make([]int, len(deep))
	for s, n := range deep {
		ends[s] = n + ends[max(s-1, 0)]
	}
	return c.newPipe(p.units, ends)
}

// deepen moves layers to seats that have fewer than there are chunks, one by one from those
// that have most, so that every chunk has one.
func deepen(layers []int, chunks int) []int {
	layers = slices.Clone(layers)
	for {
		least, most := slices.Index(layers, slices.Min(layers)), slices.Index(layers, slices.Max(layers))
		if layers[least] >= chunks || layers[most] <= chunks {
			return layers
		}
		layers[least]++
		layers[most]--
	}
}
