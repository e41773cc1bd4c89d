package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/founding"
	"pnode/planner/plan"
)

// ordering is the schedule of plans on each of their replica groups.
type ordering struct {
	spec schedule.Spec
	// copies of the model are on each replica group, whatever the schedule: losses depend on it.
	copies int
	// open reports that the run asks for no schedule: the planner may take another kind where that ends sooner.
	open bool
	// split reports that the run asks for split backwards in the orders that suit its links: what is cut in 1F1B has
	// them where steps are short enough to look for some.
	split bool
}

// newOrdering reads a TrainSpec's Schedule, for its model. Errors wrap schedule.ErrBadSpec or
// model.ErrBadConfig.
func newOrdering(text string, m model.Config) (ordering, error) {
	open := text == ""
	split := text == splitKind
	if open || split {
		text = plan.ScheduleName
	}
	spec, err := schedule.ParseSpec(text)
	if err == nil && spec.Segments() > 1 {
		err = m.CheckSegments(spec.Segments())
	}
	if err != nil {
		return ordering{}, err
	}
	return ordering{spec, spec.Replicas(), open, split}, nil
}

// elastic reports whether warm-ups alone say in which order each worker computes. Then memory and
// time of a plan have formulas, otherwise they are read off its programs.
func (o ordering) elastic() bool { return o.copies == 1 && o.any() }

// any reports whether the ordering fits every replica group.
func (o ordering) any() bool { return o.spec.Kind == plan.ScheduleName }

// pipelines lays the copies over a replica group.
func (o ordering) pipelines(l plan.ReplicaGroup, first plan.Replica) ([]plan.Pipeline, error) {
	if o.spec.Replicas() == o.copies {
		return l.Pipelines(o.spec, first)
	}
	var pipes []plan.Pipeline
	for i := range o.copies {
		part := l
		part.First, part.Micros = l.Part(i, o.copies)
		more, err := part.Pipelines(o.spec, first+plan.Replica(i))
		if err != nil {
			return nil, err
		}
		pipes = append(pipes, more...)
	}
	return pipes, nil
}

// fits returns why a shape cannot have the ordering, for a model of so many layers and a step's sums; nil
// where it can.
func (o ordering) fits(s shape, layers int, sums plan.Sums) error {
	if o.any() {
		return nil
	}
	tried := map[int]bool{}
	for _, share := range sums.Even(s.replicas, sums.Groups) {
		micros := sums.MicrosOf(share)
		if tried[micros] {
			continue
		}
		tried[micros] = true
		group := plan.ReplicaGroup{First: sums.First(share.First), Micros: micros, Sums: sums}
		for i := range s.stages {
			group.Workers = append(group.Workers, plan.WorkerID{Device: "any"})
			group.Layers = append(group.Layers, layers*(i+1)/s.stages-layers*i/s.stages)
		}
		if slices.Contains(plan.WarmUps, o.spec.String()) {
			group.Warmups = schedule.DepthWarmups(s.stages, 1)
		}
		if _, err := o.pipelines(group, 0); err != nil {
			return fmt.Errorf("%s: %w", plan.Count(s.stages, "device"), err)
		}
	}
	return nil
}

// CheckSchedule returns an error that says what does not fit, where a run cannot have a schedule on so
// many replica groups of so many devices; 0 leaves either to the planner.
func CheckSchedule(text string, groups, stages int, m model.Config, sums plan.Sums) error {
	o, err := newOrdering(text, m)
	if err != nil || stages == 0 {
		return err
	}
	return o.fits(shape{max(groups, 1), stages}, m.Layers(), sums)
}

// SumGroups returns into how many groups a new run's sums cut its micro-batches (plan.Sums), and why, where the founder has a device
// of so many bytes: see [founding.SumGroups]. Errors wrap plan.ErrBadInput.
func SumGroups(in Input, roomBytes int64) (groups int, why string, err error) {
	o, err := newOrdering(in.Run.Train.Schedule, in.Run.Model)
	if err != nil {
		return 0, "", fmt.Errorf("%w: %w", plan.ErrBadInput, err)
	}
	groups, why = founding.SumGroups(in.Run.Train, o.copies, cost.Training{
		Costs: in.Costs, HalfCosts: in.HalfCosts, NodeBytes: in.NodeBytes, Tied: in.Run.Model.TiedLen(), TiedGrad: in.Run.Model.TiedGradLen(),
	}, roomBytes)
	return groups, why, nil
}
