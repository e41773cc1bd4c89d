package node

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/swarm/twofold"
)

// TestAWholeCrashThatOneDoesNotComeBackFrom: all nodes are killed, and all but one are started again. The leader waits for that one for
// moments, says so, and plans without it. When it comes later it joins, and the losses are those of one node alone.
func TestAWholeCrashThatOneDoesNotComeBackFrom(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 5, MinNodes: 3}
	known := undisturbed(t, size)
	for name, silent := range map[string]bool{"whose machine says so": false, "whose machine is gone, too": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, size, known.again())
				invite := f.add().found()
				for range 3 {
					f.add().join(invite)
				}
				f.untilStep(12)
				missing := f.members[1]
				for _, m := range f.members[1:] {
					if m.node() != nil && f.state().Plan.Places(m.self) {
						missing = m
					}
				}
				for _, m := range f.members {
					m.kill()
					if err := twofold.Remove(m.dir, runFile); err != nil { // nodes go by the log, and write it again
						t.Fatal(err)
					}
				}
				f.faults.silenced(missing.addr(), silent)
				newest, began := f.truth.reached(), time.Now()
				for _, m := range f.others(missing) {
					m.join("")
				}
				waits := ""
				f.until("a step after the crash", time.Hour, func() bool {
					for _, m := range f.others(missing) {
						if n := m.node(); n != nil && strings.Contains(n.monitor.Status().Waiting, missing.name()) {
							waits = n.monitor.Status().Waiting
						}
					}
					return f.truth.reached() > newest
				})
				took := time.Since(began)
				t.Logf("%v from the start to the next new step; meanwhile %q", took.Round(time.Millisecond), waits)
				if took > 15*time.Second {
					t.Errorf("the next new step came after %v", took)
				}
				f.faults.silenced(missing.addr(), false)
				missing.join("")
				for i, err := range f.untilEnded(time.Hour) {
					if err != nil && !errors.Is(err, errKilled) {
						t.Errorf("node %d: %v", i, err)
					}
					if _, err := LoadRun(f.members[i].dir); err != nil {
						t.Errorf("node %d: %v", i, err)
					}
				}
				f.check()
			})
		})
	}
}
