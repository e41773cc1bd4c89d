package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
	"pnode/planner/sharding"
)

// sharing explains how replicas hold their optimizer state, and for each group of stages that lacks
// memory what else in parts would bring; empty for one replica. Workers hold gradients and parameters
// whole.
func (e explainer) sharing() []plan.Reason {
	if e.k.copies() == 1 || e.shard() == plan.ShardOff {
		return nil
	}
	groups := e.shareGroups(e.k)
	lines := []plan.Reason{{Kind: plan.ReasonSharding, Text: e.sharedText(groups)}}
	if len(groups) > maxStageLines || !e.wantsMemory(e.k) {
		return lines
	}
	for _, g := range groups {
		if text := e.lackText(g); text != "" {
			lines = append(lines, plan.Reason{Kind: plan.ReasonSharding, Text: text})
		}
	}
	return lines
}

// sharedText says whose optimizer state is in parts, and what that brings.
func (e explainer) sharedText(groups []sharding.Group) string {
	sharded, least := e.k.sharded(), int64(-1)
	for _, g := range groups {
		bytes := e.shared(g, g.Stages).Freed(sharding.Of(sharding.OptimizerState))
		if g.Among(sharded) == (len(sharded) > 0) && bytes > 0 && (least < 0 || bytes < least) { // a frozen group has nothing
			least = bytes
		}
	}
	if least = max(0, least); len(sharded) == 0 {
		use := "which no stage needs"
		if e.wantsMemory(e.k) {
			use = "too little to gain by"
		}
		return fmt.Sprintf("optimizer state whole on each of %d replicas: in parts it would free %s a stage or more, %s", e.k.copies(), plan.Size(least), use)
	}
	whose := ""
	if rest := e.k.model.Memory.All().Without(sharded, e.layers()); len(rest) > 0 {
		whose = fmt.Sprintf(" of layers %s, whole of layers %s, which have the memory", sharded, rest)
	}
	updates := ""
	if e.in.Run.Train.Optimizer == plan.Muon {
		updates = ", each updates its own matrices"
	}
	return fmt.Sprintf("optimizer state in parts, one on each of %d replicas%s: %s a stage or more are free for other things%s; updated parameters are exchanged in place of summed gradients, %s a step",
		e.k.copies(), whose, plan.Size(least), updates, plan.Time(e.k.model.Exchange(e.k.layout.Rows, sharded, nil)))
}

// lackText says of a group of stages what would have to be in parts for memory not to bind;
// empty where it does not.
func (e explainer) lackText(g sharding.Group) string {
	stages, missing := e.lacking(g)
	stage, has := e.shared(g, stages), sharding.Set(0)
	if g.Among(e.k.sharded()) {
		has = sharding.Of(sharding.OptimizerState)
	}
	lacks := missing - stage.Freed(has)
	if lacks <= 0 {
		return ""
	}
	text := fmt.Sprintf("layers %s lack %s of memory, so they wait or recompute: ", g.Layers, plan.Size(lacks))
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

// siteRTT is the longest round trip between peers of one site.
const siteRTT = 5e6

// shared returns what a group could hold in parts, with what that frees on some of its stages.
// Each micro-batch is a group of its own, since backwards alternate with forwards, and exchanges
// pass while the pipelines compute.
func (e explainer) shared(g sharding.Group, on []cost.Stage) sharding.Stage {
	k := e.k
	out := sharding.Stage{
		Groups:   (slices.Max(k.shares) + k.order.copies - 1) / k.order.copies,
		Exchange: k.model.Exchange(k.layout.Rows, g.Layers, nil),
		Window:   k.passes(),
		Site:     true,
	}
	if k.simulated {
		out.Window = slices.Max(k.result.Pipelines)
	}
	for i, a := range g.Stages {
		for _, b := range g.Stages[:i] {
			link, measured := e.links.Between(e.problem.devices[a.Device].peer, e.problem.devices[b.Device].peer)
			out.Site = out.Site && measured && link.RTTNanos <= siteRTT
		}
	}
	as := e.parts(k.copies(), k.partials())
	whole := e.models.with(as, k.model.Offload)
	as.Layers = g.Layers
	parts := e.models.with(as, k.model.Offload)
	out.FreedBytes = sharding.Freed(whole, parts, k.copies(), on)
	return out
}

// lacking returns the stages of a group that lack memory to hold all whole, to recompute nothing that
// the run does not ask for, and to have as much in flight as their links call for; bytes is what the
// tightest of them lacks. It has no answer under schedules whose programs say what is in flight.
func (e explainer) lacking(g sharding.Group) (stages []cost.Stage, bytes int64) {
	k := e.k
	if k.programmed() {
		return nil, 0
	}
	c := cutter{e.problem, e.models.with(e.parts(k.copies(), k.partials()), k.model.Offload), k.order}
	for r, p := range k.pipes {
		problem := c.stages(p)
		full, _, err := schedule.MinimalWarmups(problem.Costs(p.Codecs), nil)
		if err != nil {
			continue // no memory would do
		}
		for s, at := range k.layout.Rows[r] {
			lack := int64(min(full[s]+1, k.shares[r]))*problem.Stages[s].SlotBytes - problem.Stages[s].RoomBytes
			if lack > 0 && g.Layers.Contains(at.First) {
				stages, bytes = append(stages, at), max(bytes, lack)
			}
		}
	}
	return stages, bytes
}
