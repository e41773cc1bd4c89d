package checkpointer

import (
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/departures"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestCheckpointsTakeAShareOfTheTime: one is due when the last one is committed and its rest is over, sooner where
// messages are forgotten, and never two at once.
func TestCheckpointsTakeAShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCadence()
		begun := time.Now()
		want := func(due bool, step, newest int, forgets bool) {
			t.Helper()
			state := consensus.State{Checkpoint: consensus.Checkpoint{Step: plan.Step(newest)}}
			if got := c.Due(plan.Step(step), state, forgets); got != due {
				t.Errorf("after step %d: %t, want %t", step, got, due)
			}
		}
		rest := func(took time.Duration) time.Duration {
			seen := holders.Rate{SeenNanos: int64(time.Since(begun))}
			return time.Duration(holders.Every(int64(took), seen.Between()))
		}
		want(false, 1, 0, false)
		time.Sleep(time.Duration(holders.LeastNanos))
		want(true, 2, 0, false)
		time.Sleep(20 * time.Second)
		want(false, 3, 0, true) // it is under way
		time.Sleep(10 * time.Second)
		want(false, 4, 2, false) // it took 30 s
		time.Sleep(rest(30*time.Second) - time.Second)
		want(false, 5, 2, false)
		time.Sleep(time.Minute) // the more time without losses the longer the rest
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

// TestAStepLongerThanASave: how long a checkpoint took counts until it is committed, not until the step under way ends.
func TestAStepLongerThanASave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCadence()
		due := func(step, newest plan.Step) bool {
			return c.Due(step, consensus.State{Checkpoint: consensus.Checkpoint{Step: newest}}, false)
		}
		time.Sleep(time.Minute)
		if !due(1, 0) {
			t.Fatal("no checkpoint is made")
		}
		time.Sleep(time.Second)
		c.Committed(1)
		const every = 56 * time.Second    // the root of 2 x a tenth of 1 s x 256 minutes
		time.Sleep(every - 6*time.Second) // the step
		if due(2, 1) {
			t.Errorf("a checkpoint that took a second is made again before %v", every)
		}
		time.Sleep(6 * time.Second)
		if !due(3, 1) {
			t.Errorf("a checkpoint that took a second is not made again after %v", every)
		}
	})
}

// TestLossesMakeCheckpointsFrequent: those that the log remembers count at once, in a generation that has just begun, on a node
// that has seen none.
func TestLossesMakeCheckpointsFrequent(t *testing.T) {
	for _, c := range []struct {
		name   string
		losses int // one every 10 s, the newest just now
		want   time.Duration
	}{
		{"none", 0, 39 * time.Second},
		{"one may be chance, and counts", 1, 13 * time.Second},
		{"one after the other", 2, 2 * time.Second},
		{"as many as are remembered", 3 * departures.Most, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			h := departures.History{}
			for range c.losses {
				h.Clock = h.Clock.After(1, now)
				now = now.Add(10 * time.Second)
				h.Clock = h.Clock.After(1, now)
				h = h.Noted(false)
			}
			cadence, newest := NewCadence(), plan.Step(0)
			due := func(step plan.Step) bool {
				return cadence.Due(step, consensus.State{Departures: h, Checkpoint: consensus.Checkpoint{Step: newest}}, false)
			}
			step := plan.Step(1)
			for ; !due(step); step++ {
				time.Sleep(time.Second / 2)
			}
			time.Sleep(time.Second / 2)
			newest = step
			cadence.Committed(newest)
			made := time.Now()
			for step++; !due(step); step++ {
				time.Sleep(time.Second / 2)
			}
			if got := time.Since(made).Round(time.Second); got != c.want {
				t.Errorf("%s: the next checkpoint is due after %v, want %v", c.name, got, c.want)
			}
		})
	}
}
