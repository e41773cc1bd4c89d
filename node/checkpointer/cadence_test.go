package checkpointer

import (
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// TestCheckpointsTakeATenthOfTheTime: one is due when the last one is committed and its rest is over, sooner where
// messages are forgotten, and never two at once.
func TestCheckpointsTakeATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCadence()
		want := func(due bool, step, newest int, forgets bool) {
			t.Helper()
			if got := c.Due(plan.Step(step), plan.Step(newest), forgets); got != due {
				t.Errorf("after step %d: %t, want %t", step, got, due)
			}
		}
		want(false, 1, 0, false)
		time.Sleep(leastInterval)
		want(true, 2, 0, false)
		time.Sleep(20 * time.Second)
		want(false, 3, 0, true) // it is under way
		time.Sleep(10 * time.Second)
		want(false, 4, 2, false) // it took 30 s
		time.Sleep(restShare*30*time.Second - time.Second)
		want(false, 5, 2, false)
		time.Sleep(time.Second)
		want(true, 6, 2, false)
		time.Sleep(30 * time.Second)
		want(false, 7, 6, true)
		time.Sleep(forgetRestShare * 30 * time.Second)
		want(true, 8, 6, true)
		time.Sleep(lostAfter - time.Second)
		want(false, 9, 6, true)
		time.Sleep(time.Second)
		want(true, 10, 6, true) // the one before never came
	})
}
