package node

import "testing"

func TestEveryPhaseIsReachedAndCanStop(t *testing.T) {
	reached := map[Phase]bool{Joining: true}
	for changed := true; changed; {
		changed = false
		for from, nexts := range transitions {
			for _, next := range nexts {
				if reached[from] && !reached[next] {
					reached[next], changed = true, true
				}
			}
		}
	}
	for p := range transitions {
		if !reached[p] {
			t.Errorf("phase %v cannot be reached", p)
		}
		m := machine{phase: p, changed: func(Phase, Phase) {}}
		if m.to(Stopped); m.phase != Stopped {
			t.Errorf("phase %v cannot stop", p)
		}
	}
}

func TestStoppedIsFinal(t *testing.T) {
	calls := 0
	m := machine{phase: Waiting, changed: func(Phase, Phase) { calls++ }}
	m.to(Stopped)
	m.to(Training)
	if m.phase != Stopped || calls != 1 {
		t.Fatalf("phase %v after %d changes, want stopped after 1", m.phase, calls)
	}
}

func TestUnknownTransitionPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("joining -> training was accepted")
		}
	}()
	m := machine{phase: Joining, changed: func(Phase, Phase) {}}
	m.to(Training)
}
