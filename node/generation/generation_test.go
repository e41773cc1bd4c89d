package generation

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAPlanIsCarriedOut: however a plan places the model, the steps have the losses of one member alone, and the log gets the
// last one's checkpoint.
func TestAPlanIsCarriedOut(t *testing.T) {
	known := undisturbed(t)
	for name, replicas := range map[string][][]int{
		"two stages":     {{0, 1}},
		"three replicas": {{0}, {1}, {2}},
		"two of each":    {{0, 1}, {2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rehearse(t, 3, func(r *rig) {
					r.plan(replicas...)
					r.wantDone()
					r.wantLosses(known)
				})
			})
		})
	}
}

// wantDone waits until all members of the plan that live have done their steps, and the log has the last checkpoint.
func (r *rig) wantDone(but ...*member) {
	r.Helper()
	for i, m := range r.members {
		if slices.Contains(but, m) || !r.now().Plan.Places(m.parts.Self) {
			continue
		}
		if err := m.result(); err != nil {
			r.Errorf("node-%d: %v", i, err)
		}
	}
	r.until("the last checkpoint", func() bool { return r.now().Checkpoint.Step == r.run.Train.Steps })
}

// TestTheCoordinatorTellsOfCheckpoints: whoever coordinates the steps says how often one is made, of this plan alone.
func TestTheCoordinatorTellsOfCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rehearse(t, 2, func(r *rig) {
			auto := r.run
			auto.Train.CheckpointEvery = 0
			r.mu.Lock()
			r.state.Run = &auto
			r.mu.Unlock()
			r.plan([]int{0, 1})
			r.wantDone()
			told := r.members[1].parts.Checkpointer.Told(1)
			if told == nil || told.Why != holders.ForReplay {
				t.Errorf("the coordinator tells %+v, want as often as a short replay takes", told)
			}
			if told := r.members[0].parts.Checkpointer.Told(1); told != nil {
				t.Errorf("another node tells %+v", told)
			}
			if told := r.members[1].parts.Checkpointer.Told(2); told != nil {
				t.Errorf("the coordinator tells %+v of a plan that is none", told)
			}
		})
	})
}

// TestALostMembersPartGoesOnHere: a member is lost, and the log names another one. The generation goes on, and its losses are those
// of one member alone.
func TestALostMembersPartGoesOnHere(t *testing.T) {
	known := undisturbed(t)
	for name, c := range map[string]struct {
		replicas [][]int
		lost     int
		replays  bool
	}{
		"another replica":                    {[][]int{{0}, {1}, {2}}, 2, false},
		"the coordinator's, another replica": {[][]int{{1}, {0}, {2}}, 1, false},
		"the newest checkpoint":              {[][]int{{1, 0}}, 1, true},
		"the coordinator's, the checkpoint":  {[][]int{{0, 1}}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rehearse(t, 3, func(r *rig) {
					r.plan(c.replicas...)
					lost, by := r.members[c.lost], r.members[0]
					r.until("step 9, after a checkpoint", func() bool { return lost.step() >= 9 && r.now().Checkpoint.Step == 6 })
					lost.kill()
					s := consensus.Substitute{Generation: 1, Lost: lost.parts.Self, ProcessEpoch: 1, By: by.parts.Self, Replays: c.replays}
					if c.replays {
						s.From = 6
					}
					r.apply(s)
					r.wantDone(lost)
					r.wantLosses(known)
					for i, m := range r.members {
						if told := m.told(); m != lost && r.now().Plan.Places(m.parts.Self) && !slices.Equal(told, []consensus.Substitute{s}) {
							t.Errorf("node-%d heard of the substitutes %+v", i, told)
						}
						if stood := m.stood(); (len(stood) > 0) != (m == by) || !slices.IsSorted(stood) || m == by && c.replays && stood[0] != s.From {
							t.Errorf("node-%d came to the steps %d in the lost one's place", i, stood)
						}
					}
				})
			})
		})
	}
}

// TestALostMembersTwoDevices: a member is lost that computes a replica on two devices. Both workers in their place go on from what one worker
// has in memory, or two have, which is held until both have loaded it.
func TestALostMembersTwoDevices(t *testing.T) {
	known := undisturbed(t)
	for name, own := range map[string]string{"the memory of one worker": "cpu", "that of two": "cpu:1"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rehearse(t, 2, func(r *rig) {
					p := r.cut([]int{0, 0}, []int{1, 1})
					p.Replicas[0].Stages[1].Device, p.Replicas[1].Stages[1].Device = own, "cpu:1"
					r.carry(p)
					lost, by := r.members[1], r.members[0]
					r.until("step 9", func() bool { return lost.step() >= 9 })
					lost.kill()
					r.apply(consensus.Substitute{Generation: 1, Lost: lost.parts.Self, ProcessEpoch: 1, By: by.parts.Self})
					r.wantDone(lost)
					r.wantLosses(known)
				})
			})
		})
	}
}

// TestWhatIsLeftGoesOn: a member is lost and nobody goes on in its place. The other one saves what it has left, computes the
// lost one's steps again, and goes on with the next plan from there: no step is done again, and what it had stays in memory.
func TestWhatIsLeftGoesOn(t *testing.T) {
	known := undisturbed(t)
	synctest.Test(t, func(t *testing.T) {
		rehearse(t, 2, func(r *rig) {
			r.plan([]int{0, 1})
			left, lost := r.members[0], r.members[1]
			r.until("step 9, after a checkpoint", func() bool { return left.step() >= 9 && r.now().Checkpoint.Step == 6 })
			lost.kill()
			r.apply(consensus.SetMemberState{Peer: lost.parts.Self, ProcessEpoch: 1, State: consensus.Gone, Reason: "its process has ended"})
			var without LostPeerError
			if err := left.result(); !errors.As(err, &without) || without.fault.Accused != lost.parts.Self {
				t.Fatalf("it ended with %v", err)
			}
			r.until("what is left", func() bool { return len(left.left()) == 1 })
			newest := left.left()[0].Step
			if newest < 9 || newest >= r.run.Train.Steps {
				t.Fatalf("step %d is left", newest)
			}
			p := r.now().Plan
			parts := []consensus.SalvagePart{{Layers: p.Replicas[0].Stages[0].Layers, By: left.parts.Self}, {Stage: 1, Layers: p.Replicas[0].Stages[1].Layers, By: left.parts.Self, From: 6}}
			r.apply(consensus.Salvage{Generation: 1, Step: newest, Parts: parts})
			r.until("its checkpoint", func() bool { return r.now().Checkpoint.Step == newest })
			r.until("that nobody needs to know of it", func() bool { return len(left.left()) == 0 })
			if at := plan.Step(left.replaying.Load()); at != newest {
				t.Errorf("its replay is told to have come to step %d, want %d", at, newest)
			}

			r.plan([]int{0})
			r.wantDone()
			r.wantLosses(known)
			// The embedding is tied to the last layer, which was the lost one's: both are loaded.
			if want := [][2]int{{parts[0].Layers.Len() - 1, r.run.Model.Layers()}}; !slices.Equal(left.keptLayers(), want) {
				t.Errorf("kept %v layers, of how many, want %v", left.keptLayers(), want)
			}
		})
	})
}

// TestAGenerationIsStopped: another plan takes over while the steps go on. Both members end for that reason, and begin with the
// checkpoint of before.
func TestAGenerationIsStopped(t *testing.T) {
	known := undisturbed(t)
	synctest.Test(t, func(t *testing.T) {
		rehearse(t, 2, func(r *rig) {
			r.plan([]int{0, 1})
			r.until("step 9, after a checkpoint", func() bool { return r.members[0].step() >= 9 && r.now().Checkpoint.Step == 6 })
			r.plan([]int{1, 0})
			r.wantDone()
			r.wantLosses(known)
			if g := r.now().Checkpoint.Generation; g != 2 {
				t.Errorf("the last checkpoint is of generation %d", g)
			}
		})
	})
}

// slowText has each micro-batch take its time, as computing does, and notes when the first one of a step was asked for.
type slowText struct {
	squares
	takes time.Duration
	step  plan.Step
	begun *atomic.Int64
}

func (s slowText) Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	if step == s.step {
		s.begun.CompareAndSwap(0, time.Now().UnixNano())
	}
	time.Sleep(s.takes)
	return s.squares.Micro(ctx, step, micro, batch)
}

// TestMomentsComeDuringTheFirstStep: a plan gives all layers to a member that has none of them. Its first step begins with the parameters,
// a third of the state, and the steps stop for less than it takes to load all of that and to make a step.
func TestMomentsComeDuringTheFirstStep(t *testing.T) {
	run := rigRun()
	run.Model.Blocks, run.Model.Channels, run.Model.Context = 2, 180, 4 // layers of more than a chunk
	run.Train.Steps, run.Train.CheckpointEvery, run.Train.MicroBatch = 4, 2, 1
	bytes := 0
	for l := range run.Model.Layers() {
		bytes += pipeline.LayerStateBytes(run, l)
	}
	const micro = 100 * time.Millisecond
	// Two members have the state.
	load, step := time.Duration(bytes)*time.Second/rigLine/2, time.Duration(run.Train.Micros)*micro
	synctest.Test(t, func(t *testing.T) {
		rehearseRun(t, run, 3, func(r *rig) { // the second one holds copies
			text := slowText{squares{run.Model.Context}, micro, 3, &atomic.Int64{}}
			r.members[2].parts.Data = text
			r.plan([]int{0})
			r.until("a checkpoint", func() bool { return r.now().Checkpoint.Step == 2 })
			planned := time.Now()
			r.plan([]int{2})
			r.until("a step of the next plan", func() bool { return r.members[2].step() == 3 })
			begins, stop := time.Unix(0, text.begun.Load()).Sub(planned), time.Since(planned)
			t.Logf("the first step begins after %v and ends after %v; two lines need %v for %d bytes of state, and the step takes %v", begins, stop, load, bytes, step)
			if begins >= load/2 || stop >= load*3/4+step {
				t.Errorf("the first step begins after %v and ends after %v, where loading takes %v and a step %v", begins, stop, load, step)
			}
			r.wantDone()
		})
	})
}
