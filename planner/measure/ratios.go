package measure

import (
	"cmp"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Bounds of a ratio, in thousandths: a device is counted on with no less than a 64th of its profile, and with no more than eight
// times.
const (
	LeastRatio, WholeRatio, MostRatio = 125, 1000, 64_000

	// averageOf is how many steps the average of a device's ratios is of, roughly.
	averageOf = 4
	// agreeing samples in a row change what plans count on. Where the member says itself that it became slower, which takes SlowRow
	// slow steps, none more is needed.
	agreeing, SlowRow = 12, 3
	// mostSlowed bounds how often that number is doubled for a device that was slow before.
	mostSlowed = 4
	// longestWork bounds what a member may say that its work of a step takes: 13 days.
	longestWork = 1 << 50
)

// ratios lists the values that plans count on: two an octave, so that what changes a little is not searched for anew.
var ratios = [...]int64{LeastRatio, 177, 250, 354, 500, 707, WholeRatio, 1414, 2000, 2828, 4000, 5657, 8000, 11_314, 16_000, 22_627, 32_000, 45_255, MostRatio}

// Ratio says how long a device computes, in thousandths of what its profile says.
type Ratio struct {
	Worker   plan.WorkerID
	Permille int64
}

// Work says what a device did in a step.
type Work struct {
	Worker plan.WorkerID
	// Rate counts its products a second by the profile that plans count on.
	Rate int64
	// Believed devices may compute faster than their profiles say: owners' devices. What others say of themselves can only lower
	// what is counted on.
	Believed bool
	// PlannedNanos is how long it was to compute by the profile, ReportedNanos how long it did as its member says.
	PlannedNanos, ReportedNanos int64
	// Slower: the member says that something there takes much longer than it used to.
	Slower bool
}

// Ratios follows how long the devices of a run compute against what their profiles say. The zero value has seen nothing.
//
// Times of all devices that are as much longer are no news of any: the model is off. So devices are compared with the one that is the least
// slow. Who lies can make itself slower, and others no slower than they say that they are.
type Ratios struct {
	devices map[plan.WorkerID]*pace
	changed plan.Step
}

// pace holds what a device has shown.
type pace struct {
	rate    int64 // of the profile that what follows is against
	average int64 // in thousandths
	counted int64 // one of ratios
	// agreed counts the newest samples in a row that speak for less, or for more; negative where it is less. since is the step of the first.
	agreed int
	since  plan.Step
	slowed int // how often it became slower
}

// Note takes in a step of the plan that runs, with all of its devices of which something is known. It reports whether plans
// count on something else now.
func (r *Ratios) Note(step plan.Step, of []Work) (changed bool) {
	if r.devices == nil {
		r.devices = map[plan.WorkerID]*pace{}
	}
	of = slices.DeleteFunc(slices.Clone(of), func(w Work) bool { return min(w.PlannedNanos, w.ReportedNanos, w.Rate) <= 0 })
	least := int64(longestWork)
	for _, w := range of {
		least = min(least, r.average(w))
	}
	least = max(least, WholeRatio)
	for _, w := range of {
		if d := r.devices[w.Worker]; d.follow(step, against(d.average, least, w.Believed), w.Slower) {
			r.changed, changed = d.since, true
		}
	}
	return changed
}

// average takes a device's newest step into its average, which it returns.
func (r *Ratios) average(w Work) int64 {
	seen := max(1, min(w.ReportedNanos, longestWork)*WholeRatio/min(w.PlannedNanos, longestWork))
	seen = min(seen, longestWork/WholeRatio)
	d := r.devices[w.Worker]
	switch {
	case d == nil:
		d = &pace{rate: w.Rate, average: seen, counted: WholeRatio}
		r.devices[w.Worker] = d
	case d.rate != w.Rate:
		*d = pace{rate: w.Rate, average: seen, counted: d.under(w.Rate), slowed: d.slowed}
	case w.Slower:
		d.average = seen
	default:
		d.average += (seen - d.average) / averageOf
	}
	return d.average
}

// against returns the ratio of a device among others: the least slow of which takes so many thousandths of what it should.
func against(average, least int64, believed bool) int64 {
	switch {
	case average > WholeRatio:
		average = max(WholeRatio, average*WholeRatio/least)
	case !believed:
		average = WholeRatio
	}
	return max(LeastRatio, min(average, MostRatio))
}

// nearest returns the value of ratios that is nearest to one.
func nearest(ratio int64) int64 {
	at := ratios[0]
	for _, r := range ratios {
		if ratio*WholeRatio >= r*841 { // the fourth root of a half below it
			at = r
		}
	}
	return at
}

// follow takes in a ratio, and reports whether another one is counted on now. One within 2^(3/8) of that speaks for it.
func (d *pace) follow(step plan.Step, ratio int64, slower bool) bool {
	direction := 0
	switch {
	case ratio*1000 > d.counted*1297:
		direction = 1
	case ratio*1297 < d.counted*1000:
		direction = -1
	}
	if direction == 0 || direction*d.agreed < 0 {
		d.agreed = 0
	}
	if direction == 0 {
		return false
	}
	if d.agreed += direction; d.agreed*direction == 1 {
		d.since = step
	}
	need := agreeing
	switch {
	case direction < 0: // is it fast again for good?
		need <<= min(d.slowed, mostSlowed)
	case slower && direction > 0 && d.slowed < mostSlowed:
		need, d.since = 1, min(d.since, max(step, SlowRow)-SlowRow+1)
	}
	if d.agreed*direction < need {
		return false
	}
	if direction > 0 {
		d.slowed++
	}
	d.counted, d.agreed = nearest(ratio), 0
	return true
}

// under returns what is counted on where the profile's rate is another one. A lower rate has in it what was seen. One that is
// twice as high is news.
func (d *pace) under(rate int64) int64 {
	switch {
	case rate >= 2*d.rate:
		return WholeRatio
	case rate >= d.rate || d.counted <= WholeRatio:
		return d.counted
	}
	return max(WholeRatio, nearest(int64(cost.MulDiv(schedule.Nanos(d.counted), schedule.Nanos(rate), schedule.Nanos(d.rate)))))
}

// Changed returns the step from which on a device showed what plans count on since the newest change of that; 0 where nothing
// changed.
func (r *Ratios) Changed() plan.Step { return r.changed }

// Known returns the devices that count with another speed than their profiles say.
func (r *Ratios) Known() (of []plan.WorkerID) {
	for w, d := range r.devices {
		if d.counted != WholeRatio {
			of = append(of, w)
		}
	}
	slices.SortFunc(of, func(a, b plan.WorkerID) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Device, b.Device))
	})
	return of
}

// Of returns what plans count on for a device whose profile has a rate.
func (r *Ratios) Of(w plan.WorkerID, rate int64) Ratio {
	d := r.devices[w]
	switch {
	case d == nil:
		return Ratio{w, WholeRatio}
	case d.rate != rate:
		return Ratio{w, d.under(rate)}
	}
	return Ratio{w, d.counted}
}

// Forget counts on a device's profile again: nothing is seen of it, and it measures itself.
func (r *Ratios) Forget(w plan.WorkerID) {
	if d := r.devices[w]; d != nil {
		*d = pace{rate: d.rate, average: WholeRatio, counted: WholeRatio, slowed: d.slowed}
	}
}
