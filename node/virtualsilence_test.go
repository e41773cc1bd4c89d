package node

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/virtual"
)

// silenced is a fleet of three nodes with a stage each, one of which goes silent.
type silenced struct {
	*fleet
	generation plan.Generation
	began      time.Time
	before     plan.Step
}

// fallsSilent begins a fault at step 12, and heals it after a time; 0 is never.
func fallsSilent(f *fleet, fault func(*faults), heals time.Duration) *silenced {
	f.Helper()
	invite := f.add().found()
	f.add().join(invite)
	f.add().join(invite)
	f.untilStep(12)
	s := &silenced{fleet: f, generation: f.state().Plan.Generation, began: time.Now()}
	f.faults.set(func() { fault(f.faults) })
	time.Sleep(200 * time.Millisecond) // what is under way arrives
	s.before = f.truth.reached()
	if heals > 0 {
		time.AfterFunc(heals, f.faults.heal)
	}
	return s
}

// state returns the log as the founder knows it.
func (f *fleet) state() consensus.State { return f.members[0].node().raft.State() }

// goesOn waits for the next step, and returns how long after the fault it came. No member is taken for gone meanwhile, unless the
// step takes longer than patience.
func (s *silenced) goesOn(patience time.Duration) time.Duration {
	s.Helper()
	s.until("a step after the fault", time.Minute, func() bool {
		for _, m := range s.state().Members {
			if m.State == consensus.Gone && time.Since(s.began) < patience {
				s.Fatalf("%s is gone after %v: %s", s.state().NameOf(m.Peer), time.Since(s.began), m.Reason)
			}
		}
		return s.truth.reached() > s.before
	})
	return time.Since(s.began)
}

// finish waits for the end of the run, of which no step was lost or done twice.
func (s *silenced) finish() {
	s.Helper()
	s.faults.heal()
	for i, err := range s.untilEnded(time.Hour) {
		if err != nil {
			s.Errorf("node %d: %v", i, err)
		}
	}
	if redone := s.check(); redone > 0 {
		s.Errorf("%d steps were computed again", redone)
	}
}

// TestSilenceInVirtualTime: what becomes of a run of whole nodes one of which is silent for some time, or does not reach another one
// in one direction, where nobody relays. Nobody is thrown out who is back within 8 s, and no step is done twice.
func TestSilenceInVirtualTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds of processor time")
	}
	size := fleetSize{Steps: 30, Stages: 3, Replicas: 1, CheckpointEvery: 10, MinNodes: 3, Lines: true}
	if err := size.Relay.Set("off"); err != nil {
		t.Fatal(err)
	}
	known := undisturbed(t, size)
	for _, c := range []struct {
		name    string
		fault   func(w *faults)
		heals   time.Duration
		most    time.Duration // until the next step
		planned bool          // anew, before it
	}{
		{"for 4 s", loseThird, 4 * time.Second, 8 * time.Second, false},
		{"for 7 s", loseThird, 7 * time.Second, 12 * time.Second, true},
		{"for a minute", loseThird, time.Minute, 12 * time.Second, true},
		{"in one direction", oneDirection(1, 2), time.Minute, 14 * time.Second, true},
		{"in one direction, from the leader", oneDirection(0, 1), time.Minute, 14 * time.Second, true},
		{"in one direction, to the leader", oneDirection(2, 0), time.Minute, 14 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fallsSilent(newFleet(t, size, known.again()), c.fault, c.heals)
				took := s.goesOn(8 * time.Second)
				t.Logf("the next step came %v after the fault", took)
				if took > c.most {
					t.Errorf("at most %v", c.most)
				}
				if planned := s.state().Plan.Generation > s.generation; planned != c.planned {
					t.Errorf("another plan: %v", planned)
				}
				s.finish()
			})
		})
	}
}

// loseThird has nothing come from the third node, and nothing get there.
func loseThird(w *faults) { w.mute[virtual.Addr(2)], w.deaf[virtual.Addr(2)] = true, true }

// oneDirection has nothing get from one node to another.
func oneDirection(from, to int) func(*faults) {
	return func(w *faults) { w.cut[[2]netip.Addr{virtual.Addr(from), virtual.Addr(to)}] = true }
}

// TestCopiesGoThroughAnotherMember: while the node of a stage does not get to the stage's holder, the founder of the run, which has
// dialed nobody, checkpoints are whole with copies there, and no step is lost.
func TestCopiesGoThroughAnotherMember(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds of processor time")
	}
	size := fleetSize{Steps: 40, Stages: 3, Replicas: 1, CheckpointEvery: 4, MinNodes: 3, Packets: true, Circuits: true}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		var at plan.StageID
		s := fallsSilent(f, func(w *faults) {
			var owner int
			owner, at = f.heldBy(f.members[0].self)
			oneDirection(owner, 0)(w)
		}, 25*time.Second)
		holder, current, last := f.members[0].self, f.state().Plan, f.state().Checkpoint.Step
		whole := 0
		for began := s.began; time.Since(began) < 25*time.Second; time.Sleep(100 * time.Millisecond) {
			f.look()
			c := f.state().Checkpoint
			if c.Step == last {
				continue
			}
			last = c.Step
			holders := c.Layers[current.At(at).Layers.First].Holders
			t.Logf("%v after the fault: the checkpoint of step %d, of which %d nodes have the stage", time.Since(began), c.Step, len(holders))
			if slices.Contains(holders, holder) {
				whole++
			}
		}
		if whole < 2 {
			t.Errorf("%d checkpoints with a copy at the holder", whole)
		}
		if g := f.state().Plan.Generation; g != s.generation {
			t.Errorf("another plan: generation %d after %d", g, s.generation)
		}
		s.finish()
	})
}

// heldBy returns a stage that a peer holds copies of, and the number of the member that computes it.
func (f *fleet) heldBy(holder plan.PeerID) (owner int, at plan.StageID) {
	f.Helper()
	for i := range f.state().Plan.Replicas[0].Stages {
		at = plan.StageID{Stage: plan.Stage(i)}
		for n, m := range f.members {
			if m.node().self == f.state().Plan.At(at).Peer && f.state().Holder(at) == holder {
				return n, at
			}
		}
	}
	f.Fatal("nobody's holder")
	return 0, at
}
