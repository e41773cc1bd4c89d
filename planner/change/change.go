package change

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// shortStop is how long a change of plan stops the steps at least where none was seen and no state moves: all stages are
// saved, the log agrees on the plan, and the first step of it begins with empty stages.
const shortStop schedule.Nanos = 1e9

// Change compares a plan that runs with one that would take its place.
type Change struct {
	// Now is the predicted step of the plan that runs, Then that of the other one.
	Now, Then schedule.Nanos
	// Bytes of state go to nodes that lack it, which takes lines the time Move.
	Bytes int64
	Move  schedule.Nanos
}

// Stop is how long an earlier change of the run stopped the steps.
type Stop struct {
	// Ends is the generation that it ended.
	Ends plan.Generation
	// Rest is until the next plan was there, Load from then until its first step was made.
	Rest, Load schedule.Nanos
	// Move is how long its state was predicted to be on the way; 0 where none was, or nobody knows.
	Move schedule.Nanos
}

// Outlook says for how long the next plan is of use, and how long earlier changes have stopped the steps.
type Outlook struct {
	// Left counts the steps that the run still has to do.
	Left plan.Step
	// Lasts is how long it takes until a member leaves or is lost: a plan is of use for no longer.
	Lasts schedule.Nanos
	// Stops are the newest earlier changes of the run, the newest last.
	Stops []Stop
}

// mostOff bounds how many times as long as predicted, or as short, state is expected to be on the way by what earlier changes took.
const mostOff = 16

// load returns how long a change takes from the next plan to its first step, by how long earlier ones did: as those in the median whose state needed no more than
// shortStop, or as long as its own state is on the way, where the predictions for others were as wrong. It reports which of the two.
func (c Change) load(stops []Stop) (t schedule.Nanos, moves bool) {
	const whole = 1024
	var short, off []schedule.Nanos
	for _, s := range stops {
		if s.Move <= shortStop {
			short = append(short, s.Load)
			continue
		}
		off = append(off, min(max(muldiv(s.Load, whole, s.Move), whole/mostOff), whole*mostOff))
	}
	least, by := c.Now, schedule.Nanos(whole)
	if len(short) > 0 {
		least = median(short)
	}
	if len(off) > 0 {
		by = median(off)
	}
	move := muldiv(c.Move, by, whole)
	return max(least, move), move > least
}

// muldiv returns a*b/c of values that are not negative, as far as that can be told.
func muldiv(a, b, c schedule.Nanos) schedule.Nanos {
	high, low := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if high >= uint64(c) {
		return math.MaxInt64
	}
	n, _ := bits.Div64(high, low, uint64(c))
	return schedule.Nanos(min(n, math.MaxInt64))
}

// sum returns a+b of values that are not negative, as far as that can be told.
func sum(a, b schedule.Nanos) schedule.Nanos { return a + min(b, math.MaxInt64-a) }

// roughly returns a time with two digits: nobody knows it better beforehand.
func roughly(t schedule.Nanos) schedule.Nanos {
	unit := schedule.Nanos(1)
	for t/unit >= 100 {
		unit *= 10
	}
	return sum(t/unit*unit, t%unit/max(unit/2, 1)*unit)
}

// median returns the middle of values, the larger one of two.
func median(values []schedule.Nanos) schedule.Nanos {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// stop returns how long a change is expected to stop the steps, and how that is told: with how long earlier ones did.
func (c Change) stop(o Outlook) (stop schedule.Nanos, why string) {
	if len(o.Stops) == 0 {
		if stop = shortStop + c.Now; c.Move > stop {
			return c.Move, fmt.Sprintf("%s, for %s of state on the way", plan.Duration(c.Move), plan.Size(c.Bytes))
		}
		return stop, plan.Duration(stop) + ", as is assumed before the first change"
	}
	var rests, all []schedule.Nanos
	for _, s := range o.Stops {
		rests, all = append(rests, s.Rest), append(all, sum(s.Rest, s.Load))
	}
	load, moves := c.load(o.Stops)
	stop = sum(median(rests), load)
	why = "about " + plan.Duration(roughly(stop))
	if moves {
		why += fmt.Sprintf(", %s of them for %s of state on the way", plan.Duration(roughly(load)), plan.Size(c.Bytes))
	}
	if n := len(all); n > 1 {
		return stop, fmt.Sprintf("%s: the last %d took %s to %s", why, n, plan.Duration(slices.Min(all)), plan.Duration(slices.Max(all)))
	}
	return stop, fmt.Sprintf("%s: the last one took %s", why, plan.Duration(all[0]))
}

// steps returns how many steps the other plan is of use for, and why no more.
func (c Change) steps(o Outlook) (n plan.Step, why string) {
	if lasts := plan.Step(max(o.Lasts, 0) / max(c.Then, 1)); lasts < o.Left {
		return lasts, "before a member leaves again"
	}
	return o.Left, "to the end of the run"
}

// Pays reports whether a change gains more time than it takes, and says why.
func (c Change) Pays(o Outlook) (pays bool, why string) {
	stop, because := c.stop(o)
	steps, until := c.steps(o)
	gain := max(0, c.Now-c.Then)
	pays = gain > 0 && uint64(steps) > uint64(stop/gain) // gain * steps > stop, without its overflow
	total := schedule.Nanos(math.MaxInt64)
	if n := schedule.Nanos(min(steps, math.MaxInt32)); gain <= total/max(n, 1) {
		total = gain * n
	}
	return pays, fmt.Sprintf("that gains %s in %s %s, and a change stops them for %s",
		plan.Duration(total), plan.Count(int(min(steps, math.MaxInt32)), "step"), until, because)
}

// Spare is a member without a stage in a plan that runs.
type Spare struct {
	Peer plan.PeerID
	// With is the predicted step of the best plan that uses it, 0 where the search saw none. Without is that of the best one that does not,
	// which may be the one that runs.
	With, Without schedule.Nanos
}

// Decision is an answer with its reason.
type Decision struct {
	Replan bool
	Reason string
	// Change is what is gained and what moves, where the current plan could go on; else zero.
	Change Change
	// Spares are the members with devices and without a stage in the current plan, where it could go on.
	Spares []Spare
}

// Pays returns the decision once the cost of a change is weighed: what is gained until the plan is of no more use must be
// more than the time for which steps stop. What cannot go on does not have to pay.
func (d Decision) Pays(o Outlook) Decision {
	if d.Replan && d.Change != (Change{}) {
		pays, why := d.Change.Pays(o)
		d.Replan, d.Reason = pays, d.Reason+": "+why
	}
	return d
}
