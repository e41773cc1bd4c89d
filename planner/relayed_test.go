package planner

import (
	"reflect"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// TestRelayedLinksAreNamed: a link through a relay costs what it was measured with, and the reasons say what it is.
func TestRelayedLinksAreNamed(t *testing.T) {
	direct, relayed := lanedOf(t, "1f1b", 2, 1<<40), lanedOf(t, "1f1b", 2, 1<<40)
	for i := range relayed.Members {
		for j := range relayed.Members[i].Profile.Links {
			relayed.Members[i].Profile.Links[j].Transport = plan.Relay
		}
	}
	p, before, err := Make(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	q, after, err := Make(t.Context(), relayed)
	if err != nil || !reflect.DeepEqual(p.Replicas, q.Replicas) {
		t.Fatalf("another plan: %v", err)
	}
	count := func(all plan.Reasons) (n int) {
		for _, r := range all {
			if r.Kind == plan.ReasonRelayed && strings.Contains(r.Text, "reach each other through a relay: ") {
				n++
			}
		}
		return n
	}
	if count(before) != 0 || count(after) != 1 {
		t.Errorf("before %q, after %q", before.Lines(), after.Lines())
	}
}
