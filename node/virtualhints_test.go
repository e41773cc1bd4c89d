package node

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEveryNodeSaysWhatWouldHelp: a node that does not lead shows why the plan is as it is and what would help, as the leader does, with names of machines.
func TestEveryNodeSaysWhatWouldHelp(t *testing.T) {
	size := fleetSize{Steps: 400, Stages: 2, Replicas: 1, CheckpointEvery: 50, MinNodes: 2, Slow: true}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, newTruth())
		founder := f.add()
		other := f.add()
		other.join(founder.found())
		var hints []string
		f.until("a hint on the node that does not lead", 10*time.Minute, func() bool {
			for i, m := range f.members {
				n, leads := m.node(), f.members[1-i].node()
				if n == nil || leads == nil {
					return false
				}
				if s := n.monitor.Status(); s.Leader == leads.self && len(s.Reasons) > 0 && len(s.Hints) > 0 {
					hints = s.Hints
					return slices.Equal(hints, leads.monitor.Status().Hints)
				}
			}
			return false
		})
		t.Logf("%q", hints)
		for _, h := range hints {
			if strings.HasPrefix(h, "a new run with --") || strings.Contains(h, " times as fast (steps of ") && strings.Contains(h, "node-") {
				continue
			}
			t.Errorf("a hint is %q", h)
		}
		if err := founder.node().Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, err := range f.untilEnded(time.Hour) {
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		}
	})
}
