package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/layout"
	"pnode/planner/memory"
	"pnode/planner/plan"
	"pnode/planner/sharding"
)

// sharingLines explain how replicas hold their optimizer state, and for each group of stages
// that memory still keeps from what it would do what else in parts would bring; empty for one
// replica. Workers hold gradients and parameters whole.
func (c *cluster) sharingLines(k *candidate) []plan.Reason {
	n := c.copies(k.shape)
	if n == 1 || c.in.Run.Train.Shard == plan.ShardOff {
		return nil
	}
	groups := c.shareGroups(k)
	lines := []plan.Reason{{Kind: plan.ReasonSharding, Text: c.sharingText(k, groups)}}
	if len(groups) > maxStageLines || !c.of(k).wantsMemory(k) {
		return lines
	}
	for _, g := range groups {
		if text := c.lackText(k, g); text != "" {
			lines = append(lines, plan.Reason{Kind: plan.ReasonSharding, Text: text})
		}
	}
	return lines
}

// sharingText is whose optimizer state is in parts, and what that brings.
func (c *cluster) sharingText(k *candidate, groups []sharding.Group) string {
	n := c.copies(k.shape)
	least := func(which bool) int64 {
		least := int64(-1)
		for _, g := range groups {
			bytes := c.sharingOf(k, g, g.Cells).Freed(sharding.Of(sharding.OptimizerState))
			if g.Among(k.sharded) == which && bytes > 0 && (least < 0 || bytes < least) { // a frozen group has nothing
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
		return fmt.Sprintf("optimizer state whole on each of %d replicas: in parts it would free %s a stage or more, %s", n, plan.Size(least(false)), use)
	}
	whose := ""
	if rest := c.books().All().Without(k.sharded, c.layers()); len(rest) > 0 {
		whose = fmt.Sprintf(" of layers %s, whole of layers %s, which have the memory", k.sharded, rest)
	}
	return fmt.Sprintf("optimizer state in parts, one on each of %d replicas%s: %s a stage or more are free for other things; updated parameters are exchanged in place of summed gradients, %s a step",
		n, whose, plan.Size(least(true)), plan.Time(k.job.Gather))
}

// lackText says of a group of stages what would have to be in parts for memory not to bind;
// empty where it does not.
func (c *cluster) lackText(k *candidate, g sharding.Group) string {
	cells, missing := c.lacking(k, g)
	stage, has := c.sharingOf(k, g, cells), sharding.Set(0)
	if g.Among(k.sharded) {
		has = sharding.Of(sharding.OptimizerState)
	}
	lacks := missing - stage.Freed(has)
	if lacks <= 0 {
		return ""
	}
	text := fmt.Sprintf("layers %s wait or compute again for want of %s of memory: ", g.Layers, plan.Size(lacks))
	in, enough := stage.Choose(missing)
	switch {
	case !enough && !stage.Site:
		return text + "replicas that far apart can hold nothing else in parts that would do"
	case !enough:
		return text + "nothing else that replicas could hold in parts would do"
	}
	shows := "hidden behind the pipelines"
	if longer := stage.Cost(in); longer > 0 {
		shows = plan.Time(longer) + " longer than now"
	}
	return text + fmt.Sprintf("%v in parts would do, %d exchanges a step, %s, but workers hold gradients and parameters whole", in, stage.Exchanges(in), shows)
}

// sharingOf is what a group could hold in parts, with what that frees on some of its stages:
// each micro-batch is a group of its own, since backwards alternate with forwards, and exchanges
// pass while the pipelines compute.
func (c *cluster) sharingOf(k *candidate, g sharding.Group, on []layout.Cell) sharding.Stage {
	c = c.of(k)
	out := sharding.Stage{
		Groups:   (slices.Max(k.shares) + c.order.copies - 1) / c.order.copies,
		Exchange: c.site.Exchange(k.rows(), g.Layers),
		Window:   k.passes(),
		Site:     c.oneSite(g.Cells),
	}
	if k.simulated {
		out.Window = slices.Max(k.result.Pipelines)
	}
	whole, parts := c.with(memory.Parts{}), c.with(memory.Parts{Replicas: c.copies(k.shape), Layers: g.Layers})
	out.FreedBytes = sharding.Freed(&whole.site, &parts.site, c.copies(k.shape), on)
	return out
}

// siteRTT is the longest round trip between peers of one site.
const siteRTT = 5e6

// oneSite tells whether all stages are on peers whose links were measured to be short.
func (c *cluster) oneSite(cells []layout.Cell) bool {
	for i, a := range cells {
		for _, b := range cells[:i] {
			link, measured := c.links.between(c.units[a.Unit].peer, c.units[b.Unit].peer)
			if !measured || link.RTTNanos > siteRTT {
				return false
			}
		}
	}
	return true
}

// lacking are the stages of a group that lack memory to hold all whole, to compute nothing again
// that the run does not ask for, and to have as much in flight as their links call for; bytes is
// what the tightest of them lacks. Under schedules whose programs say what is in flight nobody
// has reckoned that.
func (c *cluster) lacking(k *candidate, g sharding.Group) (cells []layout.Cell, bytes int64) {
	if k.layout != nil {
		return nil, 0
	}
	for r, p := range k.pipes {
		problem := c.of(k).with(memory.Parts{}).problem(p)
		full, _, err := schedule.MinimalWarmups(problem.Costs(p.Codecs), nil)
		if err != nil {
			continue // no memory would do
		}
		for s, u := range p.units {
			at := layout.Cell{Unit: u}
			at.First, at.End = p.layers(s)
			lack := int64(min(full[s]+1, k.shares[r]))*problem.Stages[s].SlotBytes - problem.Stages[s].RoomBytes
			if lack > 0 && g.Layers.Contains(at.First) {
				cells, bytes = append(cells, at), max(bytes, lack)
			}
		}
	}
	return cells, bytes
}
