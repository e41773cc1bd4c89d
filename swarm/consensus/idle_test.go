package consensus

import (
	"testing"

	"pnode/planner/plan"
)

// The log forgives members that were slow and have had no part in checkpoints since; those that are gone stay as they were.
func TestSlowMembersAreBelievedAgain(t *testing.T) {
	slow := plan.Shown{FLOPS: 100, Generation: 1, Lowered: 1}
	s := State{Members: []Member{{Peer: "a", State: Active, Shown: slow}, {Peer: "b", State: Gone, Shown: slow}}}
	s = s.kept().kept()
	if a := s.Members[0].Shown; a.Lowered != 0 || !a.Held {
		t.Errorf("after 2 checkpoints without it: %+v", a)
	}
	if b := s.Members[1].Shown; b != slow {
		t.Errorf("one that is gone: %+v", b)
	}
}
