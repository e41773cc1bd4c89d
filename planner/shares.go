package planner

import (
	"math/bits"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/partition"
	"pnode/planner/plan"
)

// sharing says how replica groups share the micro-batches of a run: whole sum groups, each with so many copies of
// the model.
type sharing struct {
	sums   plan.Sums
	uneven bool
	copies int
	// apart reports that replicas exchange nothing within a step.
	apart bool
}

func (p *problem) sharingOf(o ordering) sharing {
	t := p.in.Run.Train
	return sharing{t.Sums(), t.UnevenShares || p.apart, o.copies, p.apart}
}

// shares returns by pipe how many micro-batches it takes, in whole groups of the run's sums: as many
// groups for each, or as they suit the pipes' speeds. A share that is no subtree of the sums is sent as
// several vectors. Where that takes longer, shares consist of larger subtrees.
func (c sharing) shares(k *candidate) []int {
	sums, m := c.sums, k.model
	rows := make(cost.Rows, len(k.pipes))
	for r, p := range k.pipes {
		for st, d := range p.devices {
			first, end := p.layers(st)
			rows[r] = append(rows[r], cost.Stage{Device: d, First: first, End: end})
		}
	}
	var best []int
	least := schedule.Nanos(0)
	for units := sums.Groups; units >= len(k.pipes); units = coarser(units) {
		shares := c.sharesOf(k, units)
		micros, vectors, took := make([]int, len(shares)), make([]int, len(shares)), schedule.Nanos(0)
		for r, share := range shares {
			micros[r], vectors[r] = sums.MicrosOf(share), c.vectorsOf(share)
			took = max(took, k.pipes[r].simulated(micros[r]).Estimate())
		}
		if !c.apart {
			took += m.Exchange(rows, m.Memory.All(), vectors)
		}
		if best == nil || took < least {
			best, least = micros, took
		}
		if slices.Max(vectors) == 1 {
			break
		}
	}
	return best
}

// coarser returns the next smaller number of subtrees on a level of a run's sums: the next smaller power of two.
func coarser(units int) int { return 1 << (bits.Len(uint(units-1)) - 1) }

// sharesOf returns by pipe a share of the groups, in whole units of those that a level of the sums has.
func (c sharing) sharesOf(k *candidate, units int) []plan.GroupRange {
	sums := c.sums
	if !c.uneven {
		return sums.Even(len(k.pipes), units)
	}
	rates := make([]partition.Rate, len(k.pipes))
	for r, p := range k.pipes {
		each := cost.MulDiv(p.Period, schedule.Nanos(sums.Micros), schedule.Nanos(units))
		rates[r] = partition.Rate{First: max(0, p.Costs.RoundTrip()-p.Period), Each: each}
	}
	var shares []plan.GroupRange
	level := sums.Level(units)
	for _, n := range partition.Shares(units, rates) {
		shares = append(shares, plan.GroupRange{First: level[0].First, End: level[n-1].End})
		level = level[n:]
	}
	return shares
}

// groupsOf returns by pipe the groups of shares of so many micro-batches.
func groupsOf(sums plan.Sums, shares []int) []plan.GroupRange {
	groups, next := make([]plan.GroupRange, len(shares)), plan.Micro(0)
	for r, micros := range shares {
		groups[r], _ = sums.Share(next, micros)
		next += plan.Micro(micros)
	}
	return groups
}

// vectors returns by replica how many sums of a layer's gradient it sends of its groups.
func (c sharing) vectors(k *candidate) (counts []int) {
	for _, groups := range groupsOf(c.sums, k.shares) {
		for i := range c.copies {
			counts = append(counts, c.vectorsOf(part(groups, i, c.copies)))
		}
	}
	return counts
}

// vectorsOf returns how many sums of a layer's gradient a replica sends of its groups.
func (c sharing) vectorsOf(groups plan.GroupRange) int {
	if c.apart {
		return 1
	}
	return len(c.sums.Subtrees(groups))
}

// part returns part i of n of a range of groups, as plan.ReplicaGroup.Part cuts them.
func part(r plan.GroupRange, i, n int) plan.GroupRange {
	return plan.GroupRange{First: r.First + (r.Len()*i+n-1)/n, End: r.First + (r.Len()*(i+1)+n-1)/n}
}

// mostPartials returns how many partial sums of gradients a stage has at most, in so many replica groups.
func (c sharing) mostPartials(replicas int) (most int) {
	sums, copies := c.sums, c.copies
	if c.uneven && replicas > 1 {
		return sums.MostPartials((sums.Groups - replicas + copies) / copies)
	}
	for units := sums.Groups; units >= replicas; units = coarser(units) {
		for _, groups := range sums.Even(replicas, units) {
			for i := range copies {
				most = max(most, sums.Partials(part(groups, i, copies)))
			}
		}
		if units <= 1 || replicas == 1 {
			break
		}
	}
	return most
}

// partialsOf returns how many partial sums of gradients a stage of a plan has at most.
func partialsOf(sums plan.Sums, p plan.Plan) (most int) {
	for _, pipe := range p.Replicas {
		if share, ok := sums.Share(pipe.FirstMicro, pipe.Micros); ok {
			most = max(most, sums.Partials(share))
		}
	}
	return most
}
