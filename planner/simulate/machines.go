package simulate

import (
	"slices"
)

// add has a machine come. It takes the first free slot.
func (r *run) add(name string) {
	slot := slices.Index(r.taken, false)
	if slot < 0 {
		slot = len(r.taken)
		r.taken, r.tenants = append(r.taken, false), append(r.tenants, 0)
	}
	r.taken[slot] = true
	r.tenants[slot]++
	r.machines[name], r.added[slot] = slot, r.now
	r.queue.push(queued{at: r.now + r.Constants.ReadyNanos, what: machineReady, slot: slot, version: r.tenants[slot]})
}

// ready has a machine be one that can get a part, unless it is gone or leaving by now.
func (r *run) ready(slot, tenant int) {
	if !r.taken[slot] || r.tenants[slot] != tenant || r.draining[slot] {
		return
	}
	class := r.plans.classes.class(slot)
	at, _ := slices.BinarySearch(r.living[class], slot)
	r.living[class] = slices.Insert(r.living[class], at, slot)
	r.joined = true
	r.result.Joins++
	r.sample()
}

// retire has a machine get no part any more.
func (r *run) retire(slot int) {
	class := r.plans.classes.class(slot)
	if at, ok := slices.BinarySearch(r.living[class], slot); ok {
		r.living[class] = slices.Delete(r.living[class], at, at+1)
	}
}

// notice has a machine leave where the policy heeds notices: the next plan does without it.
func (r *run) notice(name string) {
	slot := r.machines[name]
	r.result.Notices++
	if !r.policy.Habits(r.Constants, Facts{}).HeedsNotices {
		return
	}
	r.draining[slot] = true
	r.retire(slot)
	if r.has(slot) {
		r.replan = true
	}
}

// remove takes a machine away and returns its slot.
func (r *run) remove(name string) int {
	slot := r.machines[name]
	r.result.MachineNanos += r.now - r.added[slot]
	delete(r.machines, name)
	delete(r.added, slot)
	r.retire(slot)
	r.taken[slot] = false
	r.result.Losses++
	return slot
}

// has reports whether a machine has a part in the plan that runs, or in the one that steps stop for.
func (r *run) has(slot int) bool {
	for _, s := range []*seated{r.plan, r.next} {
		if s == nil {
			continue
		}
		if i, ok := s.at[slot]; ok && !s.posts[i].layers.empty() {
			return true
		}
	}
	return false
}

// lose answers the loss of machines.
func (r *run) lose(slots []int) {
	var parts []int
	for _, slot := range slots {
		left := r.draining[slot] && !r.has(slot)
		delete(r.draining, slot)
		if r.has(slot) {
			parts = append(parts, slot)
		}
		if left {
			r.result.Left++
		}
		r.clock()
		r.history = r.history.Noted(left)
	}
	var loss Loss
	if len(parts) > 0 && r.phase != waiting {
		loss = r.lossOf(parts)
	}
	for _, slot := range slots {
		r.forget(slot)
	}
	if len(slots) > 0 {
		r.sample()
	}
	if len(parts) == 0 || r.phase == waiting {
		return
	}
	all := r.everything()
	missing := all.without(r.inMemory())
	loss.InMemory, loss.Stored = missing.empty(), r.progress.newest.has(missing)
	r.answer(loss)
}

// lossOf describes a loss before anything is forgotten.
func (r *run) lossOf(slots []int) Loss {
	s := r.plan
	if s == nil {
		s = r.next
	}
	l := Loss{Facts: s.facts, Of: len(s.at), Machines: len(slots), InStep: r.phase == stepping, Carried: r.carried, Since: r.progress.done - r.progress.newest.step, Whole: s.whole}
	if l.InStep {
		l.ElapsedNanos, l.StepNanos = r.now-r.since, r.took+r.extended
	}
	for _, slot := range slots {
		i, ok := s.at[slot]
		if !ok {
			continue
		}
		l.BusyNanos = max(l.BusyNanos, s.posts[i].busyNanos)
		for _, other := range slots {
			j, ok := s.at[other]
			l.Neighbours = l.Neighbours || ok && adjacent(s.posts[i].layers, s.posts[j].layers)
		}
	}
	if i, ok := s.at[slots[0]]; ok && len(slots) == 1 {
		for j, slot := range s.slot {
			if j != i && slot >= 0 && r.taken[slot] && !s.posts[j].layers.empty() && s.posts[j].layers.covers(s.posts[i].layers) && (!l.Donor || s.posts[j].busyNanos < l.DonorNanos) {
				l.Donor, l.DonorNanos = true, s.posts[j].busyNanos
			}
		}
	}
	return l
}

// adjacent reports whether the layers of one stage follow those of another.
func adjacent(a, b layerSet) bool {
	for l := 0; l+1 < 64*len(a); l++ {
		if a.has(l) && !a.has(l+1) && b.has(l+1) && !b.has(l) {
			return true
		}
	}
	return false
}

// forget drops what a machine had.
func (r *run) forget(slot int) {
	delete(r.held, slot)
	r.progress.newest.lose(slot)
	if c := r.progress.copying; c != nil {
		for _, part := range c.stored {
			if slices.Contains(part.slots, slot) { // it begins again
				r.progress.copying = nil
			}
		}
	}
}

// answer does what the policy says about a loss.
func (r *run) answer(l Loss) {
	a := r.policy.Lost(r.Constants, l)
	r.result.Answered++
	r.replan = true
	if r.phase == stepping && !a.Ends {
		r.result.Carried++
		r.carried = true
		r.extended += a.Extends
		r.until(r.since + r.took + r.extended - r.now)
		return
	}
	if r.phase == stepping {
		r.result.Lost.GivenUp += r.now - r.since
		r.result.GivenUp++
	}
	r.owed += a.StopNanos
	r.ended = true
	if a.Back {
		r.result.Rollbacks++
		r.progress.back(a.Older)
		r.progress.copying = nil
	}
	r.next = nil
	r.enter(between)
}
