package elastic

import (
	"cmp"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// ExposedPercent is by how much a more exact codec must lengthen the period for its messages
// to count as exposed: less than that is not worth inexact gradients.
const ExposedPercent = 2

// Widen returns a decision of Choose with the most exact codecs that hide their messages as well:
// narrow ones stay only where a message would otherwise be exposed, and lengthen the period.
// It begins with the boundaries on the fastest links.
func Widen(p Problem, d Decision) (Decision, error) {
	widest := p.widest()
	if p.narrowest() == widest {
		return d, nil
	}
	most := d.Period + d.Period*ExposedPercent/100
	exposed := make([]schedule.Nanos, len(d.Codecs))
	order, transfer := make([]int, len(p.Boundaries)), make([]schedule.Nanos, len(p.Boundaries))
	for i, b := range p.Boundaries {
		at := b.at(widest)
		order[i], transfer[i] = i, max(at.Activation.Transfer, at.Gradient.Transfer)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(transfer[a], transfer[b]) })
	for _, i := range order {
		for codec := widest; codec < d.Codecs[i]; codec++ {
			codecs := slices.Clone(d.Codecs)
			codecs[i] = codec
			wider, err := p.solve(codecs)
			if err != nil {
				return Decision{}, err
			}
			if wider.Period <= most {
				d = wider
				break
			}
			exposed[i] = wider.Period
		}
	}
	d.Exposed = exposed
	return d, nil
}

func (p Problem) widest() plan.Codec    { return cmp.Or(p.Widest, plan.CodecF32) }
func (p Problem) narrowest() plan.Codec { return cmp.Or(p.Narrowest, plan.CodecF32) }
