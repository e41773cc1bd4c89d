package planner

import (
	"fmt"
	"strings"

	"pnode/planner/cost"
	"pnode/planner/sharding"
)

// sharingLines explain how replicas hold their optimizer state, and for each group of stages
// that memory still keeps from what it would do what else in parts would bring; empty for one
// replica. Workers hold gradients and parameters whole.
func (c *cluster) sharingLines(k *candidate) []Reason {
	n := c.copies(k.shape)
	if n == 1 || c.in.Run.Train.Shard == ShardOff {
		return nil
	}
	groups := c.shareGroups(k)
	lines := []Reason{{Kind: Sharding, Text: c.sharingText(k, groups)}}
	if len(groups) > maxStageLines || !c.of(k).wantsMemory(k) {
		return lines
	}
	for _, g := range groups {
		if text := c.lackText(k, g); text != "" {
			lines = append(lines, Reason{Kind: Sharding, Text: text})
		}
	}
	return lines
}

// sharingText is whose optimizer state is in parts, and what that brings.
func (c *cluster) sharingText(k *candidate, groups []shareGroup) string {
	n := c.copies(k.shape)
	least := func(which bool) int64 {
		least := int64(-1)
		for _, g := range groups {
			bytes := c.sharingOf(k, g, g.cells).Freed(sharding.Of(sharding.OptimizerState))
			if g.sharded(k) == which && bytes > 0 && (least < 0 || bytes < least) { // a frozen group has nothing
				least = bytes
			}
		}
		return max(0, least)
	}
	if len(k.sharded) == 0 {
		use := "which no stage needs"
		if c.wantsMemory(k) {
			use = "too little to gain by"
		}
		return fmt.Sprintf("optimizer state whole on each of %d replicas: in parts it would free %s a stage or more, %s", n, cost.Size(least(false)), use)
	}
	whose := ""
	if rest := without(c.everything(), k.sharded, c.layers()); len(rest) > 0 {
		whose = fmt.Sprintf(" of layers %s, whole of layers %s, which have the memory", layersText(k.sharded), layersText(rest))
	}
	return fmt.Sprintf("optimizer state in parts, one on each of %d replicas%s: %s a stage or more are free for other things; updated parameters are exchanged in place of summed gradients, %s a step",
		n, whose, cost.Size(least(true)), cost.Time(k.job.Gather))
}

// lackText says of a group of stages what would have to be in parts for memory not to bind;
// empty where it does not.
func (c *cluster) lackText(k *candidate, g shareGroup) string {
	cells, missing := c.lacking(k, g)
	stage, has := c.sharingOf(k, g, cells), sharding.Set(0)
	if g.sharded(k) {
		has = sharding.Of(sharding.OptimizerState)
	}
	lacks := missing - stage.Freed(has)
	if lacks <= 0 {
		return ""
	}
	text := fmt.Sprintf("layers %s wait or compute again for want of %s of memory: ", layersText(g.layers), cost.Size(lacks))
	in, enough := stage.Choose(missing)
	switch {
	case !enough && !stage.Site:
		return text + "replicas that far apart can hold nothing else in parts that would do"
	case !enough:
		return text + "nothing else that replicas could hold in parts would do"
	}
	shows := "hidden behind the pipelines"
	if longer := stage.Cost(in); longer > 0 {
		shows = cost.Time(longer) + " longer than now"
	}
	return text + fmt.Sprintf("%v in parts would do, %d exchanges a step, %s, but workers hold gradients and parameters whole", in, stage.Exchanges(in), shows)
}

// layersText prints ranges as "[0,2) and [5,6)".
func layersText(ranges []LayerRange) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = fmt.Sprintf("[%d,%d)", r.First, r.End)
	}
	return strings.Join(texts, " and ")
}
