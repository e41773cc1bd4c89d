package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// searchFor begins a search in the storage and the codec of a plan. Errors wrap plan.ErrBadInput.
func searchFor(in Input, p plan.Plan) (*search, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	problem, err := newProblem(in)
	if err != nil {
		return nil, err
	}
	if problem.apart = p.Local != nil; len(p.Replicas) == 1 {
		problem.apart = in.Run.Train.Sync.Local
	}
	if err := problem.keepCodec(p.Codec); err != nil {
		return nil, err
	}
	storage := in.Run.Train.Storage.Storage
	if in.Run.Train.Storage.Auto {
		storage = p.Storage()
	}
	s, err := newSearch(problem, storage)
	if err == nil {
		s.runs = true
	}
	return s, err
}

func (s *search) predict(p plan.Plan) (sim.Result, error) {
	if err := p.Validate(s.layers(), s.in.Run.Train.Sums()); err != nil {
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

// OuterStep returns how long an outer step of a plan with local steps takes once its replicas have ended their rounds. Errors wrap plan.ErrBadInput or
// plan.ErrBadPlan.
func OuterStep(in Input, p plan.Plan) (schedule.Nanos, error) {
	s, err := searchFor(in, p)
	if err == nil {
		err = p.Validate(s.layers(), in.Run.Train.Sums())
	}
	if err != nil {
		return 0, err
	}
	k, err := s.adopt(p)
	if err == nil {
		err = s.estimate(k)
	}
	if err != nil {
		return 0, err
	}
	return k.rounds.Takes, nil
}

// reshared predicts a plan with the shares of the micro-batches that suit its replicas.
func (s *search) reshared(p plan.Plan) (sim.Result, error) {
	k, err := s.adopt(p)
	if err != nil {
		return sim.Result{}, err
	}
	by := s.sharingOf(k.order)
	by.uneven = true
	other, err := p.WithShares(by.shares(k))
	if err != nil {
		return sim.Result{}, err
	}
	return s.predict(other)
}

// Timing returns what the passes, messages and updates of a plan take, by the input's costs and
// profiles, and as measured where stages and links were: what a simulation of its programs runs
// with. Errors wrap plan.ErrBadInput or plan.ErrBadPlan.
func Timing(in Input, p plan.Plan, measured Measured) (schedule.Timing, error) {
	in.Links = slices.Concat(in.Links, measured.Links)
	s, err := searchFor(in, p)
	if err == nil {
		err = p.Validate(s.layers(), in.Run.Train.Sums())
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
	k := &candidate{order: s.order, model: s.models.of(s.problem, p), pinned: p.Local}
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

// Expected holds what steps of a plan take, by profiles and by what was measured of them.
type Expected struct {
	// StepNanos is the time of a step by profiles, ExplainedNanos the same with measured stages and links.
	StepNanos, ExplainedNanos int64
	// PlannedNanos is by peer how long its busiest device computes in a step by its profile, ReportedNanos how long
	// it does as measured; not known of peers that lack stages among the measured ones.
	PlannedNanos, ReportedNanos map[plan.PeerID]int64
}

// Expect compares a plan with what was measured of its steps. Errors wrap plan.ErrBadInput or plan.ErrBadPlan.
func Expect(in Input, p plan.Plan, measured Measured) (out Expected, err error) {
	s, err := searchFor(in, p)
	if err != nil {
		return out, err
	}
	result, err := s.predict(p)
	if err != nil {
		return out, err
	}
	list, err := p.Programs()
	if err != nil {
		return out, err
	}
	planned, err := Timing(in, p, Measured{})
	if err != nil {
		return out, err
	}
	computing := computingOf(p, planned, list.Segments)
	seen, err := Timing(in, p, measured)
	if err != nil {
		return out, err
	}
	passes, err := schedule.Makespan(list, planned)
	if err != nil {
		return out, fmt.Errorf("%w: %w", plan.ErrBadPlan, err)
	}
	slower, err := schedule.Makespan(list, seen)
	if err != nil {
		return out, fmt.Errorf("%w: %w", plan.ErrBadPlan, err)
	}
	out.StepNanos = int64(result.Step)
	out.ExplainedNanos = max(0, int64(result.Step-passes+slower))
	out.PlannedNanos, out.ReportedNanos = busiest(p, computing), busiest(p, Computed(p, measured.Stages))
	return out, nil
}

// Computing returns for how long each device of a plan is to compute forwards and backwards in a step, in nanoseconds, by the input's
// profiles. Errors wrap plan.ErrBadInput or plan.ErrBadPlan.
func Computing(in Input, p plan.Plan) (map[plan.WorkerID]int64, error) {
	planned, err := Timing(in, p, Measured{})
	if err != nil {
		return nil, err
	}
	list, err := p.Programs()
	if err != nil {
		return nil, err
	}
	return computingOf(p, planned, list.Segments), nil
}

func computingOf(p plan.Plan, planned schedule.Timing, segments int) map[plan.WorkerID]int64 {
	return byDevice(p, func(at plan.StageID) int64 {
		t := planned.Replicas[at.Replica].Stages[at.Stage]
		return int64(t.Micro()+t.Recompute) * int64(p.Replicas[at.Replica].Micros) * int64(max(segments, 1))
	})
}

// Computed is Computing as it was measured of stages.
func Computed(p plan.Plan, stages []MeasuredStage) map[plan.WorkerID]int64 {
	return byDevice(p, func(at plan.StageID) int64 {
		i := slices.IndexFunc(stages, func(m MeasuredStage) bool {
			return plan.Replica(m.Replica) == at.Replica && plan.Stage(m.Stage) == at.Stage
		})
		if i < 0 {
			return 0
		}
		m := stages[i]
		return min(max(m.ForwardNanos, 0), int64(cost.Longest)) + min(max(m.BackwardNanos, 0), int64(cost.Longest))
	})
}

// byDevice adds up the stages of each device: 0 for one with a stage that has none.
func byDevice(p plan.Plan, nanos func(plan.StageID) int64) map[plan.WorkerID]int64 {
	out := map[plan.WorkerID]int64{}
	for _, w := range p.Workers() {
		stages := p.StagesOf(w)
		for _, at := range stages {
			out[w] += nanos(at)
		}
		if slices.ContainsFunc(stages, func(at plan.StageID) bool { return nanos(at) == 0 }) {
			out[w] = 0
		}
	}
	return out
}

// busiest returns by peer the longest time of its devices. It leaves peers out of which a device has none.
func busiest(p plan.Plan, computing map[plan.WorkerID]int64) map[plan.PeerID]int64 {
	out, unknown := map[plan.PeerID]int64{}, map[plan.PeerID]bool{}
	for _, w := range p.Workers() {
		out[w.Peer] = max(out[w.Peer], computing[w])
		unknown[w.Peer] = unknown[w.Peer] || computing[w] == 0
	}
	for peer := range unknown {
		if unknown[peer] {
			delete(out, peer)
		}
	}
	return out
}
