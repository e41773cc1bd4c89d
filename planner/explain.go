package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/layout"
	"pnode/planner/plan"
)

// Larger plans and rosters are told in sums.
const (
	maxStageLines   = 24
	maxLeftOutLines = 16
)

// explain gives the reasons for the chosen candidate.
func (c *cluster) explain(k *candidate, others []*candidate) plan.Reasons {
	out := plan.Reasons{{
		Kind: plan.ReasonStepTime, Nanos: int64(k.step()),
		Text: fmt.Sprintf("predicted step %s: %v on %d of %s", plan.Time(k.step()), k.shape, k.shape.units(), plan.Count(len(c.units), "measured device")),
	}}
	out = append(append(out, c.groupLines(k)...), c.boundOf(k))
	out = append(append(out, c.storageLines(k)...), c.sharingLines(k)...)
	if k.shape.units() <= maxStageLines {
		out = append(append(out, c.stageLines(k)...), k.codecLines()...)
	}
	for _, o := range others {
		if o.shape != k.shape || slices.ContainsFunc(o.order(), func(u int) bool { return !k.uses(u) }) {
			out = append(out, plan.Reason{Kind: plan.ReasonNextBest, Nanos: int64(o.step()), Text: c.nextBest(k, o)})
			break
		}
	}
	if c.in.Previous != nil {
		out = append(out, plan.Reason{Kind: plan.ReasonMoved, Text: fmt.Sprintf("%s of parameters change their node", plan.Size(k.movedByte))})
	}
	out = append(out, c.leftOut(k, others)...)
	if n, worst := c.unmeasured(k); n > 0 {
		like := ""
		if worst != DefaultLink {
			like = ", by the other links of their nodes, at worst"
		}
		out = append(out, plan.Reason{Kind: plan.ReasonAssumed, Text: fmt.Sprintf("%s between neighbours not measured: assumed%s %s/s and a round trip of %s",
			plan.Count(n, "link"), like, plan.Size(worst.BytesPerS), plan.Time(schedule.Nanos(worst.RTTNanos)))})
	}
	return out
}

func (c *cluster) nextBest(k, o *candidate) string {
	what := "next best"
	if o.shape == k.shape {
		what += " with other nodes"
	}
	diff := slower(k.step(), o.step())
	if o.step() < k.step() {
		return fmt.Sprintf("%s: %v, step %s, %s faster, but it moves %s of parameters instead of %s",
			what, o.shape, plan.Time(o.step()), plan.Permille(-diff), plan.Size(o.movedByte), plan.Size(k.movedByte))
	}
	return fmt.Sprintf("%s: %v, step %s, %s slower", what, o.shape, plan.Time(o.step()), plan.Permille(diff))
}

// boundOf says what a step spends its time on.
func (c *cluster) boundOf(k *candidate) plan.Reason {
	if k.layout != nil {
		return c.layoutBound(k)
	}
	return c.bound(k)
}

// bound says what a step spends its time on.
func (c *cluster) bound(k *candidate) plan.Reason {
	r := k.result.Slowest
	p, pipes := k.pipes[r], k.result.Pipelines[r]
	floor := p.Costs.Floor()
	var text string
	switch micros := k.shares[r]; {
	case k.job.Reduce+k.job.Tied+k.job.Gather > pipes:
		text = fmt.Sprintf("bound by the exchange between replicas: %s, pipelines %s", plan.Time(k.job.Reduce+k.job.Tied+k.job.Gather), plan.Time(pipes))
	case k.job.Commit+k.job.Update > pipes:
		text = fmt.Sprintf("bound by commit and update: %s, pipelines %s", plan.Time(k.job.Commit+k.job.Update), plan.Time(pipes))
	case p.Bound.Memory() && p.Period > floor+floor/50 && p.Costs.RoundTrip() < schedule.Nanos(micros)*p.Period:
		text = "bound by " + c.boundText(r, p)
	case p.Costs.RoundTrip() > schedule.Nanos(micros-1)*floor && len(p.units) > 1:
		text = fmt.Sprintf("bound by filling and draining: %s for %s of %s each in replica %d; more micro-batches a step would help",
			plan.Time(p.Costs.RoundTrip()), plan.Count(micros, "micro-batch"), plan.Time(floor), r)
	default:
		text = "bound by " + c.boundText(r, p)
	}
	return plan.Reason{Kind: plan.ReasonBound, Text: text}
}

// boundText is what sets the period of a replica's pipe.
func (c *cluster) boundText(replica int, p *pipe) string {
	return p.Bound.Text(func(s int) string {
		return fmt.Sprintf("replica %d stage %d on %s", replica, s, c.name(p.units[s]))
	})
}

func (c *cluster) stageLines(k *candidate) []plan.Reason {
	if k.layout != nil {
		return c.layoutLines(k)
	}
	var out []plan.Reason
	for r, p := range k.pipes {
		for s, u := range p.units {
			first, end := p.layers(s)
			warmup := min(p.Warmups[s], k.shares[r]-1)
			need := c.of(k).site.Fixed(u, first, end) + p.Rooms[s].PassBytes + int64(warmup+1)*p.Rooms[s].SlotBytes
			text := fmt.Sprintf("replica %d stage %d: %s, layers [%d,%d), %s a micro-batch, %d of them, %d in flight, %s of %s",
				r, s, c.name(u), first, end, plan.Time(p.Costs.Stages[s].Micro()+p.Costs.Stages[s].Recompute), k.shares[r], warmup+1, plan.Size(need+c.ledger(u).Pass()), plan.Size(c.units[u].FreeBytes+c.ledger(u).Pass()))
			if again := plan.JoinLevels(p.Recompute[s]); again != "" {
				text += fmt.Sprintf(", recomputes %s to fit", again)
			}
			text += c.of(k).offloadText(u, layout.Cell{First: first, End: end})
			out = append(out, plan.Reason{Kind: plan.ReasonStageTime, Text: text + aheadText(p.Costs.Stages[s], p.Ahead[s]) + c.storageText(u)})
		}
	}
	return out
}

// leftOut names the units without a stage, with the best step that uses each.
func (c *cluster) leftOut(k *candidate, others []*candidate) []plan.Reason {
	out := slices.Clone(c.unusable)
	for u := range c.units {
		if k.uses(u) {
			continue
		}
		text := fmt.Sprintf("%s gets no stage: no plan with it comes close", c.name(u))
		if i := slices.IndexFunc(others, func(o *candidate) bool { return o.uses(u) }); i >= 0 {
			with := others[i]
			text = fmt.Sprintf("%s gets no stage: the best plan with it takes %s a step (%v), without it %s",
				c.name(u), plan.Time(with.step()), with.shape, plan.Time(k.step()))
		}
		out = append(out, plan.Reason{Kind: plan.ReasonLeftOut, Text: text})
	}
	if more := len(out) - maxLeftOutLines; more > 0 {
		out = append(out[:maxLeftOutLines], plan.Reason{Kind: plan.ReasonLeftOut, Text: fmt.Sprintf("%s more get no stage", plan.Count(more, "device"))})
	}
	return out
}

// unmeasured counts the pairs of neighbours whose link nobody measured, with the worst that is
// assumed of any.
func (c *cluster) unmeasured(k *candidate) (n int, worst cost.Link) {
	worst = DefaultLink
	pairs := map[[2]int]bool{}
	for _, row := range k.rows() {
		for s := 1; s < len(row); s++ {
			a, b := row[s-1].Unit, row[s].Unit
			if link, measured := c.links.between(c.units[a].peer, c.units[b].peer); !measured {
				worst = worse(worst, link)
				pairs[[2]int{min(a, b), max(a, b)}] = true
			}
		}
	}
	return len(pairs), worst
}

func (c *cluster) name(u int) string {
	return c.units[u].node + " " + c.units[u].device
}
