package planner

import (
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/partition"
	"pnode/planner/plan"
	"pnode/planner/rounds"
)

// ErrNotElastic is wrapped when neither warm-ups nor groups of the running schedule are the
// planner's to choose.
var ErrNotElastic = errors.New("planner: the schedule has nothing to choose")

// Reselection compares the schedule that runs with the best one for the same stages on the
// same devices, both with the times that were measured.
type Reselection struct {
	// Plan is the current one with the better schedule, from the input's start and
	// generation on.
	Plan plan.Plan
	// Promised is the step that was predicted with the profiles, Measured the time that it took. Now is
	// the prediction for the schedule that runs and Then that for Plan's, with measured times.
	Promised, Measured, Now, Then schedule.Nanos
	// InPlace reports that the plans differ in their schedule and shares alone, which a commit can change. Reshared
	// reports that they differ in the shares of the micro-batches.
	InPlace, Reshared bool
	// Why describes the change and what bounds it, Reasons explain the new plan.
	Why     string
	Reasons plan.Reasons
}

// Reselect derives the running plan's schedule again from measured times: how much is in
// flight, what is recomputed, and how the replicas share the micro-batches; or, where the planner chose another kind, its groups or
// orders. Another kind takes the place of the running one where that gains changeKindPercent more. Devices stay, and layers
// where their chunks do. Errors wrap plan.ErrBadInput, plan.ErrBadPlan or ErrNotElastic.
func Reselect(in Input, current plan.Plan, measured Measured) (Reselection, error) {
	promised, err := searchFor(in, current)
	if err != nil {
		return Reselection{}, err
	}
	chosen := promised.chosen(current)
	if !chosen && (!current.Elastic() || !promised.order.elastic()) {
		return Reselection{}, fmt.Errorf("%w: generation %d runs %s, the run is to have %s", ErrNotElastic, current.Generation, current.Schedule, promised.order.spec)
	}
	step, err := promised.predict(current)
	if err != nil {
		return Reselection{}, err
	}
	in.Links = slices.Concat(in.Links, measured.Links)
	s, err := searchFor(in, current)
	if err != nil {
		return Reselection{}, err
	}
	out := Reselection{Promised: step.Step, Measured: schedule.Nanos(measured.StepNanos)}
	r := &reselection{s, current, measured}
	if chosen {
		return r.otherKind(out)
	}
	return r.otherWarmups(out)
}

// reselection is a running plan with what was measured of it.
type reselection struct {
	*search
	current  plan.Plan
	measured Measured
}

// otherWarmups is Reselect for warm-ups. It decides for each replica's cut anew, with the times that were
// measured in place of modelled ones, and times both that and what runs. The replicas get other shares of the
// micro-batches where these gain a margin over the same ones.
func (r *reselection) otherWarmups(out Reselection) (Reselection, error) {
	now, err := r.adopt(r.current)
	if err != nil {
		return out, err
	}
	c := r.cutter(now)
	for i, p := range now.pipes {
		p.Costs = c.recomputing(p, c.measuredStages(p, plan.Replica(i), now.shares[i], r.measured.Stages))
		p.Period = p.Costs.Period(p.Warmups)
	}
	if err := r.timed(now); err != nil {
		return out, err
	}
	then, err := r.decidedAgain(now, now.model, now.shares)
	if err != nil {
		return out, err
	}
	other, err := r.otherShares(now, func(m *cost.Model, shares []int) (*candidate, error) { return r.decidedAgain(now, m, shares) })
	if err != nil {
		return out, err
	}
	if other != nil && gains(then.step(), other.step()) {
		then, out.Reshared = other, true
	}
	out.Now, out.Then = now.step(), then.step()
	if r.order.open && !out.asPromised() {
		best, p, err := r.otherOrders(now)
		if err != nil {
			return out, err
		}
		if best != now && betterKind(then.step(), best.step()) {
			out.Then, out.Plan, out.InPlace, out.Reshared = best.step(), p, true, false
			return r.tell(out, best, "other orders of the same stages"), nil
		}
	}
	out.Plan = r.reschedule(then)
	out.InPlace = slices.EqualFunc(out.Plan.Replicas, r.current.Replicas, func(a, b plan.Pipeline) bool { return slices.Equal(a.Stages, b.Stages) })
	slowest := then.result.Slowest
	if out.Reshared {
		out.Why = whyOther(out, "other shares of the micro-batches take") + fmt.Sprintf(": %v instead of %v, %s",
			then.shares, now.shares, periodText(r.problem, then, slowest))
	} else {
		out.Why = whyOther(out, "another schedule for the same stages takes") + fmt.Sprintf(": warm-ups %v instead of %v in replica %d, %s",
			out.Plan.Replicas[slowest].Warmups, r.current.Replicas[slowest].Warmups, slowest, periodText(r.problem, then, slowest))
	}
	out.Reasons = explain(r.search, then, nil)
	return out, nil
}

// decidedAgain returns a running candidate with other shares of the micro-batches, and with warm-ups and
// recomputation as they suit the measured times. Errors wrap partition.NoFit where the model has no room for that.
func (r *reselection) decidedAgain(now *candidate, m *cost.Model, shares []int) (*candidate, error) {
	k := &candidate{shape: now.shape, order: now.order, model: m, shares: shares, pinned: now.pinned}
	c := r.cutter(k)
	for i, p := range now.pipes {
		chosen, err := c.decide(p, c.measuredStages(p, plan.Replica(i), now.shares[i], r.measured.Stages))
		if err != nil {
			return nil, err
		}
		c.keepAhead(chosen, p)
		k.pipes = append(k.pipes, chosen)
	}
	return k, r.timed(k)
}

// otherShares returns a candidate in 1F1B with the shares that suit its replicas' measured speeds, as decide makes it, nil where these
// are the running ones or devices lack memory for the sums that wait.
func (r *reselection) otherShares(of *candidate, decide func(*cost.Model, []int) (*candidate, error)) (*candidate, error) {
	by := r.sharingOf(of.order)
	by.uneven = true // a straggler is, whatever the run begins with
	shares := by.shares(of)
	if slices.Equal(shares, of.shares) {
		return nil, nil
	}
	shared, err := r.current.WithShares(shares)
	if err != nil {
		return nil, err
	}
	k, err := decide(r.models.of(r.problem, shared), shares)
	if no := (*partition.NoFit)(nil); errors.As(err, &no) || errors.Is(err, ErrNoFit) {
		return nil, nil
	}
	return k, err
}

// keepAhead has the stages of a chosen pipe recompute as little ahead of the gradient as they do
// now, where that does not lengthen the period: their memory stays as it is.
func (c cutter) keepAhead(chosen, now *pipe) {
	kept := *chosen
	kept.Ahead = slices.Clone(chosen.Ahead)
	for s := range kept.Ahead {
		if slices.Equal(chosen.Recompute[s], now.Recompute[s]) {
			kept.Ahead[s] = min(chosen.Ahead[s], now.Ahead[s])
		}
	}
	if kept.Costs = c.recomputing(&kept, chosen.problem); kept.Costs.Period(kept.Warmups) <= chosen.Period {
		*chosen = kept
	}
}

// reschedule returns the current plan with a candidate's schedule and shares.
func (r *reselection) reschedule(k *candidate) plan.Plan {
	next := r.current
	next.Generation, next.Start, next.Schedule = r.in.Generation, r.in.Start, k.order.spec.String()
	next.Replicas, next.Stream = slices.Clone(r.current.Replicas), r.in.Stream
	rounds.Begin(&next, r.in.Own)
	first := plan.Micro(0)
	for i, p := range k.pipes {
		pipe := &next.Replicas[i]
		pipe.FirstMicro, pipe.Micros = first, k.shares[i]
		first += plan.Micro(pipe.Micros)
		pipe.Stages, pipe.Warmups = slices.Clone(pipe.Stages), slices.Clone(p.Warmups)
		for st, w := range p.Warmups {
			pipe.Warmups[st] = min(w, pipe.Micros-1)
		}
	}
	r.writeChoices(&next, k)
	return next
}

// otherKind is Reselect for kinds that the planner chose: the groups or orders in which the same chunks end first with measured
// times and fit with what the stages recompute now. A commit can make that change. Where it gains little of what a step takes, or
// replicas could share their work otherwise, the same devices may do better in 1F1B: links that have become slow show less with one
// chunk a device. It looks for nothing while a step takes what was promised.
func (r *reselection) otherKind(out Reselection) (Reselection, error) {
	now, err := r.adoptGrouped(r.current)
	if err != nil {
		return out, err
	}
	if out.Now, out.InPlace = now.step(), true; out.asPromised() {
		r.current.Generation, r.current.Start = r.in.Generation, r.in.Start
		out.Plan, out.Then, out.Reasons = r.current, out.Now, explain(r.search, now, nil)
		return out, nil
	}
	best, p, err := r.otherOrders(now)
	if err != nil {
		return out, err
	}
	what, plainly := "other groups for the same chunks", "one chunk a device"
	single := len(now.layout.Rows[0]) == now.shape.stages
	if single {
		what, plainly = "other orders of the same stages", plan.ScheduleName
	}
	if !gains(out.usual(), best.step()) || len(now.shares) > 1 {
		plain, err := r.inPlain(now)
		if err == nil && betterKind(best.step(), plain.step()) {
			what, best, out.Reshared = plainly, plain, !slices.Equal(plain.shares, now.shares)
			if single {
				p = r.reschedule(plain)
			} else if p, err = r.write(plain); err == nil {
				r.assignHolders(&p)
			}
			out.InPlace = slices.EqualFunc(p.Replicas, r.current.Replicas, func(a, b plan.Pipeline) bool { return slices.Equal(a.Stages, b.Stages) })
		}
		if err != nil && !errors.Is(err, ErrNoFit) {
			return out, err
		}
	}
	out.Plan, out.Then = p, best.step()
	return r.tell(out, best, what), nil
}

// betterKind reports whether another kind of schedule gains enough on the best step of the running one.
func betterKind(same, other schedule.Nanos) bool {
	return (same-other)*100 >= same*changeKindPercent
}

// tell returns a reselection with the candidate that its plan is of in words.
func (r *reselection) tell(out Reselection, k *candidate, what string) Reselection {
	out.Plan.Generation, out.Plan.Start = r.in.Generation, r.in.Start
	out.Why = whyOther(out, what+" would take") + fmt.Sprintf(": %s instead of %s", out.Plan.ScheduleChoice().Short(), r.current.ScheduleChoice().Short())
	out.Reasons = explain(r.search, k, nil)
	return out
}

// otherOrders returns the best orders or groups for the chunks of a running plan, with what its stages recompute now. The plan stays
// where they are no better, and where another kind gains too little on the running one.
func (r *reselection) otherOrders(now *candidate) (best *candidate, p plan.Plan, err error) {
	best, p = now, r.current
	running, err := schedule.ParseSpec(p.Schedule)
	if err != nil {
		return nil, p, fmt.Errorf("%w: %w", plan.ErrBadPlan, err)
	}
	chunks := len(now.layout.Rows[0]) / now.shape.stages
	take := func(spec schedule.Spec) (fits bool, err error) {
		next, err := r.current.WithSchedule(plan.ScheduleChoice{Schedule: spec.String()})
		if err != nil {
			return false, err
		}
		then, err := r.adoptGrouped(next)
		if err != nil || !now.model.FitsWhileChanging(then.layout.Rows, now.layout.Rows) {
			return false, err
		}
		if then.step() < best.step() && (spec.Kind == running.Kind || betterKind(now.step(), then.step())) {
			best, p = then, next
		}
		return true, nil
	}
	if chunks == 1 && r.order.open {
		for _, spec := range fixedKinds {
			if spec.Chunks() > 1 || r.passes(now.shape.stages) > kindActions {
				continue
			}
			if _, err := take(spec); err != nil && !errors.Is(err, plan.ErrBadPlan) { // some kinds need more micro-batches
				return nil, p, err
			}
		}
	}
	even := slices.Max(now.shares) == slices.Min(now.shares)
	for _, row := range now.layout.Rows {
		for st, at := range row {
			if !even || at.Device != row[st%now.shape.stages].Device || r.passes(len(row)) > groupActions {
				return best, p, nil // chunks that go down and up have no groups, and one list has to suit every replica
			}
		}
	}
	problem := interleaved(now.shape.stages, now.shares[0], now.model.Timing(now.layout.Rows, now.layout.Codecs))
	if chunks > 1 {
		problem.Costs = late(problem.Costs)
	}
	for range groupTries {
		spec, _, err := bestOrder(problem)
		if err != nil {
			break // no others have room
		}
		if _, err := schedule.ParseSpec(spec.String()); err != nil {
			break // no plan can name such groups
		}
		fits, err := take(spec)
		if err != nil {
			return nil, p, err
		}
		if fits {
			break
		}
		problem.Caps = tighter(problem.Caps, now.model.Caps(now.layout.Rows, problem.Workers, schedule.MaxNumber))
	}
	return best, p, nil
}

// inPlain returns a running candidate with one chunk a device in 1F1B, and with other shares of the micro-batches where these gain a
// margin over the same ones. Errors wrap ErrNoFit.
func (r *reselection) inPlain(now *candidate) (*candidate, error) {
	plain, err := r.ungrouped(now, now.model, now.shares)
	if err != nil || len(plain.pipes) == 1 {
		return plain, err
	}
	other, err := r.otherShares(plain, func(m *cost.Model, shares []int) (*candidate, error) { return r.ungrouped(now, m, shares) })
	if err == nil && other != nil && gains(plain.step(), other.step()) {
		return other, nil
	}
	return plain, err
}

// ungrouped returns a running candidate with one chunk a device in 1F1B and other shares of the micro-batches, simulated with measured
// times. Errors wrap ErrNoFit.
func (r *reselection) ungrouped(now *candidate, m *cost.Model, shares []int) (*candidate, error) {
	k := &candidate{shape: now.shape, order: r.order, model: m, shares: shares, pinned: now.pinned}
	c := r.cutter(k)
	for i, p := range now.pipes {
		p.Recompute = make([][]model.Recompute, len(p.devices))
		problem := c.measuredStages(p, plan.Replica(i), now.shares[i], joined(now, plan.Replica(i), len(p.devices), r.measured.Stages))
		chosen, err := c.decide(p, problem)
		if err != nil {
			return nil, r.noFit(k.model, p.devices, err)
		}
		k.pipes = append(k.pipes, chosen)
	}
	return k, r.timed(k)
}

// joined returns what the chunks of each device of a replica were measured to take as one stage, with
// nothing recomputed that the plan chose to. Devices with chunks that nobody measured are left out.
func joined(now *candidate, replica plan.Replica, workers int, stages []MeasuredStage) (out []MeasuredStage) {
	row := now.layout.Rows[replica]
	sums, chunks := make([]MeasuredStage, workers), make([]int, workers)
	for _, seen := range stages {
		if seen.Replica != replica || seen.Stage < 0 || int(seen.Stage) >= len(row) {
			continue
		}
		at, again := row[seen.Stage], schedule.Nanos(0)
		w := slices.IndexFunc(row, func(s cost.Stage) bool { return s.Device == at.Device })
		for i, level := range at.Levels {
			if level != model.RecomputeNothing {
				again += now.model.Again(at, i, level).Time
			}
		}
		sums[w].ForwardNanos += seen.ForwardNanos
		sums[w].BackwardNanos += max(1, seen.BackwardNanos-int64(again)*int64(now.layout.Micros[replica]))
		sums[w].UpdateNanos += seen.UpdateNanos
		chunks[w]++
	}
	for w, sum := range sums {
		if sum.Replica, sum.Stage = replica, plan.Stage(w); chunks[w]*workers == len(row) {
			out = append(out, sum)
		}
	}
	return out
}

// adoptGrouped returns a grouped plan as a candidate, simulated with measured times.
func (r *reselection) adoptGrouped(p plan.Plan) (*candidate, error) {
	k, err := r.adopt(p)
	if err != nil {
		return nil, err
	}
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", plan.ErrBadPlan, err)
	}
	k.order = ordering{spec: spec, copies: 1}
	k.model.SetMeasured(k.layout.Rows, k.layout.Micros, r.measured.Stages)
	if err := k.layout.Time(k.model); err != nil {
		return nil, fmt.Errorf("planner: reselect: %w", err)
	}
	k.layout.SumNeeds(k.model)
	return k, r.timed(k)
}
