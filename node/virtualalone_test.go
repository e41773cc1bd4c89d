package node

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhoIsLeftAloneEnds: a node is cut off while the others finish the run and leave. Once it sees that no node runs on their
// machines it ends by itself, and says who was heard when, where the model was, and how to go on.
func TestWhoIsLeftAloneEnds(t *testing.T) {
	size := fleetSize{Steps: 16, Stages: 1, Replicas: 1, CheckpointEvery: 4, MinNodes: 3}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		founder := f.add()
		invite := founder.found()
		for range 2 {
			f.add().join(invite)
		}
		f.untilStep(5)
		last := f.members[2]
		f.faults.set(func() { f.faults.mute[last.addr()], f.faults.deaf[last.addr()] = true, true })
		f.until("the others have ended", time.Hour, func() bool { return !founder.running() && !f.members[1].running() })
		f.faults.heal()
		healed := time.Now()
		err := f.untilEnded(2 * aloneAfter)[2]
		if !errors.Is(err, ErrUnreachable) {
			t.Fatalf("it ended with %v", err)
		}
		for _, want := range []string{"(last heard: ", "node-0 at 00:0", "node-1 at 00:0", "The whole model of step ", " was on node-0.", "`pnode join --dir " + last.dir + "`"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
		if waited := time.Since(healed); waited < aloneAfter {
			t.Errorf("it gave up after %v: one of the others might have come back", waited)
		}
		f.check()
	})
}
