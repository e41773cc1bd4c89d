package leader

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAttacksAreBlamed: what a patched member sends ends the generation, the others say whose fault it was, the log
// names it, and the run goes on without it, with finite losses.
func TestAttacksAreBlamed(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name        string
		coordinates bool // the liar has the last stage, else the first
		kind        plan.FaultKind
		change      func(wire.Frame) (wire.Frame, bool)
	}{
		{"NaN activations", false, plan.BadTensor, tensor(func(float32) float32 { return nan })},
		{"NaN gradients", true, plan.BadTensor, tensor(func(float32) float32 { return nan })},
		{"half a tensor", false, plan.BadFrame, func(f wire.Frame) (wire.Frame, bool) {
			if f.Tag.Kind == wire.Activation {
				f.Payload = f.Payload[:len(f.Payload)/2]
			}
			return f, true
		}},
		{"commit with GradScale NaN", true, plan.BadCommit, func(f wire.Frame) (wire.Frame, bool) {
			if f.Tag.Kind == wire.KindCommit {
				commit, err := wire.DecodeCommit(f.Payload)
				if err != nil {
					panic(err)
				}
				commit.GradScale = math.NaN()
				f.Payload = wire.AppendCommit(nil, commit)
			}
			return f, true
		}},
		{"mute, but alive", false, plan.NoProgress, nothing},
		{"mute, but alive, as the coordinator", true, plan.NoProgress, nothing},
		{"frames with a stale step", false, plan.NoProgress, func(f wire.Frame) (wire.Frame, bool) {
			f.Tag.Step -= 5
			return f, true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAttacked(t, attackedRun())
				a.from, a.change = 12, c.change
				a.strike(c.coordinates)
				state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && s.Checkpoint.Step >= 30 })
				a.wantBlamed(state, c.kind)
			})
		})
	}
}

// strike has the member with the first or the last stage of the first plan be the liar; the leader is in between.
func (a *attacked) strike(coordinates bool) {
	a.Helper()
	p, _, err := New(Config{}).Planner.Make(a.Context(), NextInput(a.log.State()))
	if err != nil || len(p.Replicas) != 1 || len(p.Replicas[0].Stages) != 3 {
		a.Fatalf("%v: want three stages of one replica: %+v", err, p.Replicas)
	}
	stages := p.Replicas[0].Stages
	a.liar = stages[0].Peer
	if coordinates {
		a.liar = stages[2].Peer
	}
	if a.liar == a.log.self {
		a.Fatalf("the leader has stage %v", stages)
	}
}

// wantBlamed wants the liar, and nobody else, to be blamed, and the run to have gone on.
func (a *attacked) wantBlamed(s consensus.State, kind plan.FaultKind) {
	a.Helper()
	for _, m := range s.Members {
		if (m.Blamed != nil) != (m.Peer == a.liar) || m.Blamed != nil && m.Blamed.Kind != kind {
			a.Errorf("%s: blamed for %+v; the liar is %s, its fault %q", m.Label, m.Blamed, a.liar.Short(), kind)
		}
	}
	if s.Plan.Places(a.liar) || a.after.IsZero() {
		a.Errorf("generation %d at step %d, with the liar: %t; rulings %+v", s.Plan.Generation, s.Checkpoint.Step, s.Plan.Places(a.liar), s.Blames)
	}
	if s.Plan.Generation > 3 {
		a.Errorf("%d generations", s.Plan.Generation)
	}
	for _, l := range a.steps {
		if math.IsNaN(l.Loss) || math.IsInf(l.Loss, 0) {
			a.Errorf("step %d has loss %v", l.Step, l.Loss)
		}
	}
	for _, b := range s.Blames {
		a.Logf("generation %d: %s", b.Generation, s.Told(b))
	}
	a.Logf("from the fault to its blame %v, to the next committed step %v", a.blamed.Sub(a.struck).Round(10*time.Millisecond), a.after.Sub(a.struck).Round(10*time.Millisecond))
}

// TestHeartbeatsAloneAreBlamed: a member that gets a part in the plan, and then only sends heartbeats, is left out.
func TestHeartbeatsAloneAreBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttacked(t, attackedRun())
		a.deaf = true
		a.strike(false)
		a.struck = time.Now()
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && s.Checkpoint.Step >= 10 })
		a.wantBlamed(state, plan.NoProgress)
	})
}

// TestFlippedSignsAreRolledBack: a member that turns gradients around makes the loss rise, within more steps where the learning
// rate is lower. The run goes back to a checkpoint of before, though one is kept
// and one is made at every step, and goes on without the member that is trusted least.
func TestFlippedSignsAreRolledBack(t *testing.T) {
	for _, rate := range []float64{1e-2, 1e-3} {
		t.Run(fmt.Sprint("learning rate ", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := attackedRun()
				run.Train.CheckpointEvery, run.Train.LR, run.Train.MinLR = 1, rate, rate
				a := newAttacked(t, run)
				const from = 45
				a.from, a.change = from, tensor(func(x float32) float32 { return -x })
				a.strike(true)
				state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && s.Checkpoint.Step >= 70 })
				a.wantBlamed(state, plan.LossJump)
				if back := state.Blames[0].Back; back == 0 || back > from {
					t.Errorf("back to step %d, the attack began at step %d", back, from)
				}
				first, last := map[plan.Step]float64{}, a.steps[len(a.steps)-1]
				for _, l := range a.steps {
					if l.Generation == 1 {
						first[l.Step] = l.Loss
					} else if l.Step <= from && l.Loss != first[l.Step] {
						t.Errorf("step %d has loss %v, %v when it was done again", l.Step, first[l.Step], l.Loss)
					}
				}
				if last.Loss > first[from] {
					t.Errorf("the loss was %v before the attack and is %v at step %d", first[from], last.Loss, last.Step)
				}
			})
		})
	}
}

// TestASpoiltCheckpointIsGivenUp: a member saves what is not finite, and later sends that too. The others find it when
// they load it, and go back to the checkpoint before.
func TestASpoiltCheckpointIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := attackedRun()
		run.Train.KeepCheckpoints = 3
		a := newAttacked(t, run)
		a.from, a.change = 12, tensor(func(float32) float32 { return float32(math.NaN()) })
		a.spoils = func(step plan.Step, state []byte) []byte {
			if step == 10 {
				copy(state, wire.AppendF32(nil, []float32{float32(math.NaN())}))
			}
			return state
		}
		a.strike(true)
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && s.Checkpoint.Step >= 30 })
		for _, b := range state.Blames {
			t.Logf("generation %d: %s; back to %d", b.Generation, state.Told(b), b.Back)
		}
		if len(state.Blames) != 3 || state.Blames[0].Peer != a.liar || state.Blames[1].Back != 0 || state.Blames[2].Back != 5 || state.Blames[2].Until != 0 {
			t.Errorf("rulings %+v", state.Blames)
		}
		if state.Plan.Places(a.liar) || state.Plan.Start != 5 {
			t.Errorf("generation %d starts from step %d, with the liar: %t", state.Plan.Generation, state.Plan.Start, state.Plan.Places(a.liar))
		}
	})
}

// TestDivergenceStopsTheRun: a learning rate that no model survives makes results that are not finite, on one worker
// and then on another. That is nobody's fault: the run stops and says so, with a checkpoint that is finite.
func TestDivergenceStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := attackedRun()
		run.Train.LR, run.Train.MinLR, run.Train.ClipNorm = 1e25, 1e25, 0
		a := newAttacked(t, run)
		state := a.train(func(s consensus.State) bool { return s.StopWanted })
		b, diverged := state.Diverged()
		for _, b := range state.Blames {
			t.Logf("generation %d: %s", b.Generation, state.Told(b))
			if b.Peer != b.Accuser {
				t.Errorf("%s is blamed", b.Peer)
			}
		}
		if !diverged || b.Step > 10 {
			t.Errorf("diverged: %t, rulings %+v", diverged, state.Blames)
		}
	})
}

// TestFalseAccusations: a member that gives generations up with lies about the others loses its own place with
// further lies, and the first victim comes back.
func TestFalseAccusations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttacked(t, attackedRun())
		a.strike(true)
		victim := plan.PeerID("")
		a.lie = func(p plan.Plan) *plan.Fault {
			for _, m := range a.members {
				if m.peer != a.liar && m.peer != a.log.self && victim == "" {
					victim = m.peer
				}
			}
			accused := victim
			if !p.Places(victim) {
				accused = a.log.self
			}
			return &plan.Fault{Accused: accused, Kind: plan.BadTensor, Step: 3, Detail: "a lie"}
		}
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 3 && s.Checkpoint.Step >= 40 })
		for _, b := range state.Blames {
			t.Logf("generation %d, %s: %s", b.Generation, state.NameOf(b.Peer), state.Told(b))
		}
		liar, _ := state.Member(a.liar)
		other, _ := state.Member(victim)
		if liar.Blamed == nil || liar.Blamed.Kind != plan.FalseWord || other.Blamed != nil || state.Plan.Places(a.liar) {
			t.Errorf("the liar is blamed for %+v, its victim for %+v", liar.Blamed, other.Blamed)
		}
	})
}

// TestAHugeStepHoldsNoPauseUp: a coordinator says that it has done the run's last step. A member leaves: the others wait
// for the save of that step, and go on from the newest checkpoint once that has taken too long.
func TestAHugeStepHoldsNoPauseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttacked(t, attackedRun())
		a.strike(true)
		a.boast = func(b *gossip.Heartbeat) { b.Step = a.run.Train.Steps }
		leaver := a.log.State().Members[0].Peer
		if leaver == a.liar || leaver == a.log.self {
			leaver = a.log.State().Members[2].Peer
		}
		var asked time.Time
		state := a.train(func(s consensus.State) bool {
			if s.Checkpoint.Step >= 10 && asked.IsZero() {
				asked = time.Now()
				if err := a.log.by(leaver, consensus.SetMemberState{Peer: leaver, ProcessEpoch: 1, State: consensus.Draining, Reason: "leaving"}); err != nil {
					t.Error(err)
				}
			}
			return s.Plan.Generation > 1
		})
		waited := time.Since(asked)
		if asked.IsZero() || state.Plan.Generation < 2 || state.Plan.Places(leaver) || state.Plan.Start < 10 || waited > 2*leastSavePatience {
			t.Errorf("generation %d from step %d after %v, with the leaver: %t", state.Plan.Generation, state.Plan.Start, waited, state.Plan.Places(leaver))
		}
		t.Logf("generation %d from step %d after %v: %q", state.Plan.Generation, state.Plan.Start, waited, state.Reasons)
	})
}

// TestGivingUpAloneIsBlamed: a member says in each generation that it gives up, and no more. It is left out.
func TestGivingUpAloneIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := attackedRun()
		run.Train.Steps = 400
		a := newAttacked(t, run)
		a.strike(true)
		a.boast = func(b *gossip.Heartbeat) { b.Stalled, b.Lacks, b.Reason = b.Generation, true, "a lie" }
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && !s.Plan.Places(a.liar) })
		liar, _ := state.Member(a.liar)
		if liar.Blamed == nil || liar.Blamed.Kind != plan.LostLink || state.Plan.Places(a.liar) || len(state.Blames) != 1 {
			t.Errorf("generation %d: rulings %+v", state.Plan.Generation, state.Blames)
		}
		t.Logf("generation %d: %s", state.Plan.Generation, state.Told(state.Blames[0]))
	})
}

// TestStartedAgainAndAgain: a member whose process is started every 15 s makes everything be planned anew, and is soon
// left out. One that comes back twice is not.
func TestStartedAgainAndAgain(t *testing.T) {
	for _, c := range []struct {
		starts uint64
		out    bool
	}{{2, false}, {4, true}} {
		t.Run(fmt.Sprint(c.starts, " times"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAttacked(t, attackedRun())
				a.strike(true)
				epoch, at := uint64(1), time.Now()
				state := a.train(func(s consensus.State) bool {
					m, _ := s.Member(a.liar)
					if time.Since(at) > 15*time.Second && epoch <= c.starts {
						epoch, at = epoch+1, time.Now()
						join := consensus.Join{Peer: a.liar, ProcessEpoch: epoch, Label: m.Label, Profile: m.Profile}
						active := consensus.SetMemberState{Peer: a.liar, ProcessEpoch: epoch, State: consensus.Active}
						if err := errors.Join(a.log.by(a.liar, join), a.log.by(a.liar, active)); err != nil {
							t.Error(err)
						}
					}
					return epoch > c.starts && time.Since(at) > 10*time.Second
				})
				liar, _ := state.Member(a.liar)
				if out := liar.Blamed != nil; out != c.out || state.Plan.Places(a.liar) == c.out {
					t.Errorf("left out %t, placed %t; rulings %+v", out, state.Plan.Places(a.liar), state.Blames)
				}
			})
		})
	}
}
