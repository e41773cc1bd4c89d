package planner

import (
	"fmt"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/layout"
	"pnode/planner/plan"
)

// layoutBound says how much of a step the busiest device of a layout computes.
func (c *cluster) layoutBound(k *candidate) plan.Reason {
	l := k.layout
	busiest, computes := c.site.Busiest(l)
	text := fmt.Sprintf("bound by %s: %s computes %s of the %s that the passes take, the rest is filling, draining and messages",
		c.order.spec, c.name(busiest), plan.Time(computes), plan.Time(l.End))
	if rest := k.job.Tail(); rest > l.End {
		text = fmt.Sprintf("bound by what follows the pipelines: reductions, commit and update take %s, the passes %s", plan.Time(rest), plan.Time(l.End))
	}
	return plan.Reason{Kind: plan.ReasonBound, Text: text}
}

// layoutLines are those of the devices.
func (c *cluster) layoutLines(k *candidate) []plan.Reason {
	var out []plan.Reason
	for _, u := range k.order() {
		var stages []string
		var cells []layout.Cell
		var micro schedule.Nanos
		for _, h := range k.layout.On(u) {
			at := k.layout.Cell(h)
			cells = append(cells, *at)
			text := fmt.Sprintf("replica %d stage %d layers [%d,%d) %d in flight", h.Replica, h.Stage, at.First, at.End, at.Use.Slots)
			if again := plan.JoinLevels(at.Levels); again != "" {
				text += fmt.Sprintf(" recomputes %s to fit", again)
			}
			took := c.site.CellTime(*at)
			stages, micro = append(stages, text+aheadText(took, at.Ahead)), micro+took.Micro()+took.Recompute
		}
		out = append(out, plan.Reason{Kind: plan.ReasonStageTime, Text: fmt.Sprintf("%s: %s; %s for a micro-batch of each, %s of %s%s",
			c.name(u), strings.Join(stages, ", "), plan.Time(micro), plan.Size(k.layout.Need[u]), plan.Size(c.site.Room(u)), c.of(k).offloadText(u, cells...)+c.storageText(u))})
	}
	return out
}

// aheadText tells what of a stage's layers is computed again while it waits; empty for nothing.
func aheadText(t schedule.StageTime, layers int) string {
	if layers == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of recomputation ahead of the gradient in waits (the last %s)", plan.Time(t.Recompute), plan.Count(layers, "layer"))
}

// codecLines say why boundaries send fewer bits.
func (k *candidate) codecLines() []plan.Reason {
	var out []plan.Reason
	tell := func(replica, boundary int, codec plan.Codec, exposed, period schedule.Nanos, unit string) {
		why := "asked for"
		if exposed > 0 {
			why = fmt.Sprintf("in %v its messages would be exposed, %s %s instead of %s", codec-1, plan.Time(exposed), unit, plan.Time(period))
		}
		if codec != plan.CodecF32 {
			out = append(out, plan.Reason{Kind: plan.ReasonCodec, Text: fmt.Sprintf("replica %d boundary %d → %d: tensors travel in %v: %s", replica, boundary, boundary+1, codec, why)})
		}
	}
	if l := k.layout; l != nil {
		for r, codecs := range l.Codecs {
			for b, codec := range codecs {
				tell(r, b, codec, l.Exposed[layout.Boundary{Replica: r, Stage: b}], l.End, "a step")
			}
		}
		return out
	}
	for r, p := range k.pipes {
		for b, codec := range p.Codecs {
			tell(r, b, codec, p.Exposed[b], p.Period, "a micro-batch")
		}
	}
	return out
}

// offloadText tells what stages of a unit keep in host memory; empty for nothing.
func (c *cluster) offloadText(unit int, stages ...layout.Cell) string {
	bytes, took := int64(0), schedule.Nanos(0)
	for _, at := range stages {
		bytes, took = bytes+c.books().Moments(at.First, at.End), took+c.site.Crossing(unit, at.First, at.End)
	}
	if !c.site.IsAway(unit) {
		return ""
	}
	return fmt.Sprintf(", keeps %s of optimizer state in host memory to fit, %s a step for copies", plan.Size(bytes), plan.Time(took))
}
