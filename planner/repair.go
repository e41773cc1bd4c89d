package planner

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

const (
	// repairSpares bounds the spares that are tried in the place of a lost device, repairCuts the ways to give its layers to its
	// neighbours.
	repairSpares = 4
	repairCuts   = 8
)

// Repair returns the plan in force with as few changes as make up for the devices of it that are not there any more: spares in their
// places, their layers with their neighbours, fewer replicas, or fewer devices in each. Of these it takes the one with the shortest
// predicted step. Of 1,000 devices that takes a tenth of a second, where [Make] takes seconds and may find a better plan. The same input
// gives the same plan on all machines. Errors wrap plan.ErrBadInput or ErrNoFit.
func Repair(in Input) (plan.Plan, plan.Reasons, error) {
	if in.Previous == nil || in.Previous.Generation == 0 {
		return plan.Plan{}, nil, fmt.Errorf("%w: there is no plan to repair", plan.ErrBadInput)
	}
	s, err := searchFor(in, *in.Previous)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	r, err := newRepair(s)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	found, err := r.candidates()
	if err != nil {
		return plan.Plan{}, nil, err
	}
	if found, err = s.rank(context.Background(), found); err != nil {
		return plan.Plan{}, nil, err
	}
	best, others := s.choose(found)
	if err := s.widen(best); err != nil {
		return plan.Plan{}, nil, fmt.Errorf("planner: codecs of %v: %w", best.shape, err)
	}
	s.postValidate(best)
	p, reasons, err := finish(s, best, others, r.keepHolders)
	return p, append(reasons, plan.Reason{Kind: plan.ReasonRepaired, Text: "the plan before without what is lost: a search for a better one takes longer"}), err
}

// repair changes the plan in force as little as the devices that it lacks make necessary.
type repair struct {
	*search
	// pipes have by replica group the devices and the cut of before, -1 for a device that is gone.
	pipes  []pipe
	spares []int // that have no stage
	lost   int   // stages, the most of a replica group
}

// newRepair reads the plan in force. The error wraps plan.ErrBadInput where all of its devices are there.
func newRepair(s *search) (*repair, error) {
	groups, err := s.in.Previous.ReplicaGroups()
	if err != nil {
		return nil, fmt.Errorf("%w: previous plan: %w", plan.ErrBadInput, err)
	}
	r, used := &repair{search: s}, map[int]bool{}
	for _, group := range groups {
		p, end, lost := pipe{}, 0, 0
		for i, worker := range group.Workers {
			d := s.find(worker)
			if end += group.Layers[i]; d < 0 {
				lost++
			}
			used[d] = true
			p.devices, p.ends = append(p.devices, d), append(p.ends, end)
		}
		if end != s.layers() || len(p.devices) != len(groups[0].Workers) {
			return nil, fmt.Errorf("%w: previous plan: %d devices have %d of %d layers in a replica", plan.ErrBadInput, len(p.devices), end, s.layers())
		}
		r.pipes, r.lost = append(r.pipes, p), max(r.lost, lost)
	}
	if r.lost == 0 {
		return nil, fmt.Errorf("%w: all devices of the plan are there", plan.ErrBadInput)
	}
	for _, d := range s.roomy() {
		if !used[d] {
			r.spares = append(r.spares, d)
		}
	}
	return r, nil
}

// candidates returns the plans that are compared. The error is the first one where none fits.
func (r *repair) candidates() (found []*candidate, err error) {
	take := func(k *candidate, fail error) {
		if err = cmp.Or(err, fail); k != nil {
			found = append(found, k)
		}
	}
	stages, asked := len(r.pipes[0].devices), r.in.Run.Train
	few := len(r.problem.devices) <= settleUpTo
	for n := range repairSpares {
		if pipes, ok := r.replaced(n); ok && (few || len(found) == 0) {
			take(r.candidate(pipes))
		}
	}
	whole := slices.DeleteFunc(slices.Clone(r.pipes), func(p pipe) bool { return slices.Contains(p.devices, -1) })
	if len(whole) > 0 && asked.Replicas == 0 {
		take(r.candidate(whole))
	}
	if (few || len(found) == 0) && stages > r.lost && asked.Stages == 0 {
		if len(r.pipes) == 1 {
			for part := range repairCuts + 1 {
				take(r.candidate([]pipe{r.joined(part)}))
			}
		}
		take(r.candidate(r.shorter()))
	}
	for _, n := range []int{stages, min(r.layers(), len(r.roomy()))} { // the last resort where memory is short
		if devices := r.roomiest(n); len(devices) > 0 && len(found) == 0 && asked.Replicas <= 1 && (asked.Stages == 0 || asked.Stages == len(devices)) {
			take(r.candidate([]pipe{{devices: devices}}))
		}
	}
	if len(found) == 0 && err == nil {
		err = fmt.Errorf("%w: nothing is left to repair the plan with", ErrNoFit)
	}
	return found, err
}

// roomiest returns so many devices, the ones with the most memory first: stages there keep the most micro-batches.
func (r *repair) roomiest(n int) []int {
	pool, devices := r.roomy(), r.models.whole().Devices
	slices.SortFunc(pool, func(a, b int) int {
		return cmp.Or(cmp.Compare(devices[b].FreeBytes, devices[a].FreeBytes), cmp.Compare(a, b))
	})
	return pool[:min(n, len(pool))]
}

// candidate makes one of pipes. Where a pipe has no cut, or one that does not fit, its layers are shared out anew.
func (r *repair) candidate(pipes []pipe) (*candidate, error) {
	k := &candidate{shape: shape{len(pipes), len(pipes[0].devices)}, order: r.order}
	if err := k.order.fits(k.shape, r.layers(), r.in.Run.Train.Sums()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFit, err)
	}
	k.model = r.modelFor(k.shape, pipes)
	micros := (r.in.Run.Train.Micros + len(pipes) - 1) / len(pipes)
	for _, p := range pipes {
		var cut *pipe
		err := ErrNoFit
		if p.ends != nil {
			key := cutKey{model: k.model, devices: pack(p.devices), ends: pack(p.ends), elastic: k.order.elastic()}
			cut, err = r.once(key, func() (*pipe, error) { return r.cutter(k).pipe(p.devices, p.ends) })
		}
		if err != nil {
			cut, err = r.cut(k, p.devices, nil, micros)
		}
		if err != nil {
			return nil, r.noFit(k.model, p.devices, err)
		}
		k.pipes = append(k.pipes, cut)
	}
	return k, r.estimate(k)
}

// modelFor returns the cost model with optimizer state where the plan in force has it. What takes the place of a device that kept it in
// the memory of its node does the same if it can.
func (r *repair) modelFor(sh shape, pipes []pipe) *cost.Model {
	before, offload := r.in.Previous, make([]bool, len(r.problem.devices))
	anywhere := false
	for _, pipe := range before.Replicas {
		for _, place := range pipe.Stages {
			if d := r.find(place.Worker()); place.Offload && d >= 0 {
				offload[d] = true
			}
			anywhere = anywhere || place.Offload
		}
	}
	if able := r.offloaders(r.spares); anywhere && able != nil {
		for _, p := range pipes {
			for _, d := range p.devices {
				offload[d] = offload[d] || able[d]
			}
		}
	}
	n := sh.replicas * r.order.copies
	parts := r.parts(n, r.partials(sh))
	parts.Layers = before.Sharded
	return r.models.with(parts, offload)
}

// replaced returns the pipes with spares in the places of lost devices: the n-th best for the first of these, the best that are left for
// the others. Not ok where there are too few.
func (r *repair) replaced(n int) (pipes []pipe, ok bool) {
	left := slices.Clone(r.spares)
	for _, p := range r.pipes {
		p.devices = slices.Clone(p.devices)
		for st, d := range p.devices {
			if d >= 0 {
				continue
			}
			if n >= len(left) {
				return nil, false
			}
			r.bestFirst(left, p, st)
			p.devices[st] = left[n]
			left, n = slices.Delete(left, n, n+1), 0
		}
		pipes = append(pipes, p)
	}
	return pipes, true
}

// bestFirst sorts spares by how well they do in the place of a stage: those that have room for one micro-batch of its layers come first,
// and of these who takes the least time for it, messages included.
func (r *repair) bestFirst(spares []int, p pipe, stage int) {
	m := r.models.whole()
	first, end := p.layers(stage)
	lacks, took := map[int]int64{}, map[int]schedule.Nanos{}
	for _, d := range spares {
		lacks[d] = max(0, m.Fixed(d, first, end)+m.On(d).Saved(first, end)+m.Memory.Slot()-m.Devices[d].FreeBytes)
		took[d] = m.Devices[d].Time(first, end).Micro()
		for _, next := range []struct{ stage, layer int }{{stage - 1, first - 1}, {stage + 1, end - 1}} {
			if next.stage < 0 || next.stage >= len(p.devices) || p.devices[next.stage] < 0 {
				continue
			}
			bytes, other := r.leastBytes(m.Memory.Boundary(next.layer)), p.devices[next.stage]
			for _, hop := range []schedule.Hop{r.link(d, other).Hop(bytes), r.link(other, d).Hop(bytes)} {
				took[d] += hop.Transfer + hop.Latency
			}
		}
	}
	slices.SortFunc(spares, func(a, b int) int {
		return cmp.Or(cmp.Compare(lacks[a], lacks[b]), cmp.Compare(took[a], took[b]), cmp.Compare(a, b))
	})
}

// joined returns the only pipe without its lost devices. Their neighbours have their layers: the one before so many of repairCuts parts,
// the one after the rest.
func (r *repair) joined(part int) (out pipe) {
	p := r.pipes[0]
	for st, d := range p.devices {
		first, end := p.layers(st)
		switch {
		case d >= 0:
			out.devices, out.ends = append(out.devices, d), append(out.ends, end)
		case len(out.ends) > 0:
			out.ends[len(out.ends)-1] += (end - first) * part / repairCuts
		}
	}
	out.ends[len(out.ends)-1] = r.layers()
	return out
}

// shorter returns the pipes without lost devices, and all as long: others leave out their slowest ones. They have no cut.
func (r *repair) shorter() (pipes []pipe) {
	whole := func(d int) schedule.Nanos {
		if d < 0 {
			return cost.Longest
		}
		return r.models.whole().Devices[d].Whole()
	}
	for _, p := range r.pipes {
		devices := slices.Clone(p.devices)
		for range r.lost {
			slowest := 0
			for st, d := range devices {
				if whole(d) > whole(devices[slowest]) {
					slowest = st
				}
			}
			devices = slices.Delete(devices, slowest, slowest+1)
		}
		pipes = append(pipes, pipe{devices: devices})
	}
	return pipes
}

// keepHolders leaves copies with the members that keep them: of layers that stay where they are on a device.
func (r *repair) keepHolders(p *plan.Plan) {
	type stage struct {
		plan.WorkerID
		plan.LayerRange
	}
	holders := map[stage]plan.PeerID{}
	for _, pipe := range r.in.Previous.Replicas {
		for _, place := range pipe.Stages {
			holders[stage{place.Worker(), place.Layers}] = place.Holder
		}
	}
	there := map[plan.PeerID]bool{}
	for _, m := range r.in.Members {
		there[m.Peer] = !m.Draining
	}
	for _, pipe := range p.Replicas {
		for st := range pipe.Stages {
			if place := &pipe.Stages[st]; there[holders[stage{place.Worker(), place.Layers}]] {
				place.Holder = holders[stage{place.Worker(), place.Layers}]
			}
		}
	}
}
