package local

import (
	"fmt"
	"reflect"
	"testing"

	"pnode/node/api"
	"pnode/planner/plan"
)

func TestMergesTheNodesOfARun(t *testing.T) {
	s, out := supervise(t, "short", 3, nil)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := out.stepsOf(1); !reflect.DeepEqual(got, numbers(1, 30)) {
		t.Errorf("steps %v, want each of 1 to 30 once", got)
	}
	for _, e := range out.events {
		if e.Kind == api.KindStep && e.Loss != 1/float64(e.Step) {
			t.Errorf("step %d has loss %v", e.Step, e.Loss)
		}
	}
	if out.count(api.KindSample) != 1 || out.count(api.KindDone) != 1 {
		t.Errorf("%d samples, %d ends", out.count(api.KindSample), out.count(api.KindDone))
	}
	for i := range 3 {
		if out.said(fmt.Sprintf(`^node-%d: pid \d+$`, i)) == nil || out.said(fmt.Sprintf(`^node-%d: state: training$`, i)) == nil {
			t.Errorf("nothing of node %d in %q", i, out.notices)
		}
	}
}

// TestAnErrorOfSeveralNodesIsShownOnce: they lost the same peer.
func TestAnErrorOfSeveralNodesIsShownOnce(t *testing.T) {
	out := newRecord()
	m := newMerge(out, numbered, func() {})
	for node := range 3 {
		m.event(node, api.Event{Kind: api.KindError, Generation: 2, Message: "waiting for a new plan"})
	}
	m.event(1, api.Event{Kind: api.KindError, Generation: 2, Message: "something else"})
	for _, node := range []int{2, 0} { // a collector that both send to
		m.event(node, api.Event{Kind: api.KindWarning, Generation: 2, Message: "it is away"})
	}
	if want := []string{"node-0: error: waiting for a new plan", "node-1: error: something else", "node-2: warning: it is away"}; !reflect.DeepEqual(out.notices, want) {
		t.Errorf("got %q, want %q", out.notices, want)
	}
}

// TestEachNodesWayIntoARecoveredRunIsShown: what does not count any more is another thing for each.
func TestEachNodesWayIntoARecoveredRunIsShown(t *testing.T) {
	out := newRecord()
	m := newMerge(out, numbered, func() {})
	for node, message := range []string{"it goes on", "it goes on", "it goes on, and step 7 does not count"} {
		m.event(node, api.Event{Kind: api.KindRecovery, Generation: 2, Message: message})
	}
	if want := []string{"node-0: recovery: it goes on", "node-2: recovery: it goes on, and step 7 does not count"}; !reflect.DeepEqual(out.notices, want) {
		t.Errorf("got %q, want %q", out.notices, want)
	}
}

// TestMergeForgetsTheOldest bounds the memory of a long run.
func TestMergeForgetsTheOldest(t *testing.T) {
	out := newRecord()
	m := newMerge(out, numbered, func() {})
	saved := func(n int) api.Event { return api.Event{Kind: api.KindCheckpoint, Step: plan.Step(n)} }
	for n := range rememberedEvents + 5 {
		m.event(0, saved(n))
		m.event(1, saved(n))
	}
	if len(out.events) != rememberedEvents+5 {
		t.Errorf("%d events shown, want %d", len(out.events), rememberedEvents+5)
	}
	if len(m.seen) != rememberedEvents || len(m.ring) != rememberedEvents {
		t.Errorf("remembers %d and %d", len(m.seen), len(m.ring))
	}
	m.event(2, saved(10)) // still remembered
	if len(out.events) != rememberedEvents+5 {
		t.Error("a remembered checkpoint was shown again")
	}
}

func TestNothingIsWaitedForAfterAStop(t *testing.T) {
	m := newMerge(newRecord(), numbered, func() {})
	waits := func(want string, events ...api.Event) {
		t.Helper()
		for _, e := range events {
			m.event(0, e)
		}
		if got := m.waits(); got != want {
			t.Errorf("it waits %q, want %q", got, want)
		}
	}
	wait := api.Event{Kind: api.KindWaiting, Message: "1 of 2 nodes joined"}
	waits(wait.Message, wait)
	waits("", api.Event{Kind: api.KindDone, Message: "stopped", Steps: 9}, wait)
	waits(wait.Message, api.Event{Kind: api.KindPlan, Generation: 1}, wait)
}
