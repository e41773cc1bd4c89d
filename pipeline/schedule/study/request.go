package study

import (
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/schedule"
)

// Request describes a study. Times and links are one value for all or one for each stage
// and each boundary between stages; those of no value take no time.
type Request struct {
	// Kind is a name, or the text of a schedule.Spec.
	Kind string
	// Options beside those that the Kind's text gives, costs and caps.
	Options  schedule.Options
	Forward  []Nanos
	Backward []Nanos // whole; Weight is a part of it, half if there is no value
	Weight   []Nanos
	// Recompute is how long a stage restores its activations; 0 keeps them.
	Recompute []Nanos
	Update    []Nanos
	Links     []schedule.Hop
	// Caps are by worker how many micro-batches' activations fit; none is no limit.
	Caps   []int
	Jitter schedule.Jitter
}

// Bounds of a request: a picture and a simulation of that much are quick.
const (
	maxStages = 256
	maxMicros = 4096
)

// kind finds the generator and takes the options that its text gives.
func (r *Request) kind() (schedule.Kind, error) {
	name, params, has := strings.Cut(r.Kind, ":")
	k, ok := schedule.KindNamed(name)
	if !ok {
		var names []string
		for _, k := range schedule.Kinds() {
			names = append(names, k.Name)
		}
		return k, bad("--kind", r.Kind, "one of "+strings.Join(names, ", ")+"; `pnode schedule --list` explains them")
	}
	if !has {
		return k, nil
	}
	spec, err := schedule.ParseSpec(r.Kind)
	if err != nil {
		return k, fmt.Errorf("%w: --kind is %q: %w", ErrBadRequest, name+":"+params, err)
	}
	spec.Set(&r.Options)
	return k, nil
}

// check bounds the numbers before anything is made of them.
func (r *Request) check(k schedule.Kind) error {
	o := r.Options
	switch {
	case o.Stages < 1 || o.Stages > maxStages:
		return bad("--stages", fmt.Sprint(o.Stages), fmt.Sprintf("1 to %d", maxStages))
	case o.Micros < 1 || o.Micros > maxMicros:
		return bad("--micro", fmt.Sprint(o.Micros), fmt.Sprintf("1 to %d", maxMicros))
	case o.Segments < 0 || o.Segments*o.Micros > maxMicros:
		return bad("--segments", fmt.Sprint(o.Segments), fmt.Sprintf("1 or more, and at most %d segments in all micro-batches", maxMicros))
	}
	if v := k.StagesPerWorker(o); v < 1 || o.Stages%v != 0 {
		want := fmt.Sprintf("a multiple of %d: %s has %d stages on each worker (--chunks)", v, k.Name, v)
		return bad("--stages", fmt.Sprint(o.Stages), want)
	}
	return nil
}

// costs returns the costs of the down pipeline.
func (r *Request) costs() (schedule.Costs, error) {
	n := r.Options.Stages
	columns := [][]Nanos{r.Forward, r.Backward, r.Weight, r.Recompute, r.Update}
	for i, field := range []string{"--forward", "--backward", "--weight", "--recompute", "--update"} {
		var err error
		if columns[i], err = each(field, columns[i], n, "stage"); err != nil {
			return schedule.Costs{}, err
		}
	}
	links, err := each("--link", r.Links, n-1, "boundary between stages")
	if err != nil {
		return schedule.Costs{}, err
	}
	c := schedule.Costs{Stages: make([]schedule.StageTime, n), Boundaries: make([]schedule.Boundary, n-1)}
	for s := range c.Stages {
		back, weight := columns[1][s], columns[2][s]
		if len(r.Weight) == 0 {
			weight = back / 2
		}
		if weight > back {
			return schedule.Costs{}, fmt.Errorf("%w: --weight is longer than --backward on stage %d: want a part of it", ErrBadRequest, s)
		}
		c.Stages[s] = schedule.StageTime{
			Forward: columns[0][s], Input: back - weight, Weight: weight, Recompute: columns[3][s], Update: columns[4][s],
		}
	}
	for i, hop := range links {
		c.Boundaries[i] = schedule.Boundary{Activation: hop, Gradient: hop}
	}
	return c, nil
}

// timing returns each replica costs: an up pipeline, which has its stages on the workers in
// reverse, goes over the links in reverse.
func (r *Request) timing(c schedule.Costs, replicas int) (schedule.Timing, error) {
	if replicas > 2 && !slices.Equal(c.Boundaries, slices.Repeat(c.Boundaries[:1], len(c.Boundaries))) {
		return schedule.Timing{}, fmt.Errorf("%w: --link differs among boundaries: "+
			"several pairs of pipelines need one value for all, since they join other workers too", ErrBadRequest)
	}
	t := schedule.Timing{Jitter: r.Jitter}
	for i := range replicas {
		line := c
		if i%2 == 1 {
			line.Boundaries = slices.Clone(c.Boundaries)
			slices.Reverse(line.Boundaries)
		}
		t.Replicas = append(t.Replicas, line)
	}
	return t, nil
}
