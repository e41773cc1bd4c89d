package checkpointer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestCheckpointsTakeAShareOfTheTime: one is due when the last one is committed and its rest is over, sooner where
// messages are forgotten, and never two at once.
func TestCheckpointsTakeAShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := (&Checkpointer{}).NewCadence()
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
		c := (&Checkpointer{}).NewCadence()
		due := func(step, newest plan.Step) bool {
			return c.Due(step, consensus.State{Checkpoint: consensus.Checkpoint{Step: newest}}, false)
		}
		time.Sleep(time.Minute)
		if !due(1, 0) {
			t.Fatal("no checkpoint is made")
		}
		time.Sleep(time.Second)
		c.Committed(1)
		time.Sleep(time.Minute) // the step
		if due(2, 1) {
			t.Error("a checkpoint that takes a second is made once a minute: want at most a hundredth of the time")
		}
		time.Sleep(time.Minute)
		if !due(3, 1) {
			t.Error("a checkpoint that took a second is not made again after two minutes")
		}
	})
}

// TestLossesAreCounted: of processes that end without a word, once each, whichever generation runs.
func TestLossesAreCounted(t *testing.T) {
	now := time.Unix(0, 0)
	var l losses
	member := func(epoch uint64, state consensus.MemberState, reason string) consensus.Member {
		return consensus.Member{Peer: "a", ProcessEpoch: epoch, State: state, Reason: reason}
	}
	for i, c := range []struct {
		member consensus.Member
		want   int
	}{
		{member(1, consensus.Active, ""), 0},
		{member(1, consensus.Gone, "its process has ended"), 1},
		{member(1, consensus.Gone, "its process has ended"), 1},
		{member(2, consensus.Joining, ""), 1},
		{member(3, consensus.Active, ""), 2}, // started again before anybody said that it is gone
		{member(3, consensus.Draining, ""), 2},
		{member(3, consensus.Gone, consensus.ReasonLeft), 2},
		{member(4, consensus.Active, ""), 2},
	} {
		now = now.Add(time.Minute)
		if got := l.look([]consensus.Member{c.member}, now); got.SeenNanos != int64(i)*int64(time.Minute) || got.Losses != c.want {
			t.Errorf("%d: %+v, want %d", i, got, c.want)
		}
	}
	want := []int64{int64(3 * time.Minute), int64(6 * time.Minute)}
	if got := l.look(nil, now).AgoNanos; !slices.Equal(got, want) {
		t.Errorf("losses %v ago, want %v", got, want)
	}
}
