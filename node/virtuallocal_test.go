package node

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"pnode/kernels/cpu"
	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/node/ingest"
	"pnode/node/ledger"
	"pnode/node/recompute"
	"pnode/planner/plan"
)

var localFleets = flag.Int("localfleets", 4, "so many seeds TestFleetsWithLocalStepsSurviveFaults tries: go test ./node -run FleetsWithLocalSteps -localfleets 1000 -timeout 3h")

// counted is a step of a generation.
type counted struct {
	plan.Generation
	plan.Step
}

// localRun is a fleet whose nodes are replicas that make local steps.
type localRun struct {
	*fleet
	mu     sync.Mutex // guards the rest
	losses map[counted]float64
	drains []string // what nodes that leave say
}

// newLocalRun returns a run of some nodes in rounds of 4 steps, which has begun. All nodes tell the same losses.
func newLocalRun(t *testing.T, nodes int, change ...func(*fleetSize)) *localRun {
	size := fleetSize{Steps: 20, Stages: 1, Replicas: nodes, MinNodes: nodes, CheckpointEvery: 8, Sync: plan.SyncRule{Local: true, Every: 4}}
	for _, c := range change {
		c(&size)
	}
	r := &localRun{fleet: newFleet(t, size, newTruth()), losses: map[counted]float64{}}
	r.tales = func(m *member, e api.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if e.Kind == api.KindDrain {
			r.drains = append(r.drains, e.Message)
		}
		if e.Kind != api.KindStep {
			return
		}
		at := counted{e.Generation, e.Step}
		if before, known := r.losses[at]; known && math.Float64bits(before) != math.Float64bits(e.Loss) {
			r.Errorf("%s: %+v has loss %v, another node says %v", m.name(), at, e.Loss, before)
		}
		r.losses[at] = e.Loss
	}
	invite := r.add().found()
	for range nodes - 1 {
		r.add().join(invite)
	}
	r.until("a plan with local steps", time.Hour, func() bool {
		n := r.members[0].node()
		return n != nil && n.raft.State().Plan.Local != nil
	})
	return r
}

// made reports whether a node's replica has made an inner step.
func (r *localRun) made(m *member, step plan.Step) bool {
	n := m.node()
	return n != nil && slices.ContainsFunc(n.monitor.Heartbeat().Inner, func(i gossip.InnerStep) bool { return i.Step >= step })
}

// ends waits for the end of all nodes, and returns the model of the last step.
func (r *localRun) ends() map[int][]plan.Hash {
	r.Helper()
	for i, err := range r.untilEnded(time.Hour) {
		if err != nil && !errors.Is(err, errKilled) {
			r.Errorf("node %d: %v", i, err)
		}
	}
	weights, err := StoredState(r.members[0].dir, plan.Step(r.size.Steps))
	if err != nil {
		r.Error(err)
	}
	r.check()
	return weights
}

// again checks a run with local steps: by the ledgers in some folders every sample has counted once, and who trains the run again alone, by what these ledgers
// say of its log, has the model that nodes have.
func (f *fleet) again(dirs []string) (redone int, err error) {
	report, err := Audit(dirs)
	if err != nil {
		return 0, err
	}
	for _, r := range report.Redone {
		redone += int(r.Last-r.First) + 1
	}
	if len(report.Problems) > 0 || report.Lost+report.Doubled > 0 || report.Steps != plan.Step(f.size.Steps) {
		return redone, fmt.Errorf("the ledgers: %d steps of %d, %d samples lost, %d doubled: %q", report.Steps, f.size.Steps, report.Lost, report.Doubled, report.Problems)
	}
	if testing.Short() {
		return redone, nil // TestTrainingAgainTellsWhatDiffers does the rest
	}
	got, err := Recompute(f.Context(), RecomputeOptions{Dirs: dirs})
	if err == nil && (got.Err() != nil || got.Step != plan.Step(f.size.Steps) || got.Compared == 0) {
		err = fmt.Errorf("trained again: %+v", got)
	}
	return redone, err
}

// TestFleetsWithLocalStepsSurviveFaults: the same as TestFleetsSurviveFaults for replicas of one or two nodes that make local steps. What they come to is
// not the same whatever happens, but follows from the log: who trains the run again alone by it has the same model, to the bit.
func TestFleetsWithLocalStepsSurviveFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute of processor time")
	}
	onOneProcessor(t)
	from, to := uint64(1), uint64(*localFleets)
	if *fleetSeed != 0 {
		from, to = *fleetSeed, *fleetSeed
	}
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			again := fmt.Sprintf("go test ./node -run FleetsWithLocalSteps -v -fleet %d", seed)
			defer func() {
				if t.Failed() {
					t.Logf("the same faults again: %s", again)
				}
			}()
			cryptotest.SetGlobalRandom(t, seed)
			watched(t, again, func(t *testing.T, passed *atomic.Int64) {
				r := rand.New(rand.NewPCG(seed, 29))
				size := fleetSize{Steps: 40, CheckpointEvery: 8, Lines: true, Sync: plan.SyncRule{Local: true, Every: 4}, Replicas: 2 + r.IntN(3), Stages: 1 + r.IntN(2)}
				size.Sync.Delay = plan.Step(seed % 3) // of even seeds and others
				size.Sync.AtOnce = size.Sync.Delay == 0
				size.MinNodes = size.Replicas * size.Stages
				f := newFleet(t, size, newTruth())
				f.faults.passed = passed
				playFaults(f, seed, size.MinNodes+r.IntN(3))
			})
		})
	}
}

// TestRoundsOverlap: on slow lines messages travel while replicas make inner steps of the next round. The slowest replica, for which the others wait, never stands still before
// the run's last outer step; without, it does in each round. Who trains the run again alone has the same model, also where a node is lost meanwhile.
func TestRoundsOverlap(t *testing.T) {
	run := func(delay plan.Step, lost bool) (waited map[plan.Step]time.Duration) { // by the step after which a round began, the least of all replicas
		synctest.Test(t, func(t *testing.T) {
			r := newLocalRun(t, 3, func(s *fleetSize) {
				s.Lines, s.Steps = true, 24
				s.Sync.Every, s.Sync.Delay, s.Sync.AtOnce = 6, delay, delay == 0
			})
			if dies := r.members[2]; lost {
				r.until("steps of the next round", time.Hour, func() bool { return r.made(dies, 13) })
				dies.kill(r.members[:2]...)
			}
			waited = map[plan.Step]time.Duration{}
			r.until("the last step", time.Hour, func() bool {
				for _, m := range r.members {
					n := m.node()
					if n == nil {
						continue
					}
					for _, met := range n.words.Met() {
						least, known := waited[met.From]
						if took := time.Duration(met.WaitedNanos); !known || took < least {
							waited[met.From] = took
						}
					}
				}
				return r.truth.reached() >= plan.Step(r.size.Steps)
			})
			r.ends()
			if _, err := r.again([]string{r.members[0].dir, r.members[1].dir}); err != nil {
				t.Error(err)
			}
		})
		return waited
	}
	late, atOnce := run(2, false), run(0, false)
	for _, from := range []plan.Step{0, 6, 12} {
		if took, known := late[from]; !known || took != 0 {
			t.Errorf("after step %d messages are waited for: %v", from, late)
		}
		if atOnce[from] == 0 {
			t.Errorf("after step %d messages take no time, or are not waited for: %v", from, atOnce)
		}
	}
	run(2, true)
}

// TestNodesMakeLocalSteps: two nodes train apart and meet in outer steps, to the end of the run. Another run has the same losses, and the same model.
func TestNodesMakeLocalSteps(t *testing.T) {
	var losses map[counted]float64
	var weights map[int][]plan.Hash
	for i := range 2 {
		synctest.Test(t, func(t *testing.T) {
			r := newLocalRun(t, 2)
			got := r.ends()
			if i == 0 {
				losses, weights = r.losses, got
				if len(losses) != r.size.Steps || len(weights) == 0 {
					t.Errorf("%d steps: %v, a model of %d layers", len(losses), losses, len(weights))
				}
				return
			}
			if !reflect.DeepEqual(r.losses, losses) || !reflect.DeepEqual(got, weights) {
				t.Errorf("losses %v\nbefore %v", r.losses, losses)
			}
		})
	}
}

// TestTrainingAgainTellsWhatDiffers: messages that do not follow from a replica's inner steps, another loss, other weights, and logs that lack something.
func TestTrainingAgainTellsWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLocalRun(t, 2, func(s *fleetSize) { s.Steps = 8 })
		r.ends()
		run, err := LoadRun(r.members[0].dir)
		if err != nil {
			t.Fatal(err)
		}
		store, err := OpenStore(r.members[0].dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		data, err := ingest.OpenStored(storedChunks{store}, run)
		if err != nil {
			t.Fatal(err)
		}
		read := func(m *member) ledger.Contents { // anew: what is changed of it is changed once
			c, err := ledger.Read(m.dir)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		contents := read(r.members[0])
		again := func(change func(*recompute.History)) (recompute.Result, error) {
			h, err := recompute.FromLedgers(run, []ledger.Contents{read(r.members[0]), read(r.members[1])})
			if err != nil {
				t.Fatal(err)
			}
			change(&h)
			return recompute.Run(t.Context(), recompute.Config{History: h, Data: data, Log: slog.New(slog.DiscardHandler)}, 8)
		}
		g := contents.Plans[0].Plan.Generation
		want, err := again(func(*recompute.History) {})
		if err != nil || len(want.Differ) > 0 || len(want.Unlike) > 0 {
			t.Fatalf("%q, %q, %v", want.Differ, want.Unlike, err)
		}
		kinds := func(change func(kinds []string) []string) (recompute.Result, error) {
			return again(func(h *recompute.History) {
				for part, of := range h.Kinds {
					h.Kinds[part] = change(of)
				}
			})
		}
		if got, err := kinds(func([]string) []string { return []string{runtime.GOARCH + "/generic"} }); err != nil || len(got.Differ) == 0 || len(got.Unlike) > 0 {
			t.Errorf("with other instructions: %q, %q, %v", got.Differ, got.Unlike, err)
		}
		both := func(of []string) []string { return []string{cpu.KindInFloats(of[0]), cpu.KindInFloats(of[0]) + "bf16"} }
		if got, err := kinds(both); err != nil || len(got.Unlike) > 0 || len(got.Differ) > 0 || !reflect.DeepEqual(got.Layers, want.Layers) {
			t.Errorf("with instructions for bf16, too, in float32: %q, %q, %v", got.Unlike, got.Differ, err)
		}
		for says, change := range map[string]func([]string) []string{
			"no folder tells with which instructions":                                    func([]string) []string { return nil },
			`computed otherwise: cpu: this processor cannot compute as "sparc/vis" does`: func([]string) []string { return []string{"sparc/vis"} },
			`changed between "amd64/z", "sparc/vis" within`:                              func([]string) []string { return []string{"amd64/z", "sparc/vis"} },
		} {
			got, err := kinds(change)
			if err != nil || len(got.Unlike) == 0 || !strings.Contains(got.Unlike[0], says) || len(got.Differ) > 0 || !reflect.DeepEqual(got.Layers, want.Layers) {
				t.Errorf("%s: %q, %q, %v", says, got.Unlike, got.Differ, err)
			}
		}
		lied, err := again(func(h *recompute.History) { h.Outer[g][0].Parts[1].Sum[0]++ })
		if err != nil || len(lied.Differ) != 1 || !strings.HasPrefix(lied.Differ[0], "replica 1 had other messages for the outer step of step 4") || !reflect.DeepEqual(lied.Layers, want.Layers) {
			t.Errorf("messages that do not follow: %q, %v", lied.Differ, err)
		}
		other, err := again(func(h *recompute.History) { h.Run.Train.Seed++ })
		if err != nil || len(other.Differ) == 0 || reflect.DeepEqual(other.Layers, want.Layers) {
			t.Errorf("other weights at the start: %q, %v", other.Differ, err)
		}
		if _, err := again(func(h *recompute.History) { h.Outer[g] = h.Outer[g][:1] }); err == nil {
			t.Error("the last outer step is in no ledger, and nothing is said")
		}
		trainer := contents.Head
		if trainer.Peer != contents.Plans[0].Plan.Replicas[0].Stages[0].Peer {
			trainer = read(r.members[1]).Head
		}
		_, err = again(func(h *recompute.History) { h.Plans[0].Replicas[0].Stages[0].Device = "cuda:0" })
		if !errors.Is(err, recompute.ErrOtherDevice) || trainer.Name == "" || !strings.HasSuffix(err.Error(), "was trained on cuda:0 of "+trainer.Name) {
			t.Errorf("trained on another device: %v, want the name %q", err, trainer.Name)
		}
		if _, err := again(func(h *recompute.History) { h.Outer[g][1].Parts = nil }); err == nil || errors.Is(err, recompute.ErrOtherDevice) {
			t.Error("an outer step of no replica, and nothing is said")
		}
		torn := contents
		torn.Plans = slices.Clone(contents.Plans)
		torn.Plans[0].Plan.Start++
		if _, err := recompute.FromLedgers(run, []ledger.Contents{contents, torn}); err == nil {
			t.Error("two plans of one generation, and nothing is said")
		}
	})
}

// TestAReplicaWithLocalStepsIsLost: one of three nodes dies, within a round or when it has ended its part of one, the leader among them. The others make the
// outer step without it, and go on from there: no step of theirs is made again.
func TestAReplicaWithLocalStepsIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		leads bool
		step  plan.Step
	}{
		"within a round":        {false, 6},
		"at a merge":            {false, 8},
		"who leads":             {true, 6},
		"who leads, at a merge": {true, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLocalRun(t, 3)
				var dies *member
				r.until(fmt.Sprintf("step %d", c.step), time.Hour, func() bool {
					dies = nil
					for _, m := range r.members {
						if n := m.node(); n != nil {
							if _, _, leads := n.raft.Leader(); leads == c.leads && (leads || m != r.members[0]) {
								dies = m
							}
						}
					}
					return dies != nil && r.made(dies, c.step)
				})
				others := slices.DeleteFunc(slices.Clone(r.members), func(m *member) bool { return m == dies })
				dies.kill(others...)
				died := time.Now()
				r.until("the next plan", time.Hour, func() bool { return others[0].node() != nil && others[0].node().raft.State().Plan.Generation == 2 })
				p := others[0].node().raft.State().Plan
				if p.Start < 8 || p.Local == nil || len(p.Replicas) != 2 {
					t.Errorf("after the loss at step %d a plan of %d replicas begins at step %d, with local steps: %t", c.step, len(p.Replicas), p.Start, p.Local != nil)
				}
				t.Logf("the next plan begins at step %d, %v after the loss", p.Start, time.Since(died))
				if dies == r.members[0] {
					dies.join("")
				}
				r.ends()
			})
		})
	}
}

// TestAReplicaWithLocalStepsSlowsDown: the device of one of three nodes takes 40 times as long from some time on. The round is closed for the others, who go on
// without what comes too late, and lose nothing of their own. The next plan does without it, and says so: one of its shares would take as long as many of theirs.
func TestAReplicaWithLocalStepsSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLocalRun(t, 3, func(s *fleetSize) { s.Slows = "{after: 6s, times: 40}" })
		began := time.Now()
		started, replicas, said := map[plan.Generation]plan.Step{}, map[plan.Generation]int{}, ""
		r.until("the end of the steps", time.Hour, func() bool {
			if n := r.members[0].node(); n != nil {
				p := n.raft.State().Plan
				if started[p.Generation], replicas[p.Generation] = p.Start, len(p.Replicas); p.Generation == 2 {
					said = strings.Join(n.raft.State().Reasons, "\n")
				}
			}
			return r.truth.reached() >= plan.Step(r.size.Steps)
		})
		t.Logf("%d plans, which begin at %v, with %v replicas, in %v: %s", len(started), started, replicas, time.Since(began), said)
		if len(started) != 2 || replicas[2] != 2 {
			t.Error("the slow one is waited for again")
		}
		r.mu.Lock()
		made := len(r.losses)
		r.mu.Unlock()
		if made != r.size.Steps {
			t.Errorf("%d steps were made, of %d: some again", made, r.size.Steps)
		}
		reached := time.Now()
		r.until("the end of the others", time.Hour, func() bool {
			return !slices.ContainsFunc(r.members[:2], func(m *member) bool { n := m.node(); return n != nil && n.monitor.Status().State != string(Stopped) })
		})
		if waited := time.Since(reached); waited > 10*time.Second {
			t.Errorf("the run ended %v after its last step: the slow node has no part in that", waited)
		}
		r.ends()
	})
}

// TestTheFirstReplicaIsLostAtTheEnd: the node of the replica that evaluates the finished model dies in the last round, or once it has ended its part of that.
// Another one does it, and the run ends.
func TestTheFirstReplicaIsLostAtTheEnd(t *testing.T) {
	for _, at := range []plan.Step{18, 20} {
		t.Run(fmt.Sprintf("step %d", at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLocalRun(t, 3)
				first := plan.CoordinatorOf(r.members[0].node().raft.State().Plan, 0).Peer
				dies := r.members[slices.IndexFunc(r.members, func(m *member) bool { return m.self == first })]
				r.until("the last round", time.Hour, func() bool { return r.made(dies, at) })
				dies.kill(slices.DeleteFunc(slices.Clone(r.members), func(m *member) bool { return m == dies })...)
				died := time.Now()
				r.until("the last step", time.Hour, func() bool { return r.truth.reached() >= plan.Step(r.size.Steps) })
				t.Logf("its last step was told %v after the loss", time.Since(died))
				if dies == r.members[0] {
					dies.join("")
				}
				r.ends()
			})
		})
	}
}

// TestSharesOfLocalStepsFollowSpeeds: a device takes three times as long for some minutes. Within a round the next plan gives its replica fewer micro-batches, and as many as
// the others once it has been fast for long.
func TestSharesOfLocalStepsFollowSpeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes of three nodes")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newLocalRun(t, 3, func(s *fleetSize) {
			s.Slows, s.Micros, s.Steps, s.Sync.Every = "{after: 30s, times: 3}, {after: 80s, times: 1}", 12, 120, 4
		})
		began := time.Now()
		type share struct {
			after time.Duration
			start plan.Step
			of    map[string]int // micro-batches by node
		}
		var shares []share
		newest := plan.Generation(0)
		r.until("the third plan", time.Hour, func() bool {
			if n := r.members[0].node(); n != nil {
				if s := n.raft.State(); s.Plan.Generation != newest {
					newest = s.Plan.Generation
					of := map[string]int{}
					for _, pipe := range s.Plan.Replicas {
						of[s.NameOf(pipe.Stages[0].Peer)] = pipe.Micros
					}
					shares = append(shares, share{time.Since(began), s.Plan.Start, of})
				}
			}
			return len(shares) == 3
		})
		for _, s := range shares {
			t.Logf("after %v, from step %d on: %v", s.after, s.start, s.of)
		}
		if len(shares) != 3 || shares[1].of["node-2"] > 2 || shares[2].of["node-2"] != 4 || shares[2].after < 80*time.Second {
			t.Error("shares do not follow speeds")
		}
	})
}

// TestARunWithLocalStepsIsResumed: all nodes are killed within a round and started again, and have the model of an undisturbed run at the end. Where they are
// stopped in order the round is closed, and they go on from there.
func TestARunWithLocalStepsIsResumed(t *testing.T) {
	var weights map[int][]plan.Hash
	synctest.Test(t, func(t *testing.T) { weights = newLocalRun(t, 2).ends() })
	for name, killed := range map[string]bool{"killed": true, "stopped": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLocalRun(t, 2)
				r.until("step 10, after a checkpoint", time.Hour, func() bool { return r.made(r.members[0], 10) && r.checkpoint().Step == 8 })
				for _, m := range r.members {
					if killed {
						m.kill()
					} else {
						m.process.end()
					}
				}
				r.untilEnded(time.Hour)
				saved := r.members[0].process.node.Load().raft.State().Checkpoint.Step
				if killed != (saved == 8) || saved > 12 {
					t.Errorf("step %d is saved", saved)
				}
				for _, m := range r.members {
					m.join("")
				}
				if got := r.ends(); killed && !reflect.DeepEqual(got, weights) {
					t.Error("the model differs from that of an undisturbed run")
				}
			})
		})
	}
}
