package planner

import (
	"fmt"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// layoutBound says how much of a step the busiest device of a layout computes.
func (c *cluster) layoutBound(k *candidate) Reason {
	l, busiest := k.layout, 0
	busy := make([]schedule.Nanos, len(c.units))
	for r, costs := range c.timing(l).Replicas {
		for s, st := range costs.Stages {
			at := l.rows[r][s]
			busy[at.unit] += schedule.Nanos(l.micros[r]) * (st.Micro() + st.Recompute)
			if busy[at.unit] > busy[busiest] {
				busiest = at.unit
			}
		}
	}
	text := fmt.Sprintf("bound by %s: %s computes %s of the %s that the passes take, the rest is filling, draining and messages",
		c.order.spec, c.name(busiest), cost.Time(busy[busiest]), cost.Time(l.end))
	if rest := k.job.Tail(); rest > l.end {
		text = fmt.Sprintf("bound by what follows the pipelines: reductions, commit and update take %s, the passes %s", cost.Time(rest), cost.Time(l.end))
	}
	return Reason{Kind: Bound, Text: text}
}

// layoutLines are those of the devices.
func (c *cluster) layoutLines(k *candidate) []Reason {
	var out []Reason
	for _, u := range k.order() {
		var stages []string
		var cells []cell
		var micro schedule.Nanos
		for _, h := range k.layout.cellsOn(u) {
			at := k.layout.cell(h)
			cells = append(cells, *at)
			text := fmt.Sprintf("replica %d stage %d layers [%d,%d) %d in flight", h.Replica, h.Stage, at.first, at.end, at.use.Slots)
			if again := JoinLevels(at.levels); again != "" {
				text += fmt.Sprintf(" recomputes %s to fit", again)
			}
			took := c.cellTime(*at)
			stages, micro = append(stages, text+aheadText(took, at.ahead)), micro+took.Micro()+took.Recompute
		}
		out = append(out, Reason{Kind: StageTime, Text: fmt.Sprintf("%s: %s; %s for a micro-batch of each, %s of %s%s",
			c.name(u), strings.Join(stages, ", "), cost.Time(micro), cost.Size(k.layout.need[u]), cost.Size(c.stageRoom(u)), c.of(k).offloadText(u, cells...)+c.storageText(u))})
	}
	return out
}

// aheadText tells what of a stage's layers is computed again while it waits; empty for nothing.
func aheadText(t schedule.StageTime, layers int) string {
	if layers == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of recomputation ahead of the gradient in waits (the last %s)", cost.Time(t.Recompute), Count(layers, "layer"))
}

// codecLines say why boundaries send fewer bits.
func (k *candidate) codecLines() []Reason {
	var out []Reason
	tell := func(replica, boundary int, codec cost.Codec, exposed, period schedule.Nanos, unit string) {
		why := "asked for"
		if exposed > 0 {
			why = fmt.Sprintf("in %v its messages would be exposed, %s %s instead of %s", codec-1, cost.Time(exposed), unit, cost.Time(period))
		}
		if codec != cost.F32 {
			out = append(out, Reason{Kind: Codec, Text: fmt.Sprintf("replica %d boundary %d → %d: tensors travel in %v: %s", replica, boundary, boundary+1, codec, why)})
		}
	}
	if l := k.layout; l != nil {
		for r, codecs := range l.codecs {
			for b, codec := range codecs {
				tell(r, b, codec, l.exposed[[2]int{r, b}], l.end, "a step")
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
