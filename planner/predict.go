package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// Predict times a step of any plan with the input's costs and profiles: what it would
// take now. Errors wrap plan.ErrBadPlan, also when a device of the plan is not among the
// members.
func Predict(in Input, p plan.Plan) (sim.Result, error) {
	s, err := searchFor(in, p)
	if err != nil {
		return sim.Result{}, err
	}
	return s.predict(p)
}

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
		err = s.estimate(k)
	}
	if err != nil {
		return sim.Result{}, err
	}
	if err := k.simulate(); err != nil {
		return sim.Result{}, fmt.Errorf("planner: predict generation %d: %w", p.Generation, err)
	}
	return k.result, nil
}

// Timing returns what the passes, messages and updates of a plan take, by the input's costs and
// profiles, and as measured where stages and links were: what a simulation of its programs runs
// with. Errors wrap plan.ErrBadInput or plan.ErrBadPlan.
func Timing(in Input, p plan.Plan, measured Measured) (schedule.Timing, error) {
	if err := errors.Join(in.check(), p.Validate(len(in.Costs), in.Run.Train.Micros)); err != nil {
		return schedule.Timing{}, err
	}
	problem, err := newProblem(in)
	if err != nil {
		return schedule.Timing{}, err
	}
	problem = problem.withLinks(measured.Links)
	whole, err := problem.costModel(problem.precisionOf(p))
	if err != nil {
		return schedule.Timing{}, err
	}
	d := drafts{problem, map[programKey]schedule.Schedule{}}
	l, err := d.layoutOf(p)
	if err != nil {
		return schedule.Timing{}, err
	}
	m := (&costModels{[]*cost.Model{whole}}).of(problem, p)
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

// ReplanPercent is how much faster a step must become for a running plan to be replaced:
// a change costs a checkpoint, a reload and a stop of some seconds.
const ReplanPercent = 5

// Decision is an answer with its reason.
type Decision struct {
	Replan bool
	Reason string
}

// ShouldReplan decides whether the current plan should be replaced, given the members of
// now: at once when there is none or a member of it is gone or leaving; otherwise when
// the best plan's predicted step is at least ReplanPercent faster. Errors are Make's:
// then there is nothing to change to.
func ShouldReplan(ctx context.Context, in Input, current plan.Plan) (Decision, error) {
	if current.Generation == 0 {
		return Decision{true, "there is no plan yet"}, nil
	}
	for _, peer := range current.Peers() {
		switch i := slices.IndexFunc(in.Members, func(m Member) bool { return m.Peer == peer }); {
		case i < 0:
			return Decision{true, fmt.Sprintf("%s is gone", peer.Short())}, nil
		case in.Members[i].Draining:
			return Decision{true, fmt.Sprintf("%s is leaving", in.Members[i].label())}, nil
		}
	}
	in.Previous = &current
	s, best, _, err := decide(ctx, in)
	if err != nil {
		return Decision{}, err
	}
	as := s.precisionOf(current)
	if slices.ContainsFunc(current.Workers(), func(w plan.WorkerID) bool {
		d := s.find(w)
		return d >= 0 && s.models.whole().Devices[d].Storage != as(w.Peer, plan.DeviceProfile{Name: w.Device})
	}) {
		other, err := newSearch(s.problem, as)
		if err != nil {
			return Decision{}, err
		}
		other.order = s.order
		s = other
	}
	now, err := s.predict(current)
	if errors.Is(err, plan.ErrBadPlan) {
		return Decision{true, fmt.Sprintf("the plan cannot go on: %v", err)}, nil
	}
	if err != nil {
		return Decision{}, err
	}
	then := best.step()
	gain := max(0, int64(now.Step-then)) * 1000 / int64(max(now.Step, 1))
	text := fmt.Sprintf("a new plan's step takes %s instead of %s, %s less", plan.Time(then), plan.Time(now.Step), plan.Permille(gain))
	if gain >= ReplanPercent*10 {
		return Decision{true, text}, nil
	}
	return Decision{false, fmt.Sprintf("%s; a change needs %d%%", text, ReplanPercent)}, nil
}
