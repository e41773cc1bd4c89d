package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/elastic"
	"pnode/planner/layout"
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
	// groupTries are with any number of activations, with as many as fit with nothing computed
	// again, and with fewer.
	groupTries = 4
	// groupWork bounds the actions that are timed in one look for groups.
	groupWork = 1 << 22
)

// grouping is a schedule that the planner has chosen in place of 1F1B: each device holds
// several chunks of layers, which micro-batches go through in groups.
type grouping struct {
	order ordering
	// instead is the same devices and layers in 1F1B; nil where it was not looked at.
	instead *candidate
	// proven: no other groups of these chunks end sooner in the memory that there is.
	proven bool
}

// grouped tells whether a plan has groups that a run did not ask for.
func (c *cluster) grouped(p plan.Plan) bool {
	spec, err := schedule.ParseSpec(p.Schedule)
	return err == nil && c.asked.order.open && spec.Kind == elastic.GroupsKind
}

// group is ranked candidates with those among them whose devices hold chunks in groups, where
// that is worth it: a plan in force that has groups keeps some while they are no slower.
func (c *cluster) group(ranked []*candidate) []*candidate {
	if !c.order.open {
		return ranked
	}
	plain := ranked[0].step()
	worth := plain - plain*groupGainPercent/100
	keeps := c.in.Previous != nil && c.grouped(*c.in.Previous)
	var groups []*candidate
	tried := map[shape]bool{}
	for _, k := range ranked {
		most := worth
		if keeps && k.kept {
			most = plain
		} else if tried[k.shape] || len(tried) >= groupShapes {
			continue
		}
		g, looked := c.of(k).inGroups(k, most)
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

// inGroups is a candidate with the chunks and groups of the shortest step, nil where that is
// longer than most; looked tells whether more than a bound was needed to say so.
func (c *cluster) inGroups(k *candidate, most schedule.Nanos) (best *candidate, looked bool) {
	if k.shape.stages < 2 || !evenShares(k.shares) {
		return nil, false // one list of groups has to add up to every replica's micro-batches
	}
	for chunks := 2; chunks <= maxChunks; chunks++ {
		p, ok := c.interleaving(k, chunks)
		if !ok || 2*c.in.Run.Train.Micros*len(p.Costs.Stages) > groupActions {
			break
		}
		if p.Bound() > most-k.job.Tail() {
			continue
		}
		looked = true
		if g := c.fitGroups(k, p); g != nil && g.step() <= most {
			best, most = g, g.step()-1
		}
	}
	if best != nil && !k.simulated && k.simulate() != nil {
		return nil, looked // what the groups are instead of is told
	}
	return best, looked
}

// groupLines tell what groups gain; empty where a candidate has none that the planner chose.
func (c *cluster) groupLines(k *candidate) []plan.Reason {
	if k.groups == nil || k.groups.instead == nil {
		return nil
	}
	plain, chunks := k.groups.instead, c.order.spec.Chunks()
	best := ""
	if k.groups.proven {
		best = " (no others end sooner)"
	}
	return []plan.Reason{{Kind: plan.ReasonGroups, Nanos: int64(plain.step()), Text: fmt.Sprintf("%d chunks of layers a device, in groups%s: filling and draining take less of a step, which in 1f1b with one chunk would be %s, %s longer, %s; %d times the messages keep the busiest link busy for %s",
		chunks, best, plan.Time(plain.step()), plan.Permille(slower(k.step(), plain.step())), c.asked.bound(plain).Text, chunks, plan.Time(c.site.BusiestLink(k.layout)))}}
}

func evenShares(shares []int) bool { return slices.Max(shares) == slices.Min(shares) }

// interleaving is a candidate with so many chunks on each unit, and what stages and messages
// take at most in any of its replicas; not ok where a unit has too few layers.
func (c *cluster) interleaving(k *candidate, chunks int) (p elastic.Interleaving, ok bool) {
	var l layout.Layout
	_, narrowest := c.in.Run.Train.Codec.Bounds()
	for _, pipe := range k.pipes {
		lane := c.lane(pipe, 0, k.shares[0])
		parts, err := lane.Parts(chunks)
		if err != nil {
			return p, false
		}
		row := make([]layout.Cell, len(pipe.units)*chunks)
		for s, place := range lane.Stages(roundRobin(len(row), len(pipe.units)), parts) {
			row[s] = layout.Cell{Unit: pipe.units[s%len(pipe.units)], First: place.Layers.First, End: place.Layers.End, Use: schedule.Use{Slots: 1}}
		}
		l.Rows, l.Codecs = append(l.Rows, row), append(l.Codecs, slices.Repeat([]plan.Codec{narrowest}, len(row)-1))
	}
	return elastic.Interleaving{Workers: k.shape.stages, Micros: k.shares[0], Costs: longest(c.site.Timing(&l).Replicas), Nodes: groupWork / (2 * k.shares[0] * len(l.Rows[0]))}, true
}

// roundRobin are by stage the workers that hold chunks.
func roundRobin(stages, workers int) []int {
	holders := make([]int, stages)
	for s := range holders {
		holders[s] = s % workers
	}
	return holders
}

// fitGroups is a candidate in the groups that end first with what its units have to compute
// again to have room for them, or in those for which nothing has to be; nil where none are.
func (c *cluster) fitGroups(k *candidate, p elastic.Interleaving) (best *candidate) {
	p.Costs = late(p.Costs)
	for range groupTries {
		g, err := elastic.ChooseGroups(p)
		if err != nil {
			break
		}
		next := &candidate{shape: k.shape, pipes: k.pipes, shares: k.shares, sharded: k.sharded, away: k.away, kept: k.kept}
		next.groups = &grouping{ordering{spec: g.Spec(p), copies: 1}, k, g.Proven}
		l, err := c.of(next).bare(next)
		if err != nil {
			break // such groups cannot be told in a plan
		}
		fits := c.of(next).estimate(next) == nil && next.simulate() == nil
		if fits && (best == nil || byStep(next, best) < 0) {
			best = next
		}
		if fits && !next.recomputes() {
			break
		}
		p.Caps = tighter(p.Caps, c.of(next).site.Caps(l, schedule.MaxNumber))
	}
	return best
}

// bare is a candidate's layout with nothing computed again.
func (c *cluster) bare(k *candidate) (*layout.Layout, error) {
	plan, err := c.skeleton(k)
	if err != nil {
		return nil, err
	}
	if _, err := schedule.ParseSpec(plan.Schedule); err != nil {
		return nil, err
	}
	return c.layoutOf(plan)
}

// tighter are caps that are less than those before, one a worker where what fits is not: a
// stage keeps its slots until gradients are sent, which caps do not count.
func tighter(before, fit []int) []int {
	for w := range before {
		fit[w] = max(1, min(fit[w], before[w]-1))
	}
	return fit
}

// longest is by stage and boundary the longest times of any replica, with what is computed
// again as a part of the input gradient.
func longest(replicas []schedule.Costs) (out schedule.Costs) {
	out.Stages = make([]schedule.StageTime, len(replicas[0].Stages))
	out.Boundaries = make([]schedule.Boundary, len(replicas[0].Boundaries))
	for _, costs := range replicas {
		for s, t := range costs.Stages {
			at := &out.Stages[s]
			at.Forward, at.Input, at.Weight = max(at.Forward, t.Forward), max(at.Input, t.Input+t.Recompute), max(at.Weight, t.Weight)
		}
		for b, hops := range costs.Boundaries {
			at := &out.Boundaries[b]
			at.Activation, at.Gradient = longer(at.Activation, hops.Activation), longer(at.Gradient, hops.Gradient)
		}
	}
	return out
}

// late has messages take as much longer as they may be late without showing.
func late(costs schedule.Costs) schedule.Costs {
	costs.Boundaries = slices.Clone(costs.Boundaries)
	for i := range costs.Boundaries {
		b := &costs.Boundaries[i]
		b.Activation.Latency += b.Activation.Latency * elastic.UsualMargin / 100
		b.Gradient.Latency += b.Gradient.Latency * elastic.UsualMargin / 100
	}
	return costs
}

func longer(a, b schedule.Hop) schedule.Hop {
	return schedule.Hop{Transfer: max(a.Transfer, b.Transfer), Latency: max(a.Latency, b.Latency)}
}
