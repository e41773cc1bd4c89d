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
	// groupGainPercent is how much shorter than the best step of 1F1B a step in groups has to
	// be: every boundary between chunks is one more message that can be late.
	groupGainPercent = 3
	// Groups are looked for with up to maxChunks chunks a device, for one candidate each of up
	// to groupShapes shapes, and for steps of up to groupActions actions: of longer ones filling
	// and draining, which is all that groups make shorter, is a small part.
	maxChunks    = 4
	groupShapes  = 3
	groupActions = 1 << 14
	// groupTries counts looks for groups with fewer and fewer activations in memory.
	groupTries = 4
	// groupWork bounds the actions that are timed in one look for groups.
	groupWork = 1 << 22
)

// grouped reports whether a plan has groups that a run did not ask for.
func (s *search) grouped(p plan.Plan) bool {
	spec, err := schedule.ParseSpec(p.Schedule)
	return err == nil && s.order.open && spec.Kind == elastic.GroupsKind
}

// withGroups adds to ranked candidates those among them whose devices hold several chunks of layers,
// which micro-batches go through in groups, where that is worth it. A plan in force that has groups
// keeps some while they are no slower.
func (s *search) withGroups(ctx context.Context, ranked []*candidate) []*candidate {
	if !s.order.open {
		return ranked
	}
	plain := ranked[0].step()
	worth := plain - plain*groupGainPercent/100
	keeps := s.in.Previous != nil && s.grouped(*s.in.Previous)
	var groups []*candidate
	tried := map[shape]bool{}
	for _, k := range ranked {
		if ctx.Err() != nil {
			break // the caller drops what has been found
		}
		most := worth
		if keeps && k.kept {
			most = plain
		} else if tried[k.shape] || len(tried) >= groupShapes {
			continue
		}
		g, looked := s.inGroups(k, most)
		if looked {
			tried[k.shape] = true
		}
		if g != nil {
			groups = append(groups, g)
		}
	}
	all := append(groups, ranked...)
	slices.SortStableFunc(all, byStep)
	return all
}

// inGroups returns a candidate with the chunks and groups of the shortest step, nil where that is
// longer than most. looked reports whether more than a bound was needed to know.
func (s *search) inGroups(k *candidate, most schedule.Nanos) (best *candidate, looked bool) {
	if k.shape.stages < 2 || slices.Max(k.shares) > slices.Min(k.shares) {
		return nil, false // one list of groups has to add up to every replica's micro-batches
	}
	for chunks := 2; chunks <= maxChunks; chunks++ {
		p, ok := s.interleaving(k, chunks)
		if !ok || 2*s.in.Run.Train.Micros*len(p.Costs.Stages) > groupActions {
			break
		}
		if p.Bound() > most-k.job.Tail() {
			continue
		}
		looked = true
		if g := s.fitGroups(k, p); g != nil && g.step() <= most {
			best, most = g, g.step()-1
		}
	}
	if best != nil && !k.simulated && k.simulate() != nil {
		return nil, looked // the reason names the step that the groups replace
	}
	return best, looked
}

// interleaving returns a candidate with so many chunks on each device, and what stages and messages
// take at most in any of its replicas; not ok where a device has too few layers.
func (s *search) interleaving(k *candidate, chunks int) (p elastic.Interleaving, ok bool) {
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

// fitGroups returns a candidate in the groups that end first with what its devices have to recompute
// to have room for them, or in those for which nothing has to be; nil where none are.
func (s *search) fitGroups(k *candidate, p elastic.Interleaving) (best *candidate) {
	p.Costs = late(p.Costs)
	for range groupTries {
		g, err := elastic.ChooseGroups(p)
		if err != nil {
			break
		}
		next := &candidate{
			shape: k.shape, order: ordering{spec: g.Spec(p), copies: 1}, model: k.model,
			pipes: k.pipes, shares: k.shares, kept: k.kept, instead: k, proven: g.Proven,
		}
		if _, err := schedule.ParseSpec(next.order.spec.String()); err != nil {
			break // no plan can name such groups
		}
		bare, err := s.bareLayout(next)
		if err != nil {
			break
		}
		fits := s.timed(next) == nil
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
