package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/notice"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestThoseWhoLeaveTogetherStopTheRun: all that are left of a run are asked to leave at once, or one soon after another, some of them without
// a part in the plan, and while those that were killed still count among the voters. Who is done first waits for nobody to take its vote: the
// run stops with its newest step saved, every node ends without an error, and the run goes on from there when all are started again.
func TestThoseWhoLeaveTogetherStopTheRun(t *testing.T) {
	size := fleetSize{Steps: 32, Stages: 1, Replicas: 1, CheckpointEvery: 10} // who comes back finds it not at its end
	known := undisturbed(t, size)
	for _, c := range []struct {
		nodes, stages int
		killed        []int
		before, gap   time.Duration // from the kill to the first Ctrl-C, and between two of these
		saved         bool          // the killed are known to be gone, and their layers are safe
	}{
		{nodes: 5, stages: 2, killed: []int{3, 4}, before: time.Second},
		{nodes: 5, stages: 2, killed: []int{0, 4}, before: 20 * time.Second, gap: 100 * time.Millisecond, saved: true},
		{nodes: 5, stages: 3, killed: []int{3, 4}, before: 18 * time.Second, gap: 700 * time.Millisecond, saved: true},
		{nodes: 4, stages: 1, killed: []int{1}, before: 0},
		{nodes: 4, stages: 2, killed: []int{2}, before: 0, gap: 100 * time.Millisecond},
		{nodes: 3, stages: 2, killed: []int{2}, before: 18 * time.Second, gap: 20 * time.Millisecond, saved: true},
		{nodes: 3, stages: 1, gap: 100 * time.Millisecond, saved: true},
	} {
		size.Stages, size.MinNodes = c.stages, c.nodes
		t.Run(fmt.Sprintf("%d of %d stages, %v are killed %v before, %v between", c.nodes, c.stages, c.killed, c.before, c.gap), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, size, known.again())
				invite := f.add().found()
				for range c.nodes - 1 {
					f.add().join(invite)
				}
				f.until("step 3", time.Hour, func() bool {
					return f.truth.reached() >= 3 && f.settled() && len(f.members[0].node().raft.Quorum().Voters) >= 3
				})
				var left []*member
				for i, m := range f.members {
					if slices.Contains(c.killed, i) {
						m.kill()
					} else {
						left = append(left, m)
					}
				}
				lost := plan.Step(0) // where nobody that is left computed
				if p := left[0].node().raft.State().Plan; !slices.ContainsFunc(left, func(m *member) bool { return p.Places(m.self) }) {
					lost = f.truth.reached()
				}
				time.Sleep(c.before)
				began := time.Now()
				for _, m := range left {
					m.process.end()
					time.Sleep(c.gap)
				}
				f.untilEnded(2 * farewellTimeout)
				took := time.Since(began)
				t.Logf("stopped in %v at step %d", took.Round(time.Millisecond), f.truth.reached())
				saved := plan.Step(0)
				for _, m := range left {
					if m.process.err != nil {
						t.Errorf("%s: %v", m.name(), m.process.err)
					}
					saved = max(saved, m.process.node.Load().raft.State().Checkpoint.Step)
				}
				if took >= farewellTimeout {
					t.Error("somebody waits for a vote to be taken until time is over")
				}
				if c.saved && saved != f.truth.reached() {
					t.Errorf("step %d is saved of %d", saved, f.truth.reached())
				}
				if !c.saved {
					return
				}
				if redone := f.completes(f.members...); redone > int(lost) {
					t.Errorf("%d steps were computed again", redone)
				}
			})
		})
	}
}

// TestTheLastOfThoseWhoLeaveEnds: the others are killed while they leave, and nobody can agree that the run stops. Who is left ends though its time
// was over before.
func TestTheLastOfThoseWhoLeaveEnds(t *testing.T) {
	size := fleetSize{Steps: 400, Stages: 1, Replicas: 1, CheckpointEvery: 10, MinNodes: 3}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		invite := f.add().found()
		for range size.MinNodes - 1 {
			f.add().join(invite)
		}
		f.until("step 3", time.Hour, func() bool {
			return f.truth.reached() >= 3 && f.settled() && len(f.members[0].node().raft.Quorum().Voters) == 3
		})
		last := f.members[0]
		for _, m := range f.others(last) {
			m.process.end()
		}
		// At that very moment: soon after nobody but the last votes any more, who then agrees with itself.
		if err := consensus.Await(t.Context(), last.node().raft, func(s consensus.State) bool {
			return !slices.ContainsFunc(s.Members, func(m consensus.Member) bool { return m.Peer != last.self && m.State == consensus.Active })
		}); err != nil {
			t.Fatal(err)
		}
		for _, m := range f.others(last) {
			m.kill()
		}
		last.node().requestLeave(notice.Notice{Why: "SIGTERM", At: time.Now().Add(time.Second)})
		f.untilEnded(2 * leaveTimeout)
		if !errors.Is(last.process.err, ErrNotHandedOver) {
			t.Errorf("%s: %v", last.name(), last.process.err)
		}
	})
}
