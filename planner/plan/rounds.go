package plan

import "fmt"

// Rounds says after which inner steps which fragment of the layers leaves for the other replicas, and is
// merged: the outer steps of local training (Douillard et al. 2023, "DiLoCo", arXiv 2311.08105; in fragments and late, arXiv 2501.18512).
// Each fragment is merged every Every inner steps, one after the other at equal distances.
type Rounds struct {
	// Every counts the inner steps between two outer steps of a fragment (H in these papers).
	Every Step `json:"every"`
	// Fragments cuts the layers; 1: all at once.
	Fragments int `json:"fragments"`
	// Delay counts the inner steps between leaving and merging (tau in arXiv 2501.18512, section 2.2): messages
	// travel meanwhile.
	Delay Step `json:"delay,omitempty"`
}

// NoFragment stands for none of the fragments.
const NoFragment = -1

// MaxEvery bounds the inner steps between two outer steps: a replica shows the loss of each of them in one answer, see package pipeline/gather/seals.
const MaxEvery = 100_000

// Validate returns an error that names a setting out of bounds. A fragment is merged before the next one
// leaves.
func (r Rounds) Validate() error {
	switch {
	case r.Every < 1 || r.Every > MaxEvery:
		return fmt.Errorf("%w: %d inner steps between outer steps, want 1 to %d", ErrBadPlan, r.Every, MaxEvery)
	case r.Fragments < 1 || r.Every%Step(r.Fragments) != 0:
		return fmt.Errorf("%w: %d fragments in %d inner steps, want a number that divides them", ErrBadPlan, r.Fragments, r.Every)
	case r.Delay >= r.period():
		return fmt.Errorf("%w: merged %d inner steps later, want fewer than the %d between two fragments", ErrBadPlan, r.Delay, r.period())
	}
	return nil
}

// period returns the inner steps from one fragment's merge to the next one's.
func (r Rounds) period() Step { return r.Every / Step(r.Fragments) }

// After returns the fragment that leaves after inner step number step (from 1), and the one that is merged, or NoFragment. Where
// Delay is 0 they are the same fragment.
func (r Rounds) After(step Step) (leaves, merged int) { return r.at(step + r.Delay), r.at(step) }

// at returns the fragment whose turn it is after a step.
func (r Rounds) at(step Step) int {
	if step < 1 || step%r.period() != 0 {
		return NoFragment
	}
	return int((step/r.period() - 1) % Step(r.Fragments))
}

// Fragment returns the one that a layer is in: layers take turns (the strided fragments of arXiv 2501.18512, section 2.2),
// so that however they are cut into stages, stages of as many layers as there are fragments have a share of each.
func (r Rounds) Fragment(layer int) int { return layer % r.Fragments }
