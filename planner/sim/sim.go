package sim

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
)

// Pipeline is one replica of a plan. Stages whose costs have a Recompute recompute ahead of their
// gradients.
type Pipeline struct {
	Costs   schedule.Costs
	Warmups []int
	Micros  int
	// Passes are by stage, where they are known already; else nil.
	Passes []schedule.Interval
}

// Job is one step of a plan.
type Job struct {
	Pipelines []Pipeline
	// Reduce is the time of the reduction between replicas, Tied of the exchange of the
	// tied embedding's gradient, Commit of the agreement on the step, Update of the slowest
	// optimizer, Gather of the exchange of parameters that replicas updated in parts. They
	// follow one another in an estimate, and in a job without a Tail.
	Reduce, Tied, Commit, Update, Gather schedule.Nanos
	Tail                                 *Tail
	// Outer is by how much outer steps lengthen one on average.
	Outer schedule.Nanos
	// PostValidation has workers apply a step, and begin with the forwards of the next one, before its commit. It is for one pipeline with a Tail.
	PostValidation bool
}

// Result is a predicted step.
type Result struct {
	Step schedule.Nanos
	// Pipelines has by replica when its last backward ends; Slowest is the latest.
	Pipelines []schedule.Nanos
	Slowest   int
	// Passes are by replica and stage.
	Passes [][]schedule.Interval
	// Exchange is by how much what replicas and the ends of the model exchange lengthens the step, outer steps included, then Commit and Update.
	Exchange, Commit, Update schedule.Nanos
	// Saved is by how much the step is shorter since workers do not wait for its commit. Nothing of it is Commit or Update then.
	Saved schedule.Nanos
}

// Run simulates the step of a job.
func Run(j Job) (Result, error) {
	out := Result{Pipelines: make([]schedule.Nanos, len(j.Pipelines))}
	all := make([][]schedule.Interval, len(j.Pipelines))
	out.Passes = all
	for r, p := range j.Pipelines {
		var err error
		if all[r], err = p.Intervals(); err != nil {
			return Result{}, fmt.Errorf("sim: replica %d: %w", r, err)
		}
		if out.Pipelines[r] = ended(all[r]); out.Pipelines[r] > out.Pipelines[out.Slowest] {
			out.Slowest = r
		}
	}
	if len(out.Pipelines) > 0 {
		out.Step = out.Pipelines[out.Slowest]
	}
	if j.Tail == nil {
		out.Exchange, out.Commit, out.Update = j.Reduce+j.Tied+j.Gather+j.Outer, j.Commit, j.Update
		out.Step += j.Serial() + j.Outer
		return out, nil
	}
	passes := out.Step
	out.Step = j.Tail.After(all)
	agreed, alone := j.Tail.without(false).After(all), j.Tail.without(true).After(all)
	out.Commit, out.Update, out.Exchange = agreed-passes, alone-agreed, out.Step-alone+j.Outer
	out.Step += j.Outer
	if j.PostValidation {
		if step := j.Tail.PostValidated(all[0]); step < out.Step {
			out.Saved, out.Step = out.Step-step, step
			out.Commit, out.Update = 0, 0
		}
	}
	return out, nil
}

// ended returns when the last pass ends.
func ended(passes []schedule.Interval) (end schedule.Nanos) {
	for _, p := range passes {
		end = max(end, p.End)
	}
	return end
}

// Serial returns the time of what follows the pipelines, one after the other.
func (j Job) Serial() schedule.Nanos { return j.Reduce + j.Tied + j.Commit + j.Update + j.Gather }

// Unlinked returns the job with messages that take no time, and without what follows. Pipelines whose passes are known stay as they are.
func (j Job) Unlinked() Job {
	j = Job{Pipelines: slices.Clone(j.Pipelines)}
	for i := range j.Pipelines {
		costs := &j.Pipelines[i].Costs
		costs.Boundaries = make([]schedule.Boundary, len(costs.Boundaries))
	}
	return j
}

// Makespan returns when the last pass ends, see Intervals.
func (p Pipeline) Makespan() (schedule.Nanos, error) {
	passes, err := p.Intervals()
	return ended(passes), err
}

// Intervals simulates the pipeline and returns the passes of its stages. Long steps are not simulated to the end: once a
// pipeline is under way, each further micro-batch takes a period.
func (p Pipeline) Intervals() ([]schedule.Interval, error) {
	if p.Passes != nil {
		return p.Passes, nil
	}
	micros := 32 + 4*len(p.Costs.Stages) // fill and drain no longer show after some times the number in flight
	if len(p.Warmups) > 0 {
		micros += 8 * p.Warmups[0]
	}
	micros = min(micros, p.Micros)
	passes, err := p.simulate(micros)
	for s := range passes {
		passes[s].End += schedule.Nanos(p.Micros-micros) * p.Costs.Period(p.Warmups)
	}
	return passes, err
}

func (p Pipeline) simulate(micros int) ([]schedule.Interval, error) {
	s, err := schedule.Warmups(schedule.Shape{Stages: len(p.Costs.Stages), Micros: micros}, p.Warmups)
	if err != nil {
		return nil, err
	}
	s = schedule.WithRecompute(s, func(_ schedule.Replica, st schedule.Stage) bool { return p.Costs.Stages[st].Recompute > 0 })
	passes, err := schedule.Intervals(s, schedule.Timing{Replicas: []schedule.Costs{p.Costs}})
	if err != nil {
		return nil, err
	}
	return passes[0], nil
}

// Estimate returns the makespan without simulation: one micro-batch alone, then one a period.
func (p Pipeline) Estimate() schedule.Nanos {
	if p.Passes != nil {
		return ended(p.Passes)
	}
	return p.Costs.RoundTrip() + schedule.Nanos(p.Micros-1)*p.Costs.Period(p.Warmups)
}
