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
	// End is when the last backward ends, where that is known already; else 0.
	End schedule.Nanos
}

// Job is one step of a plan.
type Job struct {
	Pipelines []Pipeline
	// Reduce is the time of the reduction between replicas, Tied of the exchange of the
	// tied embedding's gradient, Commit of the agreement on the step, Update of the slowest
	// optimizer, Gather of the exchange of parameters that replicas updated in parts. They
	// follow one another.
	Reduce, Tied, Commit, Update, Gather schedule.Nanos
}

// Result is a predicted step.
type Result struct {
	Step schedule.Nanos
	// Pipelines has by replica when its last backward ends; Slowest is the latest.
	Pipelines []schedule.Nanos
	Slowest   int
}

// Run simulates the step of a job.
func Run(j Job) (Result, error) {
	out := Result{Pipelines: make([]schedule.Nanos, len(j.Pipelines))}
	for r, p := range j.Pipelines {
		end, err := p.Makespan()
		if err != nil {
			return Result{}, fmt.Errorf("sim: replica %d: %w", r, err)
		}
		if out.Pipelines[r] = end; end > out.Pipelines[out.Slowest] {
			out.Slowest = r
		}
	}
	if len(out.Pipelines) > 0 {
		out.Step = out.Pipelines[out.Slowest]
	}
	out.Step += j.Tail()
	return out, nil
}

// Tail returns the time of what follows the pipelines.
func (j Job) Tail() schedule.Nanos { return j.Reduce + j.Tied + j.Commit + j.Update + j.Gather }

// Unlinked returns the job with messages that take no time. Pipelines whose end is known stay as they are.
func (j Job) Unlinked() Job {
	j.Pipelines = slices.Clone(j.Pipelines)
	for i := range j.Pipelines {
		costs := &j.Pipelines[i].Costs
		costs.Boundaries = make([]schedule.Boundary, len(costs.Boundaries))
	}
	return j
}

// Makespan simulates the pipeline. Long steps are not simulated to the end: once a
// pipeline is under way, each further micro-batch takes a period.
func (p Pipeline) Makespan() (schedule.Nanos, error) {
	if p.End > 0 {
		return p.End, nil
	}
	micros := 32 + 4*len(p.Costs.Stages) // fill and drain no longer show after some times the number in flight
	if len(p.Warmups) > 0 {
		micros += 8 * p.Warmups[0]
	}
	micros = min(micros, p.Micros)
	end, err := p.simulate(micros)
	return end + schedule.Nanos(p.Micros-micros)*p.Costs.Period(p.Warmups), err
}

func (p Pipeline) simulate(micros int) (schedule.Nanos, error) {
	s, err := schedule.Warmups(schedule.Shape{Stages: len(p.Costs.Stages), Micros: micros}, p.Warmups)
	if err != nil {
		return 0, err
	}
	s = schedule.WithRecompute(s, func(_ schedule.Replica, st schedule.Stage) bool { return p.Costs.Stages[st].Recompute > 0 })
	return schedule.Makespan(s, schedule.Timing{Replicas: []schedule.Costs{p.Costs}})
}

// Estimate returns the makespan without simulation: one micro-batch alone, then one a period.
func (p Pipeline) Estimate() schedule.Nanos {
	if p.End > 0 {
		return p.End
	}
	return p.Costs.RoundTrip() + schedule.Nanos(p.Micros-1)*p.Costs.Period(p.Warmups)
}
