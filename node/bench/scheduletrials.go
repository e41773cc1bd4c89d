package bench

import (
	"errors"
	"math"
	"slices"
	"time"

	"pnode/pipeline/link"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/plan"
)

// trial is one schedule to run.
type trial struct {
	name, cap string
	spec      string // of the plan
	warmups   []int
	// memoryBytes is what each device has; nil for any amount.
	memoryBytes []int64
	// place changes the placement of a stage; nil changes none.
	place func(stage int, p *plan.Placement)
}

// trials returns the elastic schedule under each cap, and those to compare it with. First comes the
// one with the most traffic: connections forget on slower schedules what they can carry.
func (c *scheduleCase) trials(shape link.LinkConditions, wireBytes int) ([]trial, error) {
	var all []trial
	for _, limit := range []struct {
		name   string
		of1F1B int // activations, in those that 1F1B keeps; 0: no limit
	}{{noCap, 0}, {"2x", 2}, {"1f1b", 1}} {
		t := trial{name: elasticName, cap: limit.name, spec: "1f1b"}
		var caps []int
		var err error
		if limit.of1F1B > 0 {
			for stage := range c.stages {
				caps = append(caps, limit.of1F1B*(c.stages-stage))
			}
			if t.memoryBytes, err = c.capped(caps); err != nil {
				return nil, err
			}
		}
		if t.warmups, err = c.elastic(shape, wireBytes, caps); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	groups, shorter, err := c.groups(c.costs(shape, wireBytes), all[0])
	if err != nil {
		return nil, err
	}
	if shorter {
		all = append(all, groups)
	}
	all = append(all, trial{name: "1f1b", cap: noCap, spec: "1f1b", warmups: schedule.DepthWarmups(c.stages, 1)})
	for _, name := range []string{"gpipe", "depth-first", "breadth-first"} {
		all = append(all, trial{name: name, cap: noCap, spec: name})
	}
	return all, nil
}

// elastic returns the warm-ups that the planner would choose for messages of so many bytes.
func (c *scheduleCase) elastic(shape link.LinkConditions, wireBytes int, caps []int) ([]int, error) {
	line := cost.Link{BytesPerS: shape.BytesPerS, RTTNanos: 2 * shape.Delay.Nanoseconds()}
	p := elastic.Problem{Micros: schedule.MaxNumber, MarginPercent: elastic.UsualMargin}
	for i, t := range c.times {
		room := int64(math.MaxInt32)
		if caps != nil {
			room = int64(caps[i])
		}
		p.Stages = append(p.Stages, elastic.Stage{Time: t, RoomBytes: room, SlotBytes: 1})
		if i > 0 {
			p.Boundaries = append(p.Boundaries, elastic.Boundary{Elements: int64(wireBytes-plan.CodecFront) / 4, Forth: line, Back: line})
		}
	}
	d, err := elastic.Choose(p)
	return d.Warmups, err
}

// groups returns interleaving in the groups that end first, and whether its step is shorter than the
// elastic trial's: it fills and drains sooner where links leave room for the traffic of chunks.
func (c *scheduleCase) groups(costs schedule.Costs, plain trial) (t trial, shorter bool, err error) {
	p := elastic.Interleaving{Workers: c.stages, Micros: c.micros}
	if p.Costs, err = c.chunked(costs, chunksPerStage*c.stages); err != nil {
		return t, false, err
	}
	g, err := elastic.ChooseGroups(p)
	if err != nil {
		return t, false, err
	}
	t = trial{name: groupsName, cap: noCap, spec: g.Spec(p).String()}
	step, err := c.step(plain, costs)
	if err != nil {
		return t, false, err
	}
	grouped, err := c.step(t, costs)
	if errors.Is(err, schedule.ErrInvalid) || errors.Is(err, schedule.ErrBadShape) {
		return t, false, nil // workers cannot run it
	}
	return t, grouped < step, err
}

// step returns the simulated time of a trial.
func (c *scheduleCase) step(t trial, costs schedule.Costs) (time.Duration, error) {
	plan, err := c.plan(t, 1)
	if err != nil {
		return 0, err
	}
	_, step, err := c.predict(plan, costs)
	return step, err
}

// groupOf returns the size of a schedule's groups of micro-batches: otherwise where it has none, 0
// where they differ.
func groupOf(spec schedule.Spec, otherwise int) int {
	for _, p := range spec.Params {
		switch p.Name {
		case "k":
			return p.Values[0]
		case "f", "b":
			if n := len(p.Values); n > 1 && slices.Max(p.Values[:n-1]) != slices.Min(p.Values[:n-1]) {
				return 0
			}
			otherwise = p.Values[0]
		}
	}
	return otherwise
}
