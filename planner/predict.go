package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// searchFor begins a search in the precision of a plan. Errors wrap plan.ErrBadInput.
func searchFor(in Input, p plan.Plan) (*search, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	problem, err := newProblem(in)
	if err != nil {
		return nil, err
	}
	return newSearch(problem, problem.precisionOf(p))
}

func (s *search) predict(p plan.Plan) (sim.Result, error) {
	if err := p.Validate(s.layers(), s.in.Run.Train.Micros); err != nil {
		return sim.Result{}, err
	}
	k, err := s.adopt(p)
	if err == nil {
		err = s.timed(k)
	}
	if err != nil {
		return sim.Result{}, err
	}
	return k.result, nil
}

// Timing returns what the passes, messages and updates of a plan take, by the input's costs and
// profiles, and as measured where stages and links were: what a simulation of its programs runs
// with. Errors wrap plan.ErrBadInput or plan.ErrBadPlan.
func Timing(in Input, p plan.Plan, measured Measured) (schedule.Timing, error) {
	in.Links = slices.Concat(in.Links, measured.Links)
	s, err := searchFor(in, p)
	if err == nil {
		err = p.Validate(s.layers(), in.Run.Train.Micros)
	}
	if err != nil {
		return schedule.Timing{}, err
	}
	l, err := s.layoutOf(p)
	if err != nil {
		return schedule.Timing{}, err
	}
	m := s.models.of(s.problem, p)
	m.SetMeasured(l.Rows, l.Micros, measured.Stages)
	t := m.Timing(l.Rows, l.Codecs)
	for r, row := range l.Rows {
		for st, at := range row {
			update := m.Update(at.Device, at.First, at.End)
			if at.Measured != nil && at.Measured.Update > 0 {
				update = at.Measured.Update
			}
			t.Replicas[r].Stages[st].Update = update
		}
	}
	return t, nil
}

// adopt returns a plan as a candidate, as far as the plan itself says: devices, layers, shares,
// warm-ups, and what its stages recompute and send.
func (s *search) adopt(p plan.Plan) (*candidate, error) {
	groups, err := p.ReplicaGroups()
	if err != nil {
		return nil, err
	}
	k := &candidate{order: s.order, model: s.models.of(s.problem, p)}
	if len(groups) > 0 {
		k.shape = shape{len(groups), len(groups[0].Workers)}
	}
	for _, group := range groups {
		pipe, err := s.adoptGroup(k, group)
		if err != nil {
			return nil, err
		}
		k.pipes, k.shares = append(k.pipes, pipe), append(k.shares, group.Micros)
	}
	if !p.Elastic() || !s.order.elastic() {
		if k.layout, err = s.layoutOf(p); err == nil {
			err = k.layout.Time(k.model)
		}
		return k, err
	}
	c := s.cutter(k)
	for r, pipe := range k.pipes { // warm-ups, codecs and recomputation of the plan
		from := p.Replicas[r]
		if pipe.Codecs, err = from.Codecs(); err != nil {
			return k, err
		}
		pipe.Recompute, pipe.Ahead = make([][]model.Recompute, len(from.Stages)), make([]int, len(from.Stages))
		for st, place := range from.Stages {
			pipe.Ahead[st] = place.Ahead
			if place.Recompute == "" {
				continue
			}
			if pipe.Recompute[st], err = place.Recompute.Expand(place.Layers.Len()); err != nil {
				return k, err
			}
		}
		pipe.Costs = c.recomputing(pipe, c.stages(pipe))
		pipe.Warmups, pipe.Period = from.Warmups, pipe.Costs.Period(from.Warmups)
	}
	return k, nil
}

// adoptGroup returns a replica group as a pipe that has nothing but devices and layers.
func (s *search) adoptGroup(k *candidate, group plan.ReplicaGroup) (*pipe, error) {
	p := &pipe{}
	end := 0
	for i, worker := range group.Workers {
		d, err := s.placed(worker)
		if err != nil {
			return nil, err
		}
		if end += group.Layers[i]; group.Layers[i] < 1 || end > s.layers() {
			return nil, fmt.Errorf("%w: %s of %s has layers up to %d of %d", plan.ErrBadPlan, worker.Device, s.label(worker.Peer), end, s.layers())
		}
		p.devices, p.ends = append(p.devices, d), append(p.ends, end)
	}
	p.Costs = s.cutter(k).stages(p).Costs(slices.Repeat([]plan.Codec{plan.CodecF32}, len(p.devices)-1))
	p.Warmups = schedule.DepthWarmups(len(p.devices), 1)
	p.Period = p.Costs.Period(p.Warmups)
	return p, nil
}
