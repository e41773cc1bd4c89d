package node

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAFounderComesBackToARecoveredRun: the founder, which alone votes, loses the two others, goes on by itself for some generations, and is killed.
// They come back, recover the run without it, and it follows them when it is started again. Nobody is left out, nothing is called
// damaged, and all steps are proven.
func TestAFounderComesBackToARecoveredRun(t *testing.T) {
	size := fleetSize{Steps: 45, Stages: 3, Replicas: 1, CheckpointEvery: 5, MinNodes: 3, Founders: true, RecoverAfter: config.LostMajority(10 * time.Minute)}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		founder := f.add()
		invite := founder.found()
		others := []*member{f.add(), f.add()}
		for _, m := range others {
			m.join(invite)
		}
		wait := func(what string, ok func() bool) { // steps are done once more, which fleets take for standing still
			t.Helper()
			for end := time.Now().Add(time.Hour); !ok(); time.Sleep(50 * time.Millisecond) {
				if f.oneLeads(); time.Now().After(end) || f.truth.wrong() != nil {
					t.Fatalf("not %s: %v%s", what, f.truth.wrong(), f.standings())
				}
			}
		}
		saved := func(m *member) (s plan.Step, g plan.Generation) {
			if n := m.node(); n != nil {
				s, g = n.raft.State().Checkpoint.Step, n.raft.State().Plan.Generation
			}
			return s, g
		}
		wait("saved together", func() bool { s, _ := saved(founder); return s >= 10 })
		for _, m := range others {
			m.kill(founder)
		}
		at, _ := saved(founder)
		wait("saved by the founder alone", func() bool { s, _ := saved(founder); return s >= at+15 })
		alone := f.truth.reached()
		founder.kill()
		for _, m := range others {
			m.join("")
		}
		recovered := func(m *member) bool { n := m.node(); return n != nil && n.raft.State().Recovery != nil }
		wait("recovered", func() bool { s, _ := saved(others[0]); return recovered(others[0]) && s > at })
		founder.join("")
		wait("followed", func() bool { return recovered(founder) })
		wait("trained by all", func() bool {
			n := others[0].node()
			return n != nil && n.raft.State().Plan.Places(founder.node().self) && n.monitor.NewestStep() > n.raft.State().Plan.Start+2
		})
		n := founder.node()
		stored, err := n.store.Manifests()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range stored {
			if newest := others[0].node().monitor.NewestStep(); m.Step > newest {
				t.Errorf("the checkpoint of step %d, which does not count, is still here: the run is at %d", m.Step, newest)
			}
		}
		if b := n.raft.State().Blames; len(b) > 0 {
			t.Errorf("accused: %+v", b)
		}
		for told := n.monitor.Events(t.Context()); len(told) > 0; {
			if e := <-told; e.Kind == api.KindError {
				t.Errorf("called a failure: %s", e.Message)
			}
		}
		wait("as far as the founder was alone", func() bool { n := others[0].node(); return n == nil || n.monitor.NewestStep() > alone })
		for i, err := range f.untilEnded(time.Hour) {
			if err != nil && !errors.Is(err, errKilled) {
				t.Errorf("node %d: %v", i, err)
			}
		}
		f.check()
	})
}

// TestAnOwnerComesBackToARecoveredRunThatIsOver: the founder, which owns the run and alone votes, is lost. The others recover the run, finish it
// and wait for the founder, which is started again, gets the model, and is heard when it says so.
func TestAnOwnerComesBackToARecoveredRunThatIsOver(t *testing.T) {
	size := fleetSize{Steps: 12, Stages: 3, Replicas: 1, CheckpointEvery: 4, MinNodes: 3, Founders: true, RecoverAfter: config.LostMajority(10 * time.Minute)}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
			return s.Owner(n.self) && s.Checkpoint.Step == 4
		})
		l.kill()
		others := l.others(l.lost)
		finished := func(m *member) bool { return m.node() != nil && m.node().raft.State().Finished }
		l.until("the end of the run", time.Hour, func() bool { return !slices.ContainsFunc(others, func(m *member) bool { return !finished(m) }) })
		if s := others[0].node().raft.State(); s.Recovery == nil || s.Partings.Of(s.Plan.Generation) == "" {
			t.Errorf("finished without a recovery: %+v", s.Partings)
		}
		back := time.Now()
		l.lost.join("")
		l.ended()
		if took := time.Since(back); took > 2*time.Minute {
			t.Errorf("the others waited for %v after the owner was back", took)
		}
	})
}
