package plan

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
)

// Programs returns the action lists of the plan's workers, in the order of Workers: forwards and
// backwards as the plan's schedule orders them, with sends, receives, reductions and steps.
// Every node makes the same ones. Errors wrap ErrBadPlan.
func (p Plan) Programs() (schedule.Schedule, error) {
	s, err := p.BackwardPrograms()
	if err == nil {
		s = schedule.WithRecompute(s, func(r Replica, st Stage) bool { return p.Replicas[r].Stages[st].Ahead > 0 })
		err = schedule.Validate(s, schedule.Limits{})
	}
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadPlan, err)
	}
	return s, nil
}

// BackwardPrograms returns the plan's programs with recomputation inside the backwards.
func (p Plan) BackwardPrograms() (schedule.Schedule, error) {
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil {
		return schedule.Schedule{}, err
	}
	var parts []schedule.Schedule
	for first := 0; first < len(p.Replicas); first += spec.Replicas() {
		part, err := p.groupSchedule(spec, first)
		if err != nil {
			return schedule.Schedule{}, fmt.Errorf("replica %d: %w", first, err)
		}
		parts = append(parts, part)
	}
	s, err := p.assign(schedule.Join(parts...))
	if err != nil {
		return schedule.Schedule{}, err
	}
	s = schedule.WithGather(s, func(r Replica, st Stage) bool { return p.Shares(StageID{r, st}) != nil })
	s = schedule.WithReduceAndStep(schedule.WithCommunication(s))
	return s, schedule.Validate(s, schedule.Limits{})
}

// groupSchedule orders the replicas of one group of the schedule, from first on.
func (p Plan) groupSchedule(spec schedule.Spec, first int) (schedule.Schedule, error) {
	n := spec.Replicas()
	if first+n > len(p.Replicas) {
		return schedule.Schedule{}, fmt.Errorf("schedule %s takes %d replicas at a time, the plan has %d", spec, n, len(p.Replicas))
	}
	g := schedule.Group{First: Replica(first), Stages: len(p.Replicas[first].Stages), Warmups: p.Replicas[first].Warmups}
	for _, pipe := range p.Replicas[first : first+n] {
		if len(pipe.Stages) != g.Stages {
			return schedule.Schedule{}, fmt.Errorf("replicas of one group of %s have %d and %d stages", spec, g.Stages, len(pipe.Stages))
		}
		g.Shares = append(g.Shares, schedule.Share{First: pipe.FirstMicro, Micros: pipe.Micros})
	}
	return spec.Build(g)
}

// assign gives the programs of a schedule's workers to the plan's workers. Where several come to one,
// its program takes their actions as they would follow each other if all took the same
// time, which makes progress because that run did.
func (p Plan) assign(s schedule.Schedule) (schedule.Schedule, error) {
	places := p.Workers()
	members := make([][]int, len(places)) // of the schedule's workers
	for w, actions := range s.Workers {
		at, err := p.workerOf(actions)
		if err != nil {
			return schedule.Schedule{}, err
		}
		i := slices.Index(places, at)
		members[i] = append(members[i], w)
	}
	out := schedule.Schedule{Workers: make([][]schedule.Action, len(places)), Segments: s.Segments}
	var line *schedule.Timeline
	for i, workers := range members {
		if len(workers) == 1 {
			out.Workers[i] = s.Workers[workers[0]]
			continue
		}
		if line == nil {
			l, err := schedule.Simulate(s, evenTiming(p))
			if err != nil {
				return schedule.Schedule{}, err
			}
			line = &l
		}
		var spans []schedule.Span // of all of them, by when they start
		for _, w := range workers {
			spans = append(spans, line.Workers[w]...)
		}
		slices.SortStableFunc(spans, func(a, b schedule.Span) int { return int(a.Start - b.Start) })
		for _, s := range spans {
			out.Workers[i] = append(out.Workers[i], s.Action)
		}
	}
	return out, nil
}

// workerOf returns the plan's worker of all stages that a worker of the schedule holds.
func (p Plan) workerOf(actions []schedule.Action) (WorkerID, error) {
	var at WorkerID
	var first schedule.Action
	for _, a := range actions {
		if a.Op != schedule.Forward {
			continue
		}
		here := p.At(StageID{Replica: a.Replica, Stage: a.Stage}).Worker()
		if at != (WorkerID{}) && here != at {
			return at, fmt.Errorf("%s needs replica %d stage %d and replica %d stage %d on one device, the plan has them on %s of %s and %s of %s",
				p.Schedule, first.Replica, first.Stage, a.Replica, a.Stage, at.Device, at.Peer.Short(), here.Device, here.Peer.Short())
		}
		if at == (WorkerID{}) {
			at, first = here, a
		}
	}
	if at == (WorkerID{}) {
		return at, fmt.Errorf("%s leaves a worker without a stage", p.Schedule)
	}
	return at, nil
}

// evenTiming returns one unit for each pass of each stage of a plan.
func evenTiming(p Plan) schedule.Timing {
	var t schedule.Timing
	for _, pipe := range p.Replicas {
		one := schedule.StageTime{Forward: 1, Input: 1, Weight: 1, Recompute: 1}
		t.Replicas = append(t.Replicas, schedule.Costs{
			Stages: slices.Repeat([]schedule.StageTime{one}, len(pipe.Stages)), Boundaries: make([]schedule.Boundary, len(pipe.Stages)-1),
		})
	}
	return t
}
