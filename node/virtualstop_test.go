package node

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// TestAfterAStopOfAllTheOwnerGoesOnAlone: all nodes are interrupted at once, or an owner stops the run. The owner's node has the last
// checkpoint whole then and votes alone, so that it goes on by itself, without going back; the others come later. Who comes back before
// it says whom it waits for.
func TestAfterAStopOfAllTheOwnerGoesOnAlone(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 10, MinNodes: 3}
	known := undisturbed(t, size)
	t.Run("Ctrl-C", func(t *testing.T) {
		goesOnAlone(t, size, known, "offline: node-0 (", interruptAll)
	})
	t.Run("API", func(t *testing.T) {
		goesOnAlone(t, size, known, "the run was stopped: it goes on when its owner, node-0, resumes it", func(f *fleet) {
			if err := f.members[0].node().Stop(f.Context()); err != nil {
				f.Fatal(err)
			}
		})
	})
}

func goesOnAlone(t *testing.T, size fleetSize, known *truth, waits string, stop func(*fleet)) {
	synctest.Test(t, func(t *testing.T) {
		f := stopAll(t, size, known, 13, stop)
		founder, early := f.members[0], f.members[1]
		stopped := f.truth.reached()
		early.join("")
		f.until("a word of whom it waits for", time.Minute, func() bool {
			n := early.node()
			return n != nil && strings.HasPrefix(n.monitor.Status().Waiting, waits)
		})
		s := early.node().monitor.Status()
		if s.Step != stopped || s.Steps != 24 || s.Checkpoint.Step != stopped || s.Checkpoint.Time.IsZero() || len(s.Roster) != len(f.members) || len(s.Plan) == 0 {
			f.Errorf("the status before anybody leads: step %d of %d, checkpoint %+v, %d members, %d stages; want what its log has",
				s.Step, s.Steps, s.Checkpoint, len(s.Roster), len(s.Plan))
		}
		for _, m := range s.Roster {
			if m.Self != m.SilentSince.IsZero() || !strings.HasPrefix(m.Name, "node-") {
				f.Errorf("it shows %+v", m)
			}
		}
		if m, err := early.node().custody.Model(); err != nil && !strings.Contains(err.Error(), "they were on node-") || err == nil && m.Step == 0 {
			f.Errorf("a reader gets the model of step %d: %v", m.Step, err)
		}
		early.kill()
		began := time.Now()
		founder.join("")
		f.until("a step of the owner's node alone", time.Minute, func() bool { return f.truth.reached() > stopped })
		took := time.Since(began)
		f.Logf("%v from the start of the owner's node alone to step %d", took.Round(time.Millisecond), f.truth.reached())
		if took > 8*time.Second {
			f.Error("it waits for others, and none is on its way")
		}
		if p := founder.node().raft.State().Plan; p.Start != stopped {
			f.Errorf("it goes on from step %d, want the last one, %d", p.Start, stopped)
		}
		if redone := f.completes(f.members[1:]...); redone != 0 {
			f.Errorf("%d steps were computed again", redone)
		}
	})
}

// interruptAll is Ctrl-C on each node.
func interruptAll(f *fleet) {
	for _, m := range f.members {
		m.process.end()
	}
}

// stopAll begins a run, stops it after a step, and waits until all nodes have ended, which wait for no vote in vain.
func stopAll(t *testing.T, size fleetSize, known *truth, after plan.Step, stop func(*fleet)) *fleet {
	t.Helper()
	f := newFleet(t, size, known.again())
	invite := f.add().found()
	for range size.MinNodes - 1 {
		f.add().join(invite)
	}
	f.untilStep(after)
	began := time.Now()
	stop(f)
	for i, err := range f.untilEnded(time.Minute) {
		if err != nil {
			f.Errorf("node %d stops with %v", i, err)
		}
	}
	if took := time.Since(began); took > votesTimeout+lingerSilence {
		f.Errorf("the stop takes %v", took)
	}
	f.Logf("stopped at step %d in %v", f.truth.reached(), time.Since(began).Round(time.Millisecond))
	if slices.ContainsFunc(f.members, (*member).running) {
		f.Fatal("a node runs")
	}
	return f
}

// TestAStartOfAllWaitsForWhoHasTheLayers: after a stop of all the founder is started, whose node keeps no whole checkpoint. It waits for the
// others, and says so at once; where they come, no step is done again. Where they do not come, it goes back.
func TestAStartOfAllWaitsForWhoHasTheLayers(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 10, MinNodes: 3, Parts: true}
	known := undisturbed(t, size)
	for name, come := range map[string]bool{"they come": true, "they do not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := stopAll(t, size, known, 13, interruptAll)
				founder := f.members[0]
				began := time.Now()
				founder.join("")
				f.until("a leader", time.Minute, func() bool { n := founder.node(); return n != nil && n.raft.State().Checkpoint.Step == 14 })
				named := func() string {
					waiting := founder.node().monitor.Status().Waiting
					if !strings.Contains(waiting, "node-1 has (layer") || !strings.Contains(waiting, "node-2 has (layer") {
						return ""
					}
					return waiting
				}
				f.until("a word of who is waited for", 3*time.Second, func() bool { return named() != "" })
				if waiting := named(); !strings.Contains(waiting, "not back yet") || strings.Contains(waiting, "--await-holders") {
					f.Errorf("a way on with loss is named before the others had the time to come: %s", waiting)
				}
				f.until("a way on without them", time.Minute, func() bool { return strings.Contains(named(), "--await-holders 0s") })
				f.Log(founder.node().monitor.Status().Waiting)
				if saved := founder.node().monitor.Status().Checkpoint.Time; saved.IsZero() || !saved.Before(began) {
					f.Errorf("the checkpoint is of %v, before the start at %v", saved, began)
				}
				time.Sleep(time.Minute)
				if p := founder.node().raft.State(); p.Plan.Generation != 1 || p.Checkpoint.Step != 14 {
					f.Errorf("generation %d, checkpoint of step %d after a minute", p.Plan.Generation, p.Checkpoint.Step)
				}
				if come {
					for _, m := range f.members[1:] {
						m.join("")
					}
				}
				f.until("a step", 10*time.Minute, func() bool {
					n := founder.node()
					if n != nil && n.raft.State().Plan.Generation > 1 {
						f.movedAt = time.Now() // steps that are done again are no new ones
					}
					return n != nil && n.monitor.NewestStep() > n.raft.State().Plan.Start
				})
				f.Logf("%v from the start to the first step, after %d", time.Since(began).Round(time.Millisecond), founder.node().raft.State().Plan.Start)
				for _, m := range f.members[1:] {
					if !come {
						m.join("")
					}
				}
				if redone := f.completes(); (redone != 0) == come {
					f.Errorf("%d steps were computed again", redone)
				}
			})
		})
	}
}

// TestARunThatWasStoppedBeginsWithAll: all nodes are asked to end, and are started again one after another within seconds. The plan that
// follows is for all of them, not first for whoever is back first.
func TestARunThatWasStoppedBeginsWithAll(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 5, MinNodes: 3}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		var before plan.Plan
		f := stopAll(t, size, known, 12, func(f *fleet) {
			before = f.state().Plan
			interruptAll(f)
		})
		newest, began := f.truth.reached(), time.Now()
		for _, m := range f.members {
			m.join("")
			time.Sleep(2 * time.Second) // people start them
		}
		f.until("a step after it", time.Minute, func() bool { return f.truth.reached() > newest })
		after := f.state().Plan
		t.Logf("%v from the start to the next step, in generation %d after %d", time.Since(began).Round(time.Millisecond), after.Generation, before.Generation)
		if after.Generation != before.Generation+1 || len(after.Peers()) != len(f.members) {
			t.Errorf("generation %d with %d nodes, after %d with %d", after.Generation, len(after.Peers()), before.Generation, len(before.Peers()))
		}
		f.untilEnded(time.Hour)
		f.check()
	})
}

// TestWhoWaitsForTheOwnerOfAStoppedRun: a member is started again, and the owner's machine says that no node runs there. That is to be expected
// after a stop: it waits as long as for a silent owner, and then says that the run was stopped, who resumes it, and how this node goes on.
func TestWhoWaitsForTheOwnerOfAStoppedRun(t *testing.T) {
	size := fleetSize{Steps: 12, Stages: 2, Replicas: 1, CheckpointEvery: 4, MinNodes: 2}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := stopAll(t, size, known, 5, func(f *fleet) {
			if err := f.members[0].node().Stop(f.Context()); err != nil {
				f.Fatal(err)
			}
		})
		early, began := f.members[1], time.Now()
		early.join("")
		err := f.untilEnded(2 * returnTimeout)[1]
		if waited := time.Since(began); waited < returnTimeout || !errors.Is(err, ErrUnreachable) {
			t.Errorf("it ends after %v with %v", waited, err)
		}
		for _, want := range []string{"the run was stopped: it goes on when its owner, node-0, resumes it (`pnode train --resume` there)", "`pnode join --dir " + early.dir + "`", "recover-after=10m --dir " + early.dir} {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
	})
}

// TestWhoIsLeftAloneInAStoppedRunEnds: a crash takes all nodes just after a stop. Two come back, and wait for the owner in the roster: its machine is
// silent. One of them dies, so that nobody leads. The other one ends once no machine runs a node.
func TestWhoIsLeftAloneInAStoppedRunEnds(t *testing.T) {
	size := fleetSize{Steps: 12, Stages: 3, Replicas: 1, CheckpointEvery: 4, MinNodes: 3}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		founder := f.add()
		invite := founder.found()
		second, last := f.add(), f.add()
		second.join(invite)
		last.join(invite)
		f.until("the step", time.Hour, func() bool {
			return f.truth.reached() >= 5 && f.settled() && len(founder.node().raft.Quorum().Voters) == 3
		})
		f.until("the stop", time.Minute, func() bool {
			if err := founder.node().Stop(f.Context()); err != nil {
				f.Fatal(err)
			}
			return last.node().raft.State().StopWanted
		})
		for _, m := range f.members {
			m.kill()
		}
		f.faults.silenced(founder.addr(), true)
		second.join("")
		last.join("")
		waits := func(m *member) bool {
			n := m.node()
			if n == nil {
				return false
			}
			self, _ := n.raft.State().Member(n.self)
			return self.ProcessEpoch == n.epoch
		}
		f.until("both wait for the owner", 30*time.Second, func() bool { return waits(second) && waits(last) })
		second.kill()
		f.faults.silenced(founder.addr(), false)
		began := time.Now()
		f.until("nobody has led for a while", time.Minute, func() bool {
			lost := last.node().raft.Quorum().LostSince
			return !lost.IsZero() && time.Since(lost) > leaderPatience
		})
		if err := last.node().Stop(f.Context()); err == nil || !strings.Contains(err.Error(), "no leader of the run answers this node") {
			t.Errorf("a request to stop all of it: %v", err)
		}
		err := f.untilEnded(2 * aloneAfter)[2]
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "the run was stopped: it goes on when its owner, node-0") {
			t.Errorf("it ends after %v with %v", time.Since(began), err)
		}
	})
}
