package leader

import (
	"fmt"
	"testing"
	"time"

	"pnode/planner"
	"pnode/swarm/consensus"
)

func TestNoPlanIsToldWithoutThePackage(t *testing.T) {
	err := fmt.Errorf("%w: the planner: of a", planner.ErrNoFit)
	if got, want := withoutPackage(err), "model does not fit: the planner: of a"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhoSleptBlamesNobody(t *testing.T) {
	members := []consensus.Member{{Peer: "a", ProcessEpoch: 1}, {Peer: "b", ProcessEpoch: 1}}
	start := time.Unix(1000, 0)
	var s sightings
	for i := range 10 {
		s.look(members, start.Add(time.Duration(i)*decideEvery))
	}
	a := process{"a", 1}
	if s.since[a] != start {
		t.Errorf("a was seen first at %v, want %v", s.since[a], start)
	}
	members[0].ProcessEpoch = 2
	later := s.last.Add(decideEvery)
	s.look(members, later)
	if _, kept := s.since[a]; kept || s.since[process{"a", 2}] != later || s.since[process{"b", 1}] != start {
		t.Errorf("after a restart of a: %v", s.since)
	}
	woken := later.Add(maxNap + 1)
	s.look(members, woken)
	if s.since[process{"b", 1}] != woken {
		t.Errorf("b is blamed for %v of sleep", woken.Sub(s.since[process{"b", 1}]))
	}
}
