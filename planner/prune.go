package planner

import (
	"cmp"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
	"pnode/planner/sharding"
)

// shareGroups returns a candidate's groups of layers that are sharded together, in the order of
// layers.
func (s *search) shareGroups(k *candidate) []sharding.Group {
	return sharding.Groups(k.layout.Rows, s.layers(), s.in.Run.Model.TiedGradLen() > 0)
}

// prune drops sharding and offload that bring nothing. The replicas of a candidate hold the optimizer
// state of a group in parts only where with the whole its pipelines would take longer or not fit,
// something would be recomputed, or updates would take a part of the step that counts: a checkpoint
// brings parts together. A device keeps its optimizer state where the step is no longer with it
// there.
func (s *search) prune(k *candidate) *candidate {
	retry := func(layers plan.LayerRanges, offload []bool) *candidate {
		other, err := s.keptAs(k, layers, offload)
		if err == nil && k.simulated {
			err = other.simulate()
		}
		if err != nil {
			return nil
		}
		return other
	}
	if s.shard() != plan.ShardOn {
		most := near(k.step())
		if k.kept { // pruned when it was made: its step must not grow plan by plan
			most = k.step()
		}
		for _, g := range s.dearestFirst(k) {
			other := retry(k.sharded().Without(g.Layers, s.layers()), k.model.Offload)
			if other != nil && other.passes() <= k.passes() && other.step() <= most && (k.layout.Recompute() || !other.layout.Recompute()) {
				k = other
			}
		}
	}
	for d, offloads := range k.model.Offload {
		if !offloads {
			continue
		}
		fewer := slices.Clone(k.model.Offload)
		fewer[d] = false
		if other := retry(k.sharded(), fewer); other != nil && other.step() <= k.step() {
			k = other
		}
	}
	return k
}

// dearestFirst returns a candidate's groups that are in parts, those whose exchange takes longest
// first.
func (s *search) dearestFirst(k *candidate) []sharding.Group {
	groups := slices.DeleteFunc(s.shareGroups(k), func(g sharding.Group) bool { return !g.Among(k.sharded()) })
	took := map[plan.LayerRange]schedule.Nanos{}
	for _, g := range groups {
		took[g.Layers[0]] = k.model.Exchange(k.layout.Rows, g.Layers, nil)
	}
	slices.SortStableFunc(groups, func(a, b sharding.Group) int { return cmp.Compare(took[b.Layers[0]], took[a.Layers[0]]) })
	return groups
}

// keptAs returns a candidate's cut with other layers in parts, and other devices that offload. Errors
// wrap ErrNoFit.
func (s *search) keptAs(k *candidate, layers plan.LayerRanges, offload []bool) (*candidate, error) {
	out := &candidate{shape: k.shape, order: k.order, shares: k.shares, kept: k.kept, pinned: k.pinned, instead: k.instead, proven: k.proven}
	parts := s.parts(k.copies(), k.partials())
	parts.Layers = layers
	out.model = s.models.with(parts, offload)
	for _, p := range k.pipes {
		pipe, err := s.cutter(out).pipe(p.devices, p.ends)
		if err != nil {
			return nil, s.noFit(out.model, p.devices, err)
		}
		out.pipes = append(out.pipes, pipe)
	}
	return out, s.estimate(out)
}
