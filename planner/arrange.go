package planner

import (
	"errors"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/layout"
	"pnode/planner/neighbours"
	"pnode/planner/plan"
	"pnode/planner/rounds"
	"pnode/planner/sim"
)

// exchangeShows is the part of a step from which on layers are cut for exchanges between replicas, too.
const exchangeShows = 8

// wantsMemory reports whether more memory could make a candidate's step shorter.
func (s *search) wantsMemory(k *candidate) bool {
	return k.tight() || k.layout.Recompute() || k.order.elastic() && slices.ContainsFunc(k.pipes, s.cutter(k).crowded)
}

// arrange makes a candidate of devices in order: the first ones are replica 0. Devices that have
// memory of their own keep the optimizer state of their stages in that of their node if this brings
// what memory prevents otherwise: to fit at all or, of no very many devices, a shorter step for all
// that the copies take.
func (s *search) arrange(sh shape, order []int) (*candidate, error) {
	here, err := s.arrangeSharded(sh, order, nil)
	offload := s.offloaders(order)
	if offload == nil || err == nil && (len(s.problem.devices) > settleUpTo || !s.wantsMemory(here)) {
		return here, err
	}
	there, fail := s.arrangeSharded(sh, order, offload)
	if err == nil && (fail != nil || there.estimate >= here.estimate) {
		return here, nil
	}
	return there, fail
}

// arranged makes a candidate of an arrangement. One with a cut of its own has the other's cost model.
func (s *search) arranged(of *candidate, a neighbours.Arrangement) (*candidate, error) {
	if a.Ends == nil {
		return s.arrange(shape{a.Replicas, len(a.Devices) / a.Replicas}, a.Devices)
	}
	k := &candidate{shape: shape{1, len(a.Devices)}, order: of.order, model: of.model}
	key := cutKey{model: k.model, devices: pack(a.Devices), ends: pack(a.Ends), elastic: k.order.elastic()}
	p, err := s.once(key, func() (*pipe, error) { return s.cutter(k).pipe(slices.Clone(a.Devices), slices.Clone(a.Ends)) })
	if err != nil {
		return nil, err
	}
	k.pipes = []*pipe{p}
	return k, s.estimate(k)
}

// offloaders returns which of some devices may keep optimizer state in host memory; nil for none.
func (s *search) offloaders(devices []int) (offload []bool) {
	if s.in.Run.Train.Optimizer == plan.Muon { // whole matrices do not pass through windows
		return nil
	}
	for _, d := range devices {
		if at := s.models.whole().Devices[d]; at.CopyBytesPerS > 0 && at.HostBytes > 0 {
			if offload == nil {
				offload = make([]bool, len(s.problem.devices))
			}
			offload[d] = true
		}
	}
	return offload
}

// updatesShowPercent is the part of a step that Muon's updates take at least where replicas share them to make it shorter: what a lost replica
// had of the state in parts is lost, and with it the steps since the newest checkpoint.
const updatesShowPercent = 10

// wantsUpdates reports whether the products of updates, which replicas can share, are a part of a candidate's step that counts.
func (s *search) wantsUpdates(k *candidate) bool {
	return s.in.Run.Train.Optimizer == plan.Muon && k.job.Update*100 > k.estimate*updatesShowPercent
}

// arrangeSharded makes a candidate of devices in order, some of which offload. Where the rule leaves
// it open, the replicas hold their optimizer state in parts if this brings what memory prevents
// otherwise: to fit at all, or a shorter step with more in flight, other cuts or less recomputed; or where Muon's
// products, each on one replica, make the step shorter.
func (s *search) arrangeSharded(sh shape, order []int, offload []bool) (*candidate, error) {
	rule, n := s.shard(), sh.replicas*s.order.copies
	cutFor := func(m *cost.Model, exchanges bool) (*candidate, error) {
		k := &candidate{shape: sh, order: s.order, model: m}
		micros := (s.in.Run.Train.Micros + sh.replicas - 1) / sh.replicas
		for r := range sh.replicas {
			devices, all := order[r*sh.stages:(r+1)*sh.stages], []int(nil)
			if exchanges {
				all = order
			}
			pipe, err := s.cut(k, devices, all, micros)
			if err != nil {
				return nil, s.noFit(k.model, devices, err)
			}
			k.pipes = append(k.pipes, pipe)
		}
		return k, s.estimate(k)
	}
	as := func(p cost.Parts) (*candidate, error) {
		m := s.models.with(p, offload)
		k, err := cutFor(m, false)
		if err != nil || !s.order.elastic() || sh.stages == 1 || len(s.problem.devices) > settleUpTo || (k.job.Reduce+k.job.Gather)*exchangeShows < k.estimate {
			return k, err
		}
		if other, err := cutFor(m, true); err == nil && other.estimate < k.estimate {
			return other, nil
		}
		return k, nil
	}
	all := s.parts(n, s.partials(sh))
	each := all
	all.Layers = s.models.whole().Memory.All()
	if n > 1 && rule == plan.ShardOn {
		return as(all)
	}
	whole, err := as(each)
	if n == 1 || rule == plan.ShardOff || err == nil && !s.wantsMemory(whole) && !s.wantsUpdates(whole) {
		return whole, err
	}
	parts, fail := as(all)
	if fail != nil || err == nil && parts.estimate >= whole.estimate {
		return whole, err
	}
	return parts, nil
}

// estimate fills in what follows from a candidate's pipes but its simulation: shares, layout, the step
// as a job, and about how long that takes. Errors wrap ErrNoFit or plan.ErrBadPlan.
func (s *search) estimate(k *candidate) error {
	run, m := s.in.Run, k.model
	if k.shares == nil {
		k.shares = s.sharingOf(k.order).shares(k)
	}
	switch {
	case k.programmed(): // its layout is there already
	case k.order.elastic():
		k.layout = layoutOfPipes(run.Train.Sums(), k)
	default:
		bare, err := s.bareLayout(k)
		if err == nil {
			err = layout.Fit(m, bare, &s.budget)
		}
		if no := (*layout.NoFit)(nil); errors.As(err, &no) {
			return s.noLayout(k, no)
		}
		if err != nil {
			return err
		}
		k.layout = bare
	}
	rows := k.layout.Rows
	gather, back := m.Exchange(rows, k.sharded(), nil), m.Exchange(rows, m.Memory.All(), nil)
	k.tied, k.vectors = 4*int64(run.Model.TiedGradLen()), s.sharingOf(k.order).vectors(k)
	forth := back
	if slices.Max(k.vectors) > 1 {
		forth = m.Exchange(rows, m.Memory.All(), k.vectors)
	}
	k.job = sim.Job{
		// What is gathered need not be summed for all.
		Reduce: max(0, forth+back-gather),
		Gather: gather, Commit: m.Commit(rows), Update: m.Updates(rows),
		Tied: m.Tied(rows, k.tied),
	}
	if k.apart = s.apart && k.copies() > 1; k.apart {
		k.job.Reduce, k.job.Gather, k.job.Commit = 0, 0, 0
		for r := range rows {
			k.job.Commit = max(k.job.Commit, m.Commit(rows[r:r+1]))
		}
	}
	if k.programmed() {
		for _, passes := range k.layout.Passes {
			k.job.Pipelines = append(k.job.Pipelines, sim.Pipeline{Passes: passes})
		}
	} else {
		for r, p := range k.pipes {
			k.job.Pipelines = append(k.job.Pipelines, p.simulated(k.shares[r]))
		}
	}
	k.estimate = 0
	for _, p := range k.job.Pipelines {
		k.estimate = max(k.estimate, p.Estimate())
	}
	k.ended, k.estimate = k.estimate, k.estimate+k.job.Serial()
	if k.apart {
		k.rounds = s.outerSteps(k)
		k.job.Outer = k.rounds.PerStep()
		k.estimate += k.job.Outer
	}
	k.movedBytes = s.movedBytes(rows)
	return nil
}

// settleNanos is about how long members take besides their messages until the log has an outer step: each replica's coordinator writes down that it has all.
const settleNanos = 100e6

// outerSteps returns when the replicas of an estimated candidate make outer steps.
func (s *search) outerSteps(k *candidate) rounds.Choice {
	rule, left := s.in.Run.Train.Sync, s.in.Run.Train.Steps-s.in.Start
	if k.pinned != nil {
		rule.Every, rule.Codec, rule.Delay, rule.AtOnce = k.pinned.Every, k.pinned.Codec, k.pinned.Delay, k.pinned.Delay == 0
	}
	rows, way := k.layout.Rows, schedule.Nanos(0)
	for _, row := range rows { // to a voter and back: that is about as far as another replica
		from, to := row[len(row)-1].Device, rows[0][len(rows[0])-1].Device
		way = max(way, k.model.Link(from, to).Hop(0).Latency+k.model.Link(to, from).Hop(0).Latency)
	}
	return rounds.Choose(rule, left, k.estimate, func(codec string) (all, travels schedule.Nanos) {
		all, travels = k.model.OuterStep(rows, func(params int64) int64 { return plan.OuterBytes(codec, params) })
		return all + 2*way + settleNanos, travels + 2*way + settleNanos
	})
}

// timed estimates and simulates a candidate whose pipes are cut.
func (s *search) timed(k *candidate) error {
	if err := s.estimate(k); err != nil {
		return err
	}
	return k.simulate()
}

// layoutOfPipes returns the stages that follow from a candidate's pipes in 1F1B.
func layoutOfPipes(sums plan.Sums, k *candidate) *layout.Layout {
	l := &layout.Layout{Micros: k.shares, Exposed: map[layout.Boundary]schedule.Nanos{}}
	for r, p := range k.pipes {
		partials := sums.Partials(groupsOf(sums, k.shares)[r])
		row := make([]cost.Stage, len(p.devices))
		for s, d := range p.devices {
			row[s] = cost.Stage{Device: d, Partials: partials, Levels: p.Recompute[s], Ahead: p.Ahead[s], Offload: k.model.Offloads(d), Measured: &p.Costs.Stages[s]}
			row[s].First, row[s].End = p.layers(s)
			row[s].Use.Slots = min(p.Warmups[s], k.shares[r]-1) + 1
		}
		for b, exposed := range p.Exposed {
			l.Exposed[layout.Boundary{Replica: r, Stage: b}] = exposed
		}
		l.Rows, l.Codecs = append(l.Rows, row), append(l.Codecs, p.Codecs)
	}
	return l
}

// widen takes the most exact codec that hides the messages of all boundaries of a candidate as well as the narrowest. One
// codec counts for all: a boundary that is cut elsewhere by a later plan sends as many bits.
func (s *search) widen(k *candidate) error {
	switch {
	case s.widest == s.narrowest:
		return nil
	case k.programmed():
		if err := layout.Widen(k.model, k.layout, s.widest, s.narrowest); err != nil {
			return err
		}
		codec := narrowestOf(s.widest, k.layout.Codecs...)
		for r, codecs := range k.layout.Codecs {
			for b := range codecs {
				if codecs[b] != codec {
					codecs[b] = codec
					delete(k.layout.Exposed, layout.Boundary{Replica: r, Stage: b})
				}
			}
		}
		if err := k.layout.Time(k.model); err != nil {
			return err
		}
	default:
		wider, codec := make([]elastic.Decision, len(k.pipes)), s.widest
		for i, p := range k.pipes {
			var err error
			if wider[i], err = elastic.Widen(p.problem, p.Decision); err != nil {
				return err
			}
			codec = narrowestOf(codec, wider[i].Codecs)
		}
		for i, p := range k.pipes {
			problem := p.problem
			problem.Widest, problem.Narrowest = codec, codec
			one, err := elastic.Choose(problem)
			if err != nil {
				return err
			}
			one.Exposed = wider[i].Exposed
			for b, c := range wider[i].Codecs {
				if c != codec {
					one.Exposed[b] = 0 // not the reason
				}
			}
			k.pipes[i] = &pipe{devices: p.devices, ends: p.ends, problem: problem, Decision: one}
		}
	}
	return s.timed(k)
}

// narrowestOf returns the codec of the fewest bits.
func narrowestOf(codec plan.Codec, more ...[]plan.Codec) plan.Codec {
	for _, codecs := range more {
		for _, c := range codecs {
			codec = max(codec, c)
		}
	}
	return codec
}

// leastGainPercent is how much shorter a step has to be for workers to apply it before its commit.
const leastGainPercent = 1

// postValidate has the workers of a simulated candidate apply steps before their commit, where the run allows it, their devices have
// the memory, and steps are the shorter for it. Bounds of steps do not count with it: it is for what has been found.
func (s *search) postValidate(k *candidate) {
	if !s.in.Run.Train.PostValidation || s.runs || !k.simulated || k.copies() != 1 || k.shape.stages < 2 || k.postValidates() || slices.Contains(k.model.Offload, true) {
		return
	}
	other := *k
	other.model = s.models.with(undoes(k.model, true), k.model.Offload)
	if k.programmed() {
		l := *k.layout
		l.SumNeeds(other.model)
		other.layout = &l
	}
	for _, d := range k.devices() {
		if need, total := other.memory(d); need > total {
			return
		}
	}
	if other.simulate() == nil && other.step()*100 <= k.step()*(100-leastGainPercent) {
		*k = other
	}
}

// undoes returns a model's parts with memory to undo updates, or without.
func undoes(m *cost.Model, undo bool) cost.Parts {
	parts := m.Memory.Parts()
	parts.Undo = undo
	return parts
}

// waitingModel returns the model of a candidate whose workers wait for commits. A plan that runs stays as it is.
func (s *search) waitingModel(k *candidate) *cost.Model {
	if !k.postValidates() || s.runs {
		return k.model
	}
	return s.models.with(undoes(k.model, false), k.model.Offload)
}
