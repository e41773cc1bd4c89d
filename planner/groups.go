package planner

import (
	"context"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/plan"
)

const (
	// Groups are looked for with up to maxChunks chunks a device, for steps of up to groupActions actions: of longer ones
	// filling and draining, which is all that groups make shorter, is a small part.
	maxChunks    = 4
	groupActions = 1 << 14
	// groupFrom is how many ranked candidates the lowest bound of groups is looked for among.
	groupFrom = 1 << 7
	// groupTries counts looks for groups with fewer and fewer activations in memory.
	groupTries = 4
	// groupWork bounds the actions that are timed in one look for groups.
	groupWork = 1 << 22
	// splitWidth is how many steps under way a look for split backwards compares at most, of longer steps fewer:
	// splitWork in all.
	splitWidth = 32
	splitWork  = 1 << 11
)

// splitKind names schedules in the orders that a schedule.Split finds.
const splitKind = "zb-elastic"

// splitOf returns a pipeline with one chunk a device as a problem of split backwards.
func splitOf(p elastic.Interleaving) schedule.Split {
	return schedule.Split{Costs: p.Costs, Micros: p.Micros, Caps: p.Caps, Width: max(2, min(splitWidth, splitWork/(3*p.Micros*p.Workers)))}
}

// orderBound returns a time that no order of a pipeline's passes ends before.
func orderBound(p elastic.Interleaving) schedule.Nanos {
	if p.Workers == len(p.Costs.Stages) {
		return splitOf(p).Bound()
	}
	return p.Bound()
}

// bestOrder returns the schedule that ends first: split backwards with one chunk a device, else groups. proven reports that no
// other one of its kind ends sooner.
func bestOrder(p elastic.Interleaving) (spec schedule.Spec, proven bool, err error) {
	if p.Workers == len(p.Costs.Stages) {
		o, err := splitOf(p).Choose()
		return schedule.Spec{Kind: splitKind, Params: []schedule.Param{{Name: "order", Orders: o.Stages}}}, o.Proven, err
	}
	g, err := elastic.ChooseGroups(p)
	return g.Spec(p), g.Proven, err
}

// interleaving returns a candidate with so many chunks on each device, and what stages and messages
// take at most in any of its replicas; not ok where a device has too few layers.
func (s kindSearch) interleaving(k *candidate, chunks int) (p elastic.Interleaving, ok bool) {
	var rows cost.Rows
	var codecs [][]plan.Codec
	_, narrowest := s.in.Run.Train.Codec.Bounds()
	for _, pipe := range k.pipes {
		group, n := s.group(k.order, pipe, k.shares[0]), len(pipe.devices)
		parts, err := group.Parts(chunks)
		if err != nil {
			return p, false
		}
		holders := make([]int, n*chunks)
		for st := range holders {
			holders[st] = st % n
		}
		row := make([]cost.Stage, len(holders))
		for st, place := range group.Stages(holders, parts) {
			row[st] = cost.Stage{Device: pipe.devices[st%n], First: place.Layers.First, End: place.Layers.End, Use: schedule.Use{Slots: 1}}
		}
		rows, codecs = append(rows, row), append(codecs, slices.Repeat([]plan.Codec{narrowest}, len(row)-1))
	}
	return interleaved(k.shape.stages, k.shares[0], k.model.Timing(rows, codecs)), true
}

// inChunks returns a candidate with so many chunks on each device, and a time that no order of its passes ends before; not ok where
// replicas take unlike shares, as one list has to suit all of them, layers are too few or passes too many.
func (s kindSearch) inChunks(k *candidate, chunks int) (p elastic.Interleaving, bound schedule.Nanos, ok bool) {
	if slices.Max(k.shares) != slices.Min(k.shares) || s.passes(k.shape.stages*chunks) > groupActions {
		return p, 0, false
	}
	if p, ok = s.interleaving(k, chunks); ok {
		bound = orderBound(p)
	}
	return p, bound, ok
}

// inGroups returns a candidate in the orders or groups of the shortest step, with one chunk on each device where the run asks for split
// backwards; nil where none takes so little as most. looked reports whether more than a bound was needed to know.
func (s kindSearch) inGroups(k *candidate, most schedule.Nanos) (best *candidate, looked bool) {
	last := 1
	if s.order.open {
		last = maxChunks
	}
	for n := 1; n <= last && k.shape.stages > 1; n++ {
		p, bound, ok := s.inChunks(k, n)
		if !ok {
			break
		}
		if bound > most {
			continue
		}
		looked = true
		if other := s.fitGroups(k, p); other != nil && other.step() <= most {
			best, most = other, other.step()-1
		}
	}
	if best != nil && !k.simulated && k.simulate() != nil {
		return nil, looked // the reason names the step that the other kind replaces
	}
	return best, looked
}

// lowestGroups returns candidates in groups whose steps are at most so long. Of each number of chunks on the devices of each of the first
// shapes it looks at the candidate with the lowest bound, which need not be the best one in 1F1B.
func (s kindSearch) lowestGroups(ctx context.Context, ranked []*candidate, most schedule.Nanos) (found []*candidate) {
	type cut struct {
		shape
		chunks int
	}
	type look struct {
		cut
		k     *candidate
		p     elastic.Interleaving
		bound schedule.Nanos
	}
	var looks []look
	shapes := map[shape]bool{}
	for _, k := range ranked[:min(len(ranked), groupFrom)] {
		if k.shape.stages < 2 || !shapes[k.shape] && len(shapes) == kindShapes {
			continue
		}
		shapes[k.shape] = true
		for chunks := 1; chunks <= maxChunks; chunks++ {
			p, bound, ok := s.inChunks(k, chunks)
			if !ok {
				break
			}
			next := look{cut{k.shape, chunks}, k, p, bound}
			i := slices.IndexFunc(looks, func(l look) bool { return l.cut == next.cut })
			switch {
			case i < 0:
				looks = append(looks, next)
			case bound < looks[i].bound:
				looks[i] = next
			}
		}
	}
	for _, l := range looks {
		if l.bound > most || ctx.Err() != nil {
			continue
		}
		if k := s.fitGroups(l.k, l.p); k != nil && k.step() <= most && (l.k.simulated || l.k.simulate() == nil) {
			found, most = append(found, k), k.step()-1
		}
	}
	return found
}

// interleaved returns the problem of groups for so many workers, each with the longest times of any
// replica.
func interleaved(workers, micros int, t schedule.Timing) elastic.Interleaving {
	out := schedule.Costs{Stages: make([]schedule.StageTime, len(t.Replicas[0].Stages)), Boundaries: make([]schedule.Boundary, len(t.Replicas[0].Boundaries))}
	longer := func(a, b schedule.Hop) schedule.Hop {
		return schedule.Hop{Transfer: max(a.Transfer, b.Transfer), Latency: max(a.Latency, b.Latency)}
	}
	for _, costs := range t.Replicas {
		for s, t := range costs.Stages { // what is recomputed is a part of the input gradient
			at := &out.Stages[s]
			at.Forward, at.Input, at.Weight = max(at.Forward, t.Forward), max(at.Input, t.Input+t.Recompute), max(at.Weight, t.Weight)
		}
		for b, hops := range costs.Boundaries {
			at := &out.Boundaries[b]
			at.Activation, at.Gradient = longer(at.Activation, hops.Activation), longer(at.Gradient, hops.Gradient)
		}
	}
	return elastic.Interleaving{Workers: workers, Micros: micros, Costs: out, Nodes: groupWork / (2 * micros * len(out.Stages))}
}

// late has messages take as much longer as they may be late without showing.
func late(costs schedule.Costs) schedule.Costs {
	for i := range costs.Boundaries {
		b := &costs.Boundaries[i]
		b.Activation.Latency += b.Activation.Latency * elastic.UsualMargin / 100
		b.Gradient.Latency += b.Gradient.Latency * elastic.UsualMargin / 100
	}
	return costs
}

// fitGroups returns a candidate in the orders or groups that end first with what its devices have to recompute
// to have room for them, or in those for which nothing has to be; nil where none are.
func (s kindSearch) fitGroups(k *candidate, p elastic.Interleaving) (best *candidate) {
	if p.Workers < len(p.Costs.Stages) {
		p.Costs = late(p.Costs)
	}
	for range groupTries {
		spec, proven, err := bestOrder(p)
		if err != nil {
			break
		}
		next := &candidate{
			shape: k.shape, order: ordering{spec: spec, copies: 1}, model: s.waitingModel(k),
			pipes: k.pipes, shares: k.shares, kept: k.kept, pinned: k.pinned, instead: k, proven: proven,
		}
		if _, err := schedule.ParseSpec(next.order.spec.String()); err != nil {
			break // no plan can name such groups
		}
		bare, err := s.bareLayout(next)
		if err != nil {
			break
		}
		fits := s.timed(next) == nil
		s.postValidate(next)
		if fits && (best == nil || byStep(next, best) < 0) {
			best = next
		}
		if fits && !next.layout.Recompute() {
			break
		}
		p.Caps = tighter(p.Caps, next.model.Caps(bare.Rows, p.Workers, schedule.MaxNumber))
	}
	return best
}

// tighter returns caps that are less than those before, one a worker where fit has room for none: a
// stage keeps its slots until gradients are sent, which caps do not count.
func tighter(before, fit []int) []int {
	for w := range before {
		fit[w] = max(1, min(fit[w], before[w]-1))
	}
	return fit
}
