package planner

import (
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// shardKind is what replicas could hold in parts beside their optimizer state: the gradients
// (ZeRO's second stage, Rajbhandari et al. 2020), and the parameters too (its third). Workers
// run neither; the planner says what each would bring, so that one can tell whether it is
// memory that is missing, or links.
type shardKind struct {
	name string
	// bytes are what a layer has of it, whole.
	bytes func(c *cluster, layer int) int64
	// exchanges are how many times a step each layer of it crosses between replicas whose
	// micro-batches are that many groups: a reduction to the owners of the parts after each
	// group's backwards; parameters are gathered before each group's forwards and backwards.
	exchanges func(groups int) int
}

var shardKinds = []shardKind{
	{"gradients", func(c *cluster, l int) int64 { return c.in.Costs[l].ParamBytes - c.in.Costs[l].FrozenBytes }, func(groups int) int { return groups + 1 }},
	{"parameters", func(c *cluster, l int) int64 { return c.in.Costs[l].ParamBytes + c.in.Costs[l].CopyBytes }, func(groups int) int { return 3 * groups }},
}

// freed is what a stage of layers [first,end) on one of so many replicas would not hold of it:
// all but its own part, and the one layer that is whole while it is at hand.
func (s shardKind) freed(c *cluster, replicas int64, first, end int) int64 {
	var sum, largest int64
	for l := first; l < end; l++ {
		bytes := s.bytes(c, l)
		sum, largest = sum+bytes, max(largest, bytes)
	}
	return max(0, sum-sum/replicas-largest)
}

// leastFreed is the least over a candidate's stages.
func (c *cluster) leastFreed(k *candidate, freed func(first, end int) int64) int64 {
	least := int64(-1)
	for _, row := range k.rows() {
		for _, at := range row {
			if bytes := freed(at.first, at.end); least < 0 || bytes < least {
				least = bytes
			}
		}
	}
	return least
}

// sharingLines explain how replicas hold their optimizer state, and what it would bring to hold
// more in parts; empty for one replica.
func (c *cluster) sharingLines(k *candidate) []Reason {
	n := c.copies(k.shape)
	if n == 1 || c.in.Run.Train.Shard == ShardOff {
		return nil
	}
	least := c.leastFreed(k, c.sharing(n).freed)
	text := fmt.Sprintf("optimizer state whole on each of %d replicas: in parts it would free %s a stage or more and make no step shorter", n, cost.Size(least))
	if k.sharded {
		text = fmt.Sprintf("optimizer state in parts, one on each of %d replicas: %s a stage or more are free for other things; updated parameters are exchanged in place of summed gradients, %s a step",
			n, cost.Size(least), cost.Time(k.job.Gather))
	}
	var kinds []string
	for _, kind := range shardKinds {
		kinds = append(kinds, c.kindText(k, kind))
	}
	return []Reason{{Kind: Sharding, Text: text}, {Kind: Sharding, Text: "workers hold the rest whole: " + strings.Join(kinds, "; ")}}
}

// kindText predicts what a kind would bring a candidate: each micro-batch is a group, since
// backwards alternate with forwards, and exchanges pass while the pipelines compute.
func (c *cluster) kindText(k *candidate, kind shardKind) string {
	n := c.copies(k.shape)
	groups := (slices.Max(k.shares) + c.order.copies - 1) / c.order.copies
	window := slices.Max(k.result.Pipelines)
	each := (k.job.Reduce + k.job.Gather) / 2 // as much as there is now, to the owners and back
	bytes := c.leastFreed(k, func(first, end int) int64 { return kind.freed(c, int64(n), first, end) })
	shows := "hidden behind the pipelines"
	if longer := schedule.Nanos(kind.exchanges(groups)-2)*each - window; longer > 0 {
		shows = cost.Time(longer) + " longer than now"
	}
	return fmt.Sprintf("%s in parts would free %s a stage or more for %d exchanges a step, %s", kind.name, cost.Size(bytes), kind.exchanges(groups), shows)
}
