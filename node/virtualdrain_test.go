package node

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestADeathBeforeAPausesCheckpointHasCopies: a member leaves, and it or another one is lost while the only copy of its layers in the newest
// checkpoint is its own: as soon as the log has the checkpoint, as soon as it has the plan that follows, and when that has begun. No step is
// done again, as with any death.
func TestADeathBeforeAPausesCheckpointHasCopies(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 10, MinNodes: 4, Parts: true}
	known := undisturbed(t, size)
	paused := func(s consensus.State) bool { return s.Ended() && !s.Checkpoint.Secured(s) }
	for _, c := range []struct {
		name   string
		leaver bool // is lost, and not another one
		when   func(before, now consensus.State) bool
	}{
		{"who leaves, before the plan without it", true, func(_, now consensus.State) bool { return paused(now) }},
		{"who leaves, after it", true, func(before, now consensus.State) bool { return now.Plan.Generation > before.Plan.Generation }},
		{"another one, before the plan", false, func(_, now consensus.State) bool { return paused(now) }},
		{"another one, after it", false, func(before, now consensus.State) bool { return now.Plan.Generation > before.Plan.Generation }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
					return f.truth.reached() >= 14 && s.Checkpoint.Step == 10 && n.self != f.members[0].node().self && at(places["a follower"], n, s)
				})
				leaver := l.lost
				if !c.leaver {
					l.lost = l.anotherOf(l.before.Plan, leaver)
				}
				strike := l.strike(func(s consensus.State) bool { return c.when(l.before, s) })
				leaver.process.end()
				struck := <-strike
				l.kill()
				l.Logf("%s is lost in generation %d, the checkpoint of step %d, generation %d", l.lost.name(), struck.Plan.Generation, struck.Checkpoint.Step, struck.Checkpoint.Generation)
				if struck.Checkpoint.Secured(struck) {
					l.Errorf("the checkpoint of step %d has its copies: nothing is shown", struck.Checkpoint.Step)
				}
				l.until("a step after the loss", time.Minute, func() bool { return l.truth.reached() > l.newest })
				l.Logf("%v from the loss after step %d to the next step", time.Since(l.killed).Round(time.Millisecond), l.newest)
				l.lost.join("")
				l.endsWithNothingRedone()
			})
		})
	}
}

// TestADeathBeforeCheckpointsHaveCopies: a member leaves after one or more checkpoints of which no copies were made, and is lost with the only copy
// of its layers of them all. The newest one held twice is an older one. No step is done again.
func TestADeathBeforeCheckpointsHaveCopies(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 4, MinNodes: 3, Parts: true}
	known := undisturbed(t, size)
	for name, c := range map[string]struct{ uncopied, leaves plan.Step }{
		"one, in the middle of a plan": {10, 12},
		"three in a row":               {6, 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
					if f.truth.reached() >= c.uncopied {
						f.uncopied.Store(true)
					}
					return s.Checkpoint.Step == c.leaves && n.self != f.members[0].node().self && at(places["a follower"], n, s)
				})
				if copies := l.lost.node().monitor.Status().Checkpoint.Copies; copies == nil || copies.Step == 0 || copies.Step > c.uncopied || copies.MessagesFrom > copies.Step+1 {
					l.Errorf("the status says of copies %+v", copies)
				}
				strike := l.strike(func(s consensus.State) bool { return s.Plan.Generation > l.before.Plan.Generation })
				l.lost.process.end()
				struck := <-strike
				l.kill()
				line := consensus.RecoveryLine(l.before) // what who leaves has counts no more
				held := line[len(line)-1]
				l.Logf("%s is lost in generation %d, the checkpoint of step %d; that of step %d is held twice", l.lost.name(), struck.Plan.Generation, struck.Checkpoint.Step, held.Step)
				if !held.Secured(l.before) || held.Step > c.uncopied {
					l.Errorf("the checkpoint of step %d has its copies (%t): nothing is shown", held.Step, held.Secured(l.before))
				}
				l.until("a step after the loss", time.Minute, func() bool { return l.truth.reached() > l.newest })
				l.Logf("%v from the loss after step %d to the next step", time.Since(l.killed).Round(time.Millisecond), l.newest)
				l.uncopied.Store(false)
				l.lost.join("")
				l.endsWithNothingRedone()
			})
		})
	}
}

// TestWhoRestoresIsLostToo: a member is lost with the only copy of its layers of the newest checkpoints, and then the one that computes these again,
// which is started again at once. Its disk is as it was, but it has no messages any more: the next one computes what both did. No step
// is done again.
func TestWhoRestoresIsLostToo(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 4, MinNodes: 5, Parts: true}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
			f.uncopied.Store(f.truth.reached() >= 6)
			return s.Checkpoint.Step == 12 && n.self != f.members[0].node().self && at(places["a follower"], n, s)
		})
		strike := l.strike(func(s consensus.State) bool { return s.Plan.Generation > l.before.Plan.Generation })
		l.lost.process.end()
		<-strike
		l.kill()
		first, restorer := l.lost, (*member)(nil)
		restores := func(m *member) bool {
			n := m.node()
			return n != nil && slices.Index(consensus.Restore(n.raft.State()).By, n.self) == 0
		}
		l.until("a restoration", time.Minute, func() bool {
			if i := slices.IndexFunc(l.members, restores); i >= 0 {
				restorer = l.members[i]
			}
			return restorer != nil
		})
		time.Sleep(time.Second)
		if !restores(restorer) {
			l.Errorf("%s restores nothing any more: nothing is shown", restorer.name())
		}
		l.lost = restorer
		l.kill()
		restorer.join("")
		l.Logf("%s is lost, and then %s, which restores its layers", first.name(), restorer.name())
		l.until("a step after the loss", time.Minute, func() bool { return l.truth.reached() > l.newest })
		l.Logf("%v from the second loss after step %d to the next step", time.Since(l.killed).Round(time.Millisecond), l.newest)
		l.uncopied.Store(false)
		first.join("")
		l.endsWithNothingRedone()
	})
}

// TestLayersAreComputedAgainOverPlans: a member leaves, and one of the next plan is lost with the only copy of its layers of all checkpoints of both
// plans. These are computed again by the first plan up to its end, and from there on by the second. No step is done again.
func TestLayersAreComputedAgainOverPlans(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 4, MinNodes: 5, Parts: true}
	known, shown := undisturbed(t, size), false
	shows := func(t *testing.T) {
		var left *member
		l := seek(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
			f.uncopied.Store(f.truth.reached() >= 6)
			if n.self == f.members[0].node().self || !s.Plan.Places(n.self) {
				return false
			}
			if left == nil && s.Checkpoint.Step == 8 && at(places["a follower"], n, s) {
				left = f.members[slices.IndexFunc(f.members, func(m *member) bool { return m.node() == n })]
				left.process.end()
			}
			lost := s
			lost.Members = slices.Clone(s.Members)
			lost.Members[slices.IndexFunc(s.Members, func(m consensus.Member) bool { return m.Peer == n.self })].State = consensus.Gone
			first := consensus.Restore(lost).Of
			return s.Checkpoint.Generation == s.Plan.Generation && s.Checkpoint.Step >= 16 && first.Step > 0 && first.Generation < s.Checkpoint.Generation
		})
		if shown = l.lost != nil; !shown {
			return // others have loaded the layers of all who went on: it goes by who took which part
		}
		strike := l.strike(func(s consensus.State) bool { return s.Plan.Generation > l.before.Plan.Generation })
		l.lost.process.end()
		struck := <-strike
		l.kill()
		of := make(chan plan.Step, 1)
		l.until("a restoration", time.Minute, func() bool {
			for _, m := range l.members {
				if n := m.node(); n != nil && len(of) == 0 && len(consensus.Restore(n.raft.State()).By) > 0 {
					of <- consensus.Restore(n.raft.State()).Of.Step
				}
			}
			return len(of) > 0
		})
		first := <-of
		l.Logf("%s left, %s is lost in generation %d, the checkpoint of step %d; first that of step %d is restored", left.name(), l.lost.name(), struck.Plan.Generation, struck.Checkpoint.Step, first)
		if first == struck.Checkpoint.Step {
			l.Errorf("the checkpoint of step %d is restored at once: nothing is shown", first)
		}
		l.until("a step after the loss", time.Minute, func() bool { return l.truth.reached() > l.newest })
		l.Logf("%v from the loss after step %d to the next step", time.Since(l.killed).Round(time.Millisecond), l.newest)
		l.uncopied.Store(false)
		l.lost.join("")
		l.endsWithNothingRedone()
	}
	for range 5 {
		if synctest.Test(t, shows); shown || t.Failed() {
			return
		}
	}
	t.Error("in none of five runs there was somebody to lose in time")
}

// endsWithNothingRedone waits for the end of a run in which members were lost or left, with no step computed again.
func (l *losing) endsWithNothingRedone() {
	l.Helper()
	for i, err := range l.untilEnded(time.Hour) {
		if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, ErrNotHandedOver) {
			l.Errorf("node %d: %v", i, err)
		}
	}
	if redone := l.check(); redone != 0 {
		l.Errorf("%d steps were computed again", redone)
	}
}

// anotherOf returns a member with a part in a plan that is neither the founder, nor the one given.
func (f *fleet) anotherOf(p plan.Plan, not *member) *member {
	for _, m := range f.members[1:] {
		if n := m.node(); n != nil && m != not && p.Places(n.self) {
			return m
		}
	}
	f.Fatal("no other member has a part in the plan")
	return nil
}

// at cuts the lost one off as soon as a member's log comes to a state, which it returns.
func (l *losing) strike(reached func(consensus.State) bool) <-chan consensus.State {
	found, once := make(chan consensus.State, 1), sync.Once{}
	ctx := l.Context()
	for _, m := range l.members {
		n := m.node()
		if n == nil {
			continue
		}
		go func() {
			for ctx.Err() == nil && !l.strikes(n.raft.State(), reached, &once, found) {
				changed := n.raft.Changed()
				if l.strikes(n.raft.State(), reached, &once, found) {
					return
				}
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}()
	}
	return found
}

// strikes cuts the lost one off if a state is the one that was waited for.
func (l *losing) strikes(s consensus.State, reached func(consensus.State) bool, once *sync.Once, found chan<- consensus.State) bool {
	if !reached(s) {
		return false
	}
	once.Do(func() {
		l.faults.setDown(l.lost.addr(), true)
		found <- s
	})
	return true
}
