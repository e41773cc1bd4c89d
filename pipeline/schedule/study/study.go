package study

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/pipeline/schedule/draw"
)

// Study is the answer to a Request. Times are nanoseconds.
type Study struct {
	Kind string `json:"kind"`
	// Spec is the schedule's name in a plan; 1f1b with Warmups for what is elastic.
	Spec     string         `json:"spec"`
	Warmups  []int          `json:"warmups,omitempty"`
	Micros   int            `json:"micros"`
	Makespan schedule.Nanos `json:"makespan_ns"`
	// Work is what the busiest worker computes, Bubble the share of the makespan without it.
	Work   schedule.Nanos `json:"work_ns"`
	Bubble float64        `json:"bubble"`
	// Period is the time for one more micro-batch once all workers are busy, Floor what no
	// order can beat. 0: the kind has no more micro-batches than these.
	Period  schedule.Nanos `json:"period_ns"`
	Floor   schedule.Nanos `json:"floor_ns"`
	Bound   string         `json:"bound"`
	Workers []Worker       `json:"workers"`
	Program string         `json:"program"`

	timeline schedule.Timeline
	segments int
}

// Worker sums up one worker's time and memory.
type Worker struct {
	// Holds are its stages, with the replica in front where there are several.
	Holds []string       `json:"holds"`
	Busy  schedule.Nanos `json:"busy_ns"`
	Idle  schedule.Nanos `json:"idle_ns"`
	// Exposed is the part of Idle in which its next message was under way.
	Exposed schedule.Nanos `json:"exposed_ns"`
	// Live is the most micro-batches whose activations a stage of it kept, summed over its
	// stages.
	Live int `json:"peak_live"`
}

// Run makes the schedule and times it.
func Run(r Request) (Study, error) {
	k, err := r.kind()
	if err != nil {
		return Study{}, err
	}
	if err := r.check(k); err != nil {
		return Study{}, err
	}
	costs, err := r.costs()
	if err != nil {
		return Study{}, err
	}
	workers := r.Options.Stages / k.StagesPerWorker(r.Options)
	if len(r.Caps) > 0 {
		if r.Caps, err = each("--cap", r.Caps, workers, "worker"); err != nil {
			return Study{}, err
		}
		r.Options.Caps = r.Caps
	}
	r.Options.Costs = costs
	timing, err := r.timing(costs, k.Replicas(r.Options))
	if err != nil {
		return Study{}, err
	}
	s, err := r.make(k, costs)
	if err != nil {
		return Study{}, err
	}
	line, err := schedule.Simulate(s, timing)
	if err != nil {
		return Study{}, err
	}
	named := r.Options
	named.Orders = s.Orders() // the name of what was found has them
	out := Study{
		Kind: k.Name, Spec: k.Spec(named).String(), Micros: r.Options.Micros,
		Makespan: line.Makespan, Program: s.String(), timeline: line, segments: s.Segments,
	}
	if k.NeedsCosts {
		out.Spec = "1f1b"
		out.Warmups, _, _ = schedule.MinimalWarmups(costs, r.Options.Caps) // Make did the same without an error
	}
	out.figures(s, timing)
	if p := r.period(k, costs, timing); p > 0 {
		out.Period = max(p, out.Floor) // a kind that searches may do better with three times the micro-batches than with twice
	}
	out.Bound = bound(line)
	return out, nil
}

// make is the schedule with everything that a runner adds to it.
func (r *Request) make(k schedule.Kind, c schedule.Costs) (schedule.Schedule, error) {
	s, err := k.Make(r.Options)
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	if slices.ContainsFunc(c.Stages, func(t schedule.StageTime) bool { return t.Recompute > 0 }) {
		s = schedule.WithRecompute(s, func(_ schedule.Replica, st schedule.Stage) bool { return c.Stages[st].Recompute > 0 })
	}
	s = schedule.WithReduceAndStep(schedule.WithCommunication(s))
	limits := schedule.Limits{}
	for _, n := range r.Caps {
		limits.CapBytes = append(limits.CapBytes, int64(n*k.StagesPerWorker(r.Options)))
	}
	if err := schedule.Validate(s, limits); err != nil {
		return schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return s, nil
}

// period simulates twice and three times the micro-batches; 0 if the kind refuses them.
func (r Request) period(k schedule.Kind, c schedule.Costs, t schedule.Timing) schedule.Nanos {
	micros := r.Options.Micros
	var ends [2]schedule.Nanos
	for i := range ends {
		r.Options.Micros = (i + 2) * micros
		s, err := r.make(k, c)
		if err != nil {
			return 0
		}
		if ends[i], err = schedule.Makespan(s, t); err != nil {
			return 0
		}
	}
	return (ends[1] - ends[0]) / schedule.Nanos(micros)
}

// figures fills in what each worker does, and the floor of the period: the most that a
// worker computes, or a link carries, for a micro-batch.
func (s *Study) figures(list schedule.Schedule, t schedule.Timing) {
	waits := s.timeline.Waits()
	links := map[[2]int]schedule.Nanos{}
	for _, m := range s.timeline.Messages {
		link, boundaries := [2]int{m.From, m.To}, t.Replicas[m.Action.Replica].Boundaries
		if m.Action.Op == schedule.ReceiveActivation {
			links[link] += boundaries[m.Action.Stage-1].Activation.Transfer
		} else {
			links[link] += boundaries[m.Action.Stage].Gradient.Transfer
		}
	}
	for _, sum := range links {
		s.Floor = max(s.Floor, sum/schedule.Nanos(s.Micros))
	}
	for w, actions := range list.Workers {
		worker := Worker{Idle: s.timeline.Idle(w), Live: s.timeline.PeakLive[w]}
		worker.Busy = s.Makespan - worker.Idle
		for _, wait := range waits[w] {
			worker.Exposed += wait.End - wait.Exposed
		}
		for _, a := range actions {
			name := fmt.Sprint(a.Stage)
			if list.Replicas() > 1 {
				name = fmt.Sprintf("r%d/%d", a.Replica, a.Stage)
			}
			if a.Op == schedule.Forward && !slices.Contains(worker.Holds, name) {
				worker.Holds = append(worker.Holds, name)
			}
		}
		s.Work = max(s.Work, worker.Busy)
		s.Workers = append(s.Workers, worker)
	}
	s.Floor = max(s.Floor, s.Work/schedule.Nanos(s.Micros))
	if s.Makespan > 0 {
		s.Bubble = float64(s.Makespan-s.Work) / float64(s.Makespan)
	}
}

// SVG draws the timeline.
func (s Study) SVG(w io.Writer) error {
	notes := []string{s.summary(), s.Bound}
	err := draw.SVG(w, draw.Panel{Title: s.title(), Notes: notes, Line: s.timeline, Segments: s.segments})
	if errors.Is(err, draw.ErrTooLarge) {
		return fmt.Errorf("%w: --svg: %w", ErrBadRequest, err)
	}
	return err
}
