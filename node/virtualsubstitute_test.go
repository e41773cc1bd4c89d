package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/checkpointer"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// places tells the places apart that a lost node may have had in the run.
var places = map[string]func(leads, coordinates bool) bool{
	"a follower":      func(leads, coordinates bool) bool { return !leads && !coordinates },
	"the leader":      func(leads, _ bool) bool { return leads },
	"the coordinator": func(_, coordinates bool) bool { return coordinates },
}

// losing is a run of a fleet of which one member is lost.
type losing struct {
	*fleet
	lost        *member
	before      consensus.State // what the lost one knew when it was chosen
	substituted *atomic.Pointer[consensus.State]
	killed      time.Time
	newest      plan.Step // then
}

// choose begins a run of as many nodes as its size wants, and waits for a member that is to be lost.
func choose(t *testing.T, size fleetSize, known *truth, fit func(f *fleet, n *Node, s consensus.State) bool) *losing {
	t.Helper()
	l := seek(t, size, known, fit)
	if l.lost == nil {
		t.Fatal("there was nobody to lose in time")
	}
	return l
}

// seek is choose where a run may end without one that fits: lost is nil then.
func seek(t *testing.T, size fleetSize, known *truth, fit func(f *fleet, n *Node, s consensus.State) bool) *losing {
	t.Helper()
	l := &losing{fleet: newFleet(t, size, known.again())}
	invite := l.add().found()
	for range size.MinNodes - 1 {
		l.add().join(invite)
	}
	l.until("somebody to lose", time.Hour, func() bool {
		for _, m := range l.members {
			if n := m.node(); n != nil && l.lost == nil && l.settled() {
				if state := n.raft.State(); fit(l.fleet, n, state) {
					l.lost, l.before = m, state
				}
			}
		}
		return l.lost != nil || l.over()
	})
	return l
}

// at reports whether a node has a place in the run.
func at(is func(leads, coordinates bool) bool, n *Node, s consensus.State) bool {
	_, _, leads := n.raft.Leader()
	return s.Plan.Places(n.self) && is(leads, n.self == s.Plan.Coordinator().Peer)
}

// kill ends the member's process, of which its operating system tells the others.
func (l *losing) kill() {
	others := l.others(l.lost)
	l.substituted = l.firstSubstitute(l.Context(), others)
	l.lost.kill(others...)
	l.killed, l.newest = time.Now(), l.truth.reached()
}

// substitute waits for the log to name who goes on in the lost one's place.
func (l *losing) substitute() consensus.State {
	l.Helper()
	l.until("a substitute", time.Minute, func() bool { return l.substituted.Load() != nil })
	state := *l.substituted.Load()
	lost, by := l.lost.self, state.Substitute.By
	coordinator := l.before.Plan.Coordinator().Peer
	if coordinator == lost {
		coordinator = by
	}
	if got := state.Substitute.Coordinator(state.Plan); got != coordinator {
		l.Errorf("%s coordinates the steps, want %s", got.Short(), coordinator.Short())
	}
	if state.Substitute.Lost != lost || state.Substitute.Generation != l.before.Plan.Generation {
		l.Errorf("%+v in place of %s in generation %d", *state.Substitute, lost, l.before.Plan.Generation)
	}
	return state
}

// goOn waits for a step after the loss, and for the plan without the lost one, which follows while the generation goes on.
func (l *losing) goOn() {
	l.Helper()
	l.until("a step after the loss", time.Minute, func() bool { return l.truth.reached() > l.newest })
	l.Logf("%v from the loss after step %d to the next step", time.Since(l.killed).Round(time.Millisecond), l.newest)
	l.until("another plan", time.Hour, func() bool {
		for _, m := range l.others(l.lost) {
			if n := m.node(); n != nil && n.raft.State().Plan.Generation > l.before.Plan.Generation {
				next := n.raft.State()
				if next.Plan.Generation == l.before.Plan.Generation+1 && !strings.Contains(next.Reasons[0], "computes its part") {
					l.Errorf("the next plan is made because %s, as if the generation had ended", next.Reasons[0])
				}
				return true
			}
		}
		return l.over()
	})
	l.tells(l.before.Plan, *l.substituted.Load().Substitute)
}

// finish has the lost one come back and waits for the run's end. It returns how many steps were computed again.
func (l *losing) finish() (redone int) {
	l.Helper()
	l.lost.join("") // the founder's folder is to have the model
	return l.ended()
}

// ended waits for all nodes to end well, but for the one that was killed, and returns how many steps were computed again.
func (l *losing) ended() (redone int) {
	l.Helper()
	for i, err := range l.untilEnded(time.Hour) {
		if err != nil && !errors.Is(err, errKilled) {
			l.Errorf("node %d: %v", i, err)
		}
	}
	return l.check()
}

// TestALostNodesPartGoesOnElsewhere: of two replicas a node is lost, whether it leads, coordinates the steps, or neither. Another one goes
// on in its place in the same generation, the plan after that is without it, and every step is done once, with the losses of one node alone.
func TestALostNodesPartGoesOnElsewhere(t *testing.T) {
	size := fleetSize{Steps: 20, Stages: 2, Replicas: 2, CheckpointEvery: 50, MinNodes: 4}
	known := undisturbed(t, size)
	for name, is := range places {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
					return f.truth.reached() >= 6 && len(s.Plan.Substitutes(n.self)) > 0 && at(is, n, s)
				})
				l.kill()
				if found := l.substitute().Substitute; found.Replays {
					t.Errorf("%+v goes on from a checkpoint", *found)
				}
				l.goOn()
				if redone := l.finish(); redone != 0 {
					t.Errorf("%d steps were computed again", redone)
				}
			})
		})
	}
}

// TestALongStepIsGivenUp: of two replicas a node is lost right after a step began that takes long. Nobody computes its part besides their own: the
// step begins again without it, from the one before, and nothing else is done twice.
func TestALongStepIsGivenUp(t *testing.T) {
	size := fleetSize{Steps: 12, Stages: 2, Replicas: 2, CheckpointEvery: 50, MinNodes: 4}
	known := undisturbed(t, size)
	size.Slow = true
	synctest.Test(t, func(t *testing.T) {
		l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
			return f.truth.reached() >= 6 && len(s.Plan.Substitutes(n.self)) > 0 && at(places["a follower"], n, s)
		})
		step, begun := l.truth.reached(), time.Now()
		l.until("the next step", time.Hour, func() bool { return l.truth.reached() > step })
		took := time.Since(begun)
		l.until("the leader to hear of it", time.Minute, func() bool {
			for _, m := range l.members {
				if _, _, leads := m.node().raft.Leader(); leads {
					return m.node().heartbeats.Newest(l.before.Plan, time.Now()) > step
				}
			}
			return false
		})
		l.kill()
		l.until("a step after the loss", time.Hour, func() bool { return l.truth.reached() > l.newest })
		t.Logf("steps of %v; %v from the loss after step %d to the next step", took.Round(time.Millisecond), time.Since(l.killed).Round(time.Millisecond), l.newest)
		if s := l.substituted.Load(); s != nil {
			t.Errorf("%+v takes its part over", *s.Substitute)
		}
		if redone := l.finish(); redone != 0 {
			t.Errorf("%d steps were computed again", redone)
		}
	})
}

// betweenCheckpoints chooses who has a place in a run three steps after the checkpoint of step 6.
func betweenCheckpoints(is func(leads, coordinates bool) bool) func(*fleet, *Node, consensus.State) bool {
	return func(f *fleet, n *Node, s consensus.State) bool {
		return f.truth.reached() >= 9 && s.Checkpoint.Step == 6 && at(is, n, s)
	}
}

// inLine is a run of one replica on three nodes.
var inLine = fleetSize{Steps: 18, Stages: 3, Replicas: 1, CheckpointEvery: 6, MinNodes: 3}

// TestALostNodesPartGoesOnFromTheCheckpoint: without a second replica a node is lost some steps after a checkpoint. Another one computes
// them again and goes on in the same generation; nobody else does, and the losses are those of one node alone.
func TestALostNodesPartGoesOnFromTheCheckpoint(t *testing.T) {
	known := undisturbed(t, inLine)
	for name, is := range places {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := choose(t, inLine, known, betweenCheckpoints(is))
				l.kill()
				if found := l.substitute().Substitute; !found.Replays || found.From != 6 {
					t.Errorf("%+v goes on, want one after step 6", *found)
				}
				l.goOn()
				if redone := l.finish(); redone != 0 {
					t.Errorf("%d steps were computed again", redone)
				}
			})
		})
	}
}

// TestACoordinatorIsLostInTheClosingEvaluation: after the last update, before and after the log has the last checkpoint. The others know the
// held-out loss of the finished model in the end, all the same one, and no step is done again.
func TestACoordinatorIsLostInTheClosingEvaluation(t *testing.T) {
	size := fleetSize{Steps: 4, Stages: 3, Replicas: 1, CheckpointEvery: 50, MinNodes: 3}
	known := undisturbed(t, size)
	for name, saved := range map[string]bool{"before the last checkpoint": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				last := plan.Step(size.Steps)
				l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
					return n.monitor.NewestStep() == last && !f.over() && saved == (s.Checkpoint.Step == last) && at(places["the coordinator"], n, s)
				})
				l.kill()
				if l.lost == l.members[0] {
					l.lost.join("") // who ends last waits for an owner
				}
				if redone := l.ended(); redone != 0 {
					t.Errorf("%d steps were computed again", redone)
				}
				t.Logf("%v from the loss to the end", time.Since(l.killed).Round(time.Millisecond))
				var heldOut []float64
				for _, m := range l.others(l.lost) {
					if loss := m.process.node.Load().monitor.Status().HeldOut; loss != nil {
						heldOut = append(heldOut, *loss)
					}
				}
				if len(heldOut) != 2 || heldOut[0] != heldOut[1] {
					t.Errorf("the others tell the held-out losses %v, want the same one of each", heldOut)
				}
			})
		})
	}
}

// TestAnOwnerThatHasTheModelComesBack: an owner is killed when it has the whole finished model, before the others know. Once it is started again
// they hear so from it, and need not wait for an owner any longer.
func TestAnOwnerThatHasTheModelComesBack(t *testing.T) {
	size := fleetSize{Steps: 4, Stages: 3, Replicas: 1, CheckpointEvery: 50, MinNodes: 3}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		last := plan.Step(size.Steps)
		l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
			return s.Owner(n.self) && s.Checkpoint.Step == last && checkpointer.HasWhole(n.store, last)
		})
		l.kill()
		l.until("the end of the run", time.Hour, func() bool {
			return slices.ContainsFunc(l.others(l.lost), func(m *member) bool { return m.node() != nil && m.node().raft.State().Finished })
		})
		l.lost.join("")
		l.ended()
		if took := time.Since(l.killed); took > 2*time.Minute {
			t.Errorf("the others waited %v", took)
		}
	})
}

// firstSubstitute returns where the first state goes in which a log of some members names a substitute, until ctx ends. The plan after
// it may come within moments.
func (f *fleet) firstSubstitute(ctx context.Context, of []*member) *atomic.Pointer[consensus.State] {
	var first atomic.Pointer[consensus.State]
	for _, m := range of {
		n := m.node()
		if n == nil {
			continue
		}
		go func() {
			for ctx.Err() == nil && first.Load() == nil {
				changed := n.raft.Changed()
				if state := n.raft.State(); state.Substitute != nil {
					first.CompareAndSwap(nil, &state)
				}
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}()
	}
	return &first
}

// others returns all members but one.
func (f *fleet) others(but *member) (all []*member) {
	return slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool { return m == but })
}
