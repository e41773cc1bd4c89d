package outer

import (
	"fmt"

	"pnode/planner/plan"
)

// Rounds says after which inner steps which fragment of the layers leaves for the other replicas, and is
// merged. Each fragment is merged every Every inner steps, one after the other at equal distances.
type Rounds struct {
	Every     plan.Step // H: inner steps between two outer steps of a fragment
	Fragments int       // 1: all layers at once
	// Delay counts the inner steps between leaving and merging (tau in arXiv 2501.18512, section 2.2): messages
	// travel meanwhile.
	Delay plan.Step
}

// None stands for no fragment.
const None = -1

// Validate returns an error that names a setting out of bounds. A fragment is merged before the next one
// leaves.
func (r Rounds) Validate() error {
	switch {
	case r.Every < 1 || r.Every > 1<<20:
		return fmt.Errorf("%w: %d inner steps between outer steps, want 1 to %d", ErrSetting, r.Every, 1<<20)
	case r.Fragments < 1 || r.Every%plan.Step(r.Fragments) != 0:
		return fmt.Errorf("%w: %d fragments in %d inner steps, want a number that divides them", ErrSetting, r.Fragments, r.Every)
	case r.Delay >= r.period():
		return fmt.Errorf("%w: merged %d inner steps later, want fewer than the %d between two fragments", ErrSetting, r.Delay, r.period())
	}
	return nil
}

// period returns the inner steps from one fragment's merge to the next one's.
func (r Rounds) period() plan.Step { return r.Every / plan.Step(r.Fragments) }

// After returns the fragment that leaves after inner step number step (from 1), and the one that is merged, or None. Where
// Delay is 0 they are the same fragment.
func (r Rounds) After(step plan.Step) (leaves, merged int) { return r.at(step + r.Delay), r.at(step) }

// at returns the fragment whose turn it is after a step.
func (r Rounds) at(step plan.Step) int {
	if step < 1 || step%r.period() != 0 {
		return None
	}
	return int((step/r.period() - 1) % plan.Step(r.Fragments))
}

// Fragment returns the one that a layer is in: layers take turns (the strided fragments of arXiv 2501.18512, section 2.2),
// so that however they are cut into stages, stages of as many layers as there are fragments have a share of each.
func (r Rounds) Fragment(layer int) int { return layer % r.Fragments }
