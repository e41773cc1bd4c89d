package local

import (
	"pnode/node/api"
	"pnode/planner/plan"
)

// maxAhead bounds the steps that wait for those before them: what a node's history holds.
const maxAhead = api.HistoryEvents

// order puts the steps that several nodes report into one sequence: each once, none after a newer one. A node that came
// into a generation late reports from there on, and may be heard before another has reported what was
// before: then its steps wait. It is not safe for use by several goroutines.
type order struct {
	generation plan.Generation // of the newest step shown
	step       plan.Step
	ahead      map[plan.Step]api.Event // of that generation, more than a step ahead
}

// take takes in a step and returns those whose turn it is.
func (o *order) take(e api.Event) (turn []api.Event) {
	switch {
	case e.Generation < o.generation, e.Generation == o.generation && e.Step <= o.step:
		return nil
	case e.Generation > o.generation:
		turn = append(o.flush(), e)
		o.generation, o.step, o.ahead = e.Generation, e.Step, map[plan.Step]api.Event{}
		return turn
	}
	o.ahead[e.Step] = e
	if len(o.ahead) > maxAhead {
		return o.flush()
	}
	return o.next()
}

// next returns the steps that follow the newest one shown without a gap.
func (o *order) next() (turn []api.Event) {
	for e, ok := o.ahead[o.step+1]; ok; e, ok = o.ahead[o.step+1] {
		delete(o.ahead, e.Step)
		o.step = e.Step
		turn = append(turn, e)
	}
	return turn
}

// flush gives up on the steps that are missing and returns those that waited for them.
func (o *order) flush() (turn []api.Event) {
	for len(o.ahead) > 0 {
		if _, ok := o.ahead[o.step+1]; !ok {
			o.step++
			continue
		}
		turn = append(turn, o.next()...)
	}
	return turn
}
