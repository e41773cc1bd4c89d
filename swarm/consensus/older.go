package consensus

import (
	"slices"

	"pnode/planner/plan"
)

// JumpReach is how many steps before the newest checkpoint a good one is kept: what spoils the weights shows in the
// losses a few steps later, when newer checkpoints may have been made of them.
const JumpReach plan.Step = 32

// retain returns the older checkpoints, newest first, that stay besides the newest one: keep-1 of them, and where
// none of these is JumpReach steps older, the newest that is, and one that will be when that one is too old.
func retain(older []Checkpoint, newest plan.Step, keep int) []Checkpoint {
	stay := slices.Clone(older[:min(len(older), MaxOlder-2, max(0, keep-1))])
	reaches := func(c Checkpoint) bool { return c.Step+JumpReach <= newest }
	if slices.ContainsFunc(stay, reaches) {
		return stay
	}
	rest := older[len(stay):]
	far := slices.IndexFunc(rest, reaches)
	if far < 0 {
		far = len(rest)
	}
	if far > 0 {
		stay = append(stay, rest[far-1])
	}
	if far < len(rest) {
		stay = append(stay, rest[far])
	}
	return stay
}
