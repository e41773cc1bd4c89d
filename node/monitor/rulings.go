package monitor

import (
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// newRulings returns the rulings that follow those of before; none where nothing was known before.
func newRulings(before, now []consensus.Blame) []consensus.Blame {
	if before == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(now), func(b consensus.Blame) bool { return slices.Contains(before, b) })
}

// rulingText says what follows from a ruling, for people.
func rulingText(s consensus.State, b consensus.Blame) string {
	told := s.Told(b)
	switch {
	case b.Diverged:
		return DivergenceText(s)
	case b.Kind == plan.LossJump && b.Again:
		return told
	case b.Kind == plan.LossJump && b.Until != 0:
		return fmt.Sprintf("going back to the checkpoint of step %d; %s is not used %s. That it did it is not proved: the same steps show whether the loss jumps without it", b.Back, s.NameOf(b.Peer), told)
	case b.GoesBack():
		return fmt.Sprintf("going back to the checkpoint of step %d: %s", b.Back, told)
	case b.Until != 0:
		return fmt.Sprintf("%s is not used %s", s.NameOf(b.Peer), told)
	}
	return fmt.Sprintf("a fault of %s, for which nobody is blamed yet: %s", s.NameOf(b.Peer), told)
}

// DivergenceText says that the run has stopped since it diverged, and what to do; empty where it has not.
func DivergenceText(s consensus.State) string {
	b, diverged := s.Diverged()
	if !diverged {
		return ""
	}
	return fmt.Sprintf("the run has diverged and stops: %s, on two tries. Nobody is blamed. `pnode train --resume` goes on from the checkpoint of step %d with the same settings; "+
		"`pnode train --init DIR` with a lower --lr begins a new run from its weights", s.Told(b), s.Checkpoint.Step)
}

// notUsed returns why plans do without a member now; empty if they do not.
func notUsed(s consensus.State, m consensus.Member, now time.Time) string {
	if b, out := m.LeftOut(now); out && m.State != consensus.Gone {
		return s.Told(b)
	}
	return ""
}
