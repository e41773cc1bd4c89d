package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestALossWhereADiskIsSlow: each write of the log takes one node 4 s, two of 2 s for the two files of its journal, and another one dies.
// The next step comes without anybody's help.
func TestALossWhereADiskIsSlow(t *testing.T) {
	size := fleetSize{Steps: 40, Stages: 3, Replicas: 1, CheckpointEvery: 10, MinNodes: 3}
	known := undisturbed(t, size)
	for name, slow := range map[string]int{"the leader's": 0, "a follower's": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, size, known.again())
				invite := f.add().found()
				for range 2 {
					f.add().join(invite)
				}
				f.until("the step", time.Hour, func() bool { return f.truth.reached() >= 12 })
				f.members[slow].written.Store(int64(4 * time.Second))
				f.until("some steps on the slow disk", time.Hour, func() bool { return f.truth.reached() >= 16 })
				reached, killed := f.truth.reached(), time.Now()
				f.members[2].kill(f.members[:2]...)
				f.until("the next step", time.Hour, func() bool { return f.truth.reached() > reached })
				took := time.Since(killed).Round(time.Millisecond)
				f.Logf("the step after %d came %v after the loss", reached, took)
				if took > time.Minute {
					f.Errorf("the step after %d came %v after the loss", reached, took)
				}
			})
		})
	}
}
