package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/pipeline/gather"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus/rounds"
)

// memoryRounds is a log of rounds in memory.
type memoryRounds struct {
	run     plan.RunSpec
	plan    plan.Plan
	mu      sync.Mutex // guards the rest
	round   *rounds.Round
	have    map[plan.Replica]plan.Gathered
	made    []plan.Merged
	changed chan struct{}
	last    plan.Step // of the plan, which ends with the outer step there; 0: the run's
}

func newMemoryRounds(run plan.RunSpec, p plan.Plan) *memoryRounds {
	return &memoryRounds{run: run, plan: p, round: rounds.First(run, p), have: map[plan.Replica]plan.Gathered{}, changed: make(chan struct{})}
}

func (m *memoryRounds) Closed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.round != nil && m.round.Closed
}

func (*memoryRounds) Found(plan.Step, plan.Fault) {}

func (m *memoryRounds) Have(g plan.Gathered, _ []seals.Exhibit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.have[g.Replica] = g
	m.apply()
}

// apply proposes what replicas have, and makes the outer step that follows. Callers hold mu.
func (m *memoryRounds) apply() {
	if m.round == nil {
		return
	}
	for _, q := range m.round.Awaited() {
		g, ok := m.have[q]
		missing := func(r plan.Replica) bool { return g.Parts[r].Steps == 0 }
		if !ok || g.From != m.round.From || m.round.Gathered[q] != nil || slices.ContainsFunc(m.round.Awaited(), missing) {
			continue
		}
		if next, err := m.round.Gather(g); err == nil {
			m.round = &next
		}
	}
	made, ok := m.round.Merge(m.run, m.plan, m.last != 0 && m.round.End == m.last)
	if !ok {
		return
	}
	m.made, m.round = append(m.made, made), rounds.After(m.run, m.plan, made)
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memoryRounds) Merged(ctx context.Context, from plan.Step) (plan.Merged, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		if i := slices.IndexFunc(m.made, func(o plan.Merged) bool { return o.From == from }); i >= 0 {
			return m.made[i], nil
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			m.mu.Lock()
			return plan.Merged{}, ctx.Err()
		}
		m.mu.Lock()
	}
}

// close has each replica end the round with its next inner step.
func (m *memoryRounds) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.round != nil {
		next := m.round.Close()
		m.round = &next
	}
}

func (m *memoryRounds) leaveOut(t *testing.T, q plan.Replica) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := m.round.LeaveOut(m.plan, rounds.LeftOut{Replica: q, Reason: "it is gone"})
	if err != nil {
		t.Error(err)
		return
	}
	m.round = &next
	m.apply()
}

// met has what replicas with local steps have done.
type met struct {
	losses  []map[plan.Step]float64 // by replica
	heldOut []map[plan.Step]float64
	states  []map[plan.Step]map[int][]byte // by replica and layer
	made    []plan.Merged
	dead    []bool // by replica
}

// trainLocal trains replicas that make local steps by workers, in one process. onStep, unless nil, hears of each step of a replica's coordinator, and
// ends the replica by returning true.
func trainLocal(t *testing.T, run plan.RunSpec, p plan.Plan, onStep func(log *memoryRounds, r plan.Replica, step plan.Step) (die bool)) met {
	t.Helper()
	return trainLocalFrom(t, run, p, &localKeeper{test: t, run: run}, 0, nil, onStep)
}

// trainLocalFrom begins with what a keeper and workers of the plan before have, and ends with the outer step at last. It replaces these workers by the
// plan's, unless they are nil.
func trainLocalFrom(t *testing.T, run plan.RunSpec, p plan.Plan, keeper *localKeeper, last plan.Step, kept map[plan.WorkerID]*Retained, onStep func(log *memoryRounds, r plan.Replica, step plan.Step) (die bool)) met {
	t.Helper()
	log, net := newMemoryRounds(run, p), collective.NewMemory()
	log.last = last
	out := met{}
	var mu sync.Mutex // guards out
	dead := make([]bool, len(p.Replicas))
	outcomes := map[plan.Step]string{}
	group, ctx := errgroup.WithContext(t.Context())
	for range p.Replicas {
		out.losses, out.heldOut = append(out.losses, map[plan.Step]float64{}), append(out.heldOut, map[plan.Step]float64{})
	}
	for r := range p.Replicas {
		own, alone := plan.Alone(run, p, plan.Replica(r))
		ctx, die := context.WithCancel(ctx)
		defer die()
		for _, id := range alone.Workers() {
			before := Config{Host: &host.Memory{}}
			if kept[id] != nil {
				before = kept[id].worker.cfg
			} else {
				processor, err := cpu.New(cpu.Options{Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { processor.Close() })
				before.Device = processor
			}
			coordinates := id == plan.CoordinatorOf(p, plan.Replica(r))
			w, err := New(usual(Config{
				Worker: id, Run: own, Plan: alone, Replica: plan.Replica(r), First: p.Replicas[r].FirstMicro, Device: before.Device, Host: before.Host,
				Exchange: expecting{net.End(id.Peer), t, run, p}, Keeper: startsWith{keeper, alone}, From: kept[id],
				Local: &Local{Run: run, Plan: p, Rounds: log, Processor: before.Device, Keys: seals.Alone{}, OnOuterStep: func(o gather.Outcome) {
					if !coordinates {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					text := fmt.Sprint(o.Losses(p))
					if first, ok := outcomes[o.To]; len(o.Counted()) == len(p.Replicas) && ok && text != first {
						t.Errorf("outer step %d: replica %d has the losses %s, another one %s", o.To, r, text, first)
					}
					outcomes[o.To] = text
				}},
				OnStep: func(s StepResult) {
					mu.Lock()
					defer mu.Unlock()
					if s.HeldOut != nil {
						out.heldOut[r][s.Step] = *s.HeldOut
					}
					if s.Final {
						return
					}
					out.losses[r][s.Step] = s.Loss
					if coordinates && onStep != nil && onStep(log, plan.Replica(r), s.Step) {
						dead[r] = true
						die()
						log.leaveOut(t, plan.Replica(r))
					}
				},
			}))
			if err != nil {
				t.Fatal(err)
			}
			if kept == nil {
				t.Cleanup(w.Close)
			} else if want := p.At(p.StagesOf(id)[0]).Layers.Len(); kept[id] != nil && w.TookOver() != want {
				t.Errorf("%s of %s has taken over %d layers, want %d", id.Device, id.Peer, w.TookOver(), want)
			}
			group.Go(func() error {
				err := errors.Join(w.Run(ctx, ctx), w.Saved())
				mu.Lock()
				defer mu.Unlock()
				if kept != nil {
					var failed error
					kept[id], failed = w.Retain()
					err = errors.Join(err, failed)
				}
				if dead[r] {
					return nil
				}
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for r := range p.Replicas {
		out.states = append(out.states, keeper.states(plan.Replica(r)))
	}
	out.made, out.dead = log.made, dead
	return out
}

// compare wants every loss and every saved state of counted replicas to be the same to the bit.
func (m met) compare(t *testing.T, want met) {
	t.Helper()
	last := m.made[len(m.made)-1]
	for _, r := range last.Counted() {
		if m.dead[r] {
			continue // its messages count
		}
		for step, loss := range want.losses[r] {
			if math.Float64bits(m.losses[r][step]) != math.Float64bits(loss) {
				t.Errorf("replica %d step %d: loss %v, plainly %v", r, step, m.losses[r][step], loss)
			}
		}
		if len(m.losses[r]) != len(want.losses[r]) {
			t.Errorf("replica %d made %d steps, plainly %d", r, len(m.losses[r]), len(want.losses[r]))
		}
		for step, layers := range m.states[r] {
			for l, state := range layers {
				if !bytes.Equal(state, want.states[r][step][l]) {
					t.Errorf("replica %d layer %d after step %d: another state than plainly", r, l, step)
				}
			}
		}
		if len(m.states[r][last.To]) != len(want.states[r][last.To]) || len(want.states[r][last.To]) == 0 {
			t.Errorf("replica %d has saved %d layers at step %d, plainly %d", r, len(m.states[r][last.To]), last.To, len(want.states[r][last.To]))
		}
	}
}

// localRun has rounds of 2 steps, and saves at some outer steps.
func localRun(model string) plan.RunSpec {
	run := testRun()
	if model != "tied" {
		run = families()[model]
	}
	run.Model.ResidualDropout = 0.1
	run.Train.Micros, run.Train.Steps, run.Train.CheckpointEvery = 6, 6, 4
	run.Train.Sync = plan.SyncRule{Local: true}
	return run
}

func localPlan(run plan.RunSpec, codec string, shares []int, bounds ...[]int) plan.Plan {
	p := apart(run, shares, bounds...)
	p.Local = &plan.Local{Rounds: plan.Rounds{Every: 2, Fragments: 1}, Codec: codec}
	return p
}

// TestReplicasMeet: replicas whose workers exchange messages have the losses and states of the plain loops, to the bit, however each is cut.
func TestReplicasMeet(t *testing.T) {
	for _, c := range [][2]string{{"tied", "int8"}, {"tied", "f32"}, {"tied", "topk"}, {"llama", "int8"}} {
		model, codec := c[0], c[1]
		t.Run(model+"/"+codec, func(t *testing.T) {
			run := localRun(model)
			var want met
			for i, bounds := range [][2][]int{{{0, 2, 3}, {0, 1}}, {{0}, {0, 1, 4}}, {{0, 3}, {0}}} {
				p := localPlan(run, codec, []int{2, 4}, bounds[0], bounds[1])
				got := trainLocal(t, run, p, nil)
				if i == 0 {
					want = plainly(t, run, p, got.made)
					want.heldOut = got.heldOut
				}
				got.compare(t, want)
				if len(got.made) != 3 || !slices.EqualFunc(got.made, want.made, func(a, b plan.Merged) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
					t.Errorf("cut at %v: the log has %v, in another cut %v", bounds, got.made, want.made)
				}
				if len(got.heldOut[0]) != 3 || len(got.heldOut[1]) != 0 || !maps.Equal(got.heldOut[0], want.heldOut[0]) {
					t.Errorf("cut at %v: evaluated %v, in another cut %v", bounds, got.heldOut, want.heldOut)
				}
			}
			// Step 5 is the first one after the outer step at 4.
			own, alone := plan.Alone(run, localPlan(run, codec, []int{2, 4}, []int{0}, []int{0}), 0)
			alone.Start, own.Train.HeldOutEvery, own.Train.Steps = 4, 5, 5
			trainBy(t, Config{Run: own, Plan: alone, Keeper: from{&memoryKeeper{layers: map[plan.Step]map[int][]byte{4: want.states[0][4]}}, 4}, OnStep: func(s StepResult) {
				if s.Step == 5 && !s.Final && *s.HeldOut != want.heldOut[0][5] {
					t.Errorf("held-out loss %v after the outer step, of its parameters alone %v", want.heldOut[0][5], *s.HeldOut)
				}
			}}, func(d kernels.Device) kernels.Device { return d })
			if bytes.Equal(want.states[0][6][1], want.states[1][6][1]) {
				t.Error("both replicas have the same moments")
			}
		})
		if raced {
			break // the numbers do not depend on it
		}
	}
}

// TestReplicasMeetInHalves: parameters in bfloat16 on the device, rounded by chance, and optimizer state in the node's memory change nothing of how outer
// steps are made.
func TestReplicasMeetInHalves(t *testing.T) {
	run := byChance(localRun("tied"))
	p := localPlan(run, "int4", []int{2, 4}, []int{0, 2}, []int{0, 1})
	for r := range p.Replicas {
		p.Replicas[r].Stages[r].Offload = true
	}
	got := trainLocal(t, run, p, nil)
	got.compare(t, plainly(t, run, p, got.made))
}

// TestARoundIsClosed: each replica ends a round early after an inner step, not all of them after as many.
func TestARoundIsClosed(t *testing.T) {
	run := localRun("tied")
	run.Train.Steps = 12
	p := localPlan(run, "int8", []int{2, 4}, []int{0, 2}, []int{0, 3})
	p.Local.Every = 6
	got := trainLocal(t, run, p, func(log *memoryRounds, r plan.Replica, step plan.Step) bool {
		if r == 1 && step == 2 {
			log.close()
		}
		return false
	})
	if got.made[0].To >= 6 && len(got.made) != 2 || got.made[len(got.made)-1].To != 12 {
		t.Errorf("the log has %v", got.made)
	}
	got.compare(t, plainly(t, run, p, got.made))
}

// TestRoundsOverlap: messages travel while replicas make inner steps of the next round, which count but where the plan ends. Each way there is as the plain
// loops have it.
func TestRoundsOverlap(t *testing.T) {
	for _, codec := range []string{"int8", "f32", "topk"} {
		run := localRun("tied")
		run.Train.Steps, run.Train.CheckpointEvery, run.Train.HeldOutEvery = 14, 8, 4
		var first met
		for i, bounds := range [][2][]int{{{0, 2, 3}, {0, 1}}, {{0}, {0, 1, 4}}} {
			p := localPlan(run, codec, []int{2, 4}, bounds[0], bounds[1])
			p.Local.Every, p.Local.Delay = 4, 2
			got := trainLocal(t, run, p, nil)
			if to := fmt.Sprint(ends(got.made)); to != "[4 8 12 14]" {
				t.Fatalf("%s: outer steps at %s", codec, to)
			}
			got.compare(t, plainly(t, run, p, got.made))
			if i == 0 {
				first = got
			}
			if !maps.Equal(got.heldOut[0], first.heldOut[0]) || !slices.Equal(slices.Sorted(maps.Keys(got.heldOut[0])), []plan.Step{7, 11, 13, 14}) {
				t.Errorf("%s: evaluated %v, in another cut %v", codec, got.heldOut[0], first.heldOut[0])
			}
			if _, late := got.states[0][8]; !late {
				t.Errorf("%s: no checkpoint of a late outer step", codec)
			}
		}
	}
}

// TestOverlapEnds: a plan ends with a late outer step where a replica is left out or falls short, and what was made meanwhile is left out with it.
func TestOverlapEnds(t *testing.T) {
	for name, c := range map[string]struct {
		onStep func(log *memoryRounds, r plan.Replica, step plan.Step) bool
		ends   string // of several ways in which it may go
	}{
		"left out":              {func(_ *memoryRounds, r plan.Replica, step plan.Step) bool { return r == 1 && step == 10 }, "[6 12]"},
		"left out as it begins": {func(_ *memoryRounds, r plan.Replica, step plan.Step) bool { return r == 1 && step == 7 }, "[6] [6 12]"},
		"falls short": {func(log *memoryRounds, r plan.Replica, step plan.Step) bool {
			if r == 1 && step == 9 {
				log.close()
			}
			return false
		}, "[6 10 12 18 20] [6 11 12 18 20] [6 12] [6 12 18 20]"},
	} {
		t.Run(name, func(t *testing.T) {
			run := localRun("tied")
			run.Train.Steps = 20
			p := localPlan(run, "int8", []int{3, 3}, []int{0, 2}, []int{0, 3})
			p.Local.Every, p.Local.Delay = 6, 2
			got := trainLocal(t, run, p, c.onStep)
			if to := fmt.Sprint(ends(got.made)); !strings.Contains(c.ends, to) || !got.made[len(got.made)-1].Last {
				t.Errorf("outer steps at %s", to)
			}
			got.compare(t, plainly(t, run, p, got.made))
		})
	}
}

// ends returns to where outer steps lead.
func ends(made []plan.Merged) (to []plan.Step) {
	for _, m := range made {
		to = append(to, m.To)
	}
	return to
}

// TestOneReplicaIsLeftOut: the others make the outer step without it, and the plan ends there.
func TestOneReplicaIsLeftOut(t *testing.T) {
	for _, codec := range []string{"int8", "topk", "f32"} {
		run := localRun("tied")
		p := localPlan(run, codec, []int{1, 2, 3}, []int{0, 2}, []int{0, 1, 3}, []int{0})
		got := trainLocal(t, run, p, func(_ *memoryRounds, r plan.Replica, step plan.Step) bool { return r == 1 && step == 3 })
		last := got.made[len(got.made)-1]
		if len(got.made) != 2 || last.To != 4 || !last.Last || fmt.Sprint(last.Counted()) != "[0 2]" {
			t.Errorf("%s: the log has %v", codec, got.made)
		}
		got.compare(t, plainly(t, run, p, got.made))
	}
}

// TestEveryStepPlansTakeWhatIsLeft: plans after local steps train on the micro-batches that did not count.
func TestEveryStepPlansTakeWhatIsLeft(t *testing.T) {
	run := testRun()
	left := plan.Stream{Given: []plan.MicroRange{{First: 1, End: 2}, {First: 4, End: 6}}, Fresh: 9}
	losses := func(c Config) (all []float64) {
		c.Run, c.OnStep = run, func(s StepResult) {
			if !s.Final {
				all = append(all, s.Loss)
			}
		}
		trainBy(t, c, func(d kernels.Device) kernels.Device { return d })
		return all
	}
	p := cut(run, "1f1b", []int{0})
	usual := losses(Config{Plan: p})
	want := losses(Config{Plan: p, Data: blockData{patterned{run.Model.Context}, run.Train.Micros, func(step plan.Step, micro plan.Micro) int64 {
		return left.At(int64(step-1)*int64(run.Train.Micros) + int64(micro))
	}}})
	p.Stream = left
	if got := losses(Config{Plan: p}); !slices.Equal(got, want) || slices.Equal(got, usual) || len(got) == 0 {
		t.Errorf("losses %v, of what is left %v, of all %v", got, want, usual)
	}
}

// TestInnerCommits: an inner step says that an outer one follows where the round ends, or earlier, and nothing else of what comes after it.
func TestInnerCommits(t *testing.T) {
	run := localRun("tied")
	local := localPlan(run, "int8", []int{2, 4}, []int{0}, []int{0})
	own, alone := plan.Alone(run, local, 1)
	p, err := newProgram(own, alone, alone.Workers()[0])
	if err != nil {
		t.Fatal(err)
	}
	report := wire.Report{}
	for name, c := range map[string]struct {
		local  bool
		commit wire.Commit
		good   bool
	}{
		"an inner step":            {true, wire.Commit{Step: 1}, true},
		"closed early":             {true, wire.Commit{Step: 1, Merge: true}, true},
		"the end of a round":       {true, wire.Commit{Step: 2, Merge: true}, true},
		"the end, and no meeting":  {true, wire.Commit{Step: 2}, false},
		"a save":                   {true, wire.Commit{Step: 2, Merge: true, Save: true}, false},
		"a stop":                   {true, wire.Commit{Step: 2, Merge: true, Stop: true, Save: true}, false},
		"a schedule":               {true, wire.Commit{Step: 1, Next: alone.ScheduleChoice().String()}, false},
		"the last step":            {true, wire.Commit{Step: 6, Merge: true}, true},
		"a meeting in every step":  {false, wire.Commit{Step: 2, Merge: true}, false},
		"nobody meets":             {false, wire.Commit{Step: 2}, true},
		"the last one, with saves": {false, wire.Commit{Step: 6, Save: true}, true},
	} {
		if p.local = nil; c.local {
			p.local = local.Local
		}
		c.commit.GradScale = 1
		if err := p.checkCommit(c.commit.Step, c.commit, report); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhatLocalStepsCannotHave: state that no checkpoint has yet, and steps that somebody repeats.
func TestWhatLocalStepsCannotHave(t *testing.T) {
	run := localRun("tied")
	for name, change := range map[string]func(p *plan.Plan, c *Config){
		"own state": func(p *plan.Plan, _ *Config) {
			p.Replicas[0].Own, p.Replicas[1].Own = &plan.Own{}, &plan.Own{Replica: 1}
		},
		"a replay":         func(_ *plan.Plan, c *Config) { c.Replay = []wire.Commit{} },
		"repeated commits": func(_ *plan.Plan, c *Config) { c.Committed = []wire.Commit{{}} },
		"a commit taken":   func(_ *plan.Plan, c *Config) { c.Taken = wire.Commit{Step: 1} },
	} {
		processor, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer processor.Close()
		p := localPlan(run, "int8", []int{2, 4}, []int{0}, []int{0})
		c := Config{Replica: 1, First: 2, Device: processor, Host: &host.Memory{}}
		change(&p, &c)
		c.Local = &Local{Run: run, Plan: p, Rounds: newMemoryRounds(run, p), Processor: processor, Keys: seals.Alone{}}
		c.Run, c.Plan = plan.Alone(run, p, 1)
		c.Worker = c.Plan.Workers()[0]
		if w, err := New(usual(c)); !errors.Is(err, ErrBadConfig) {
			t.Errorf("%s: %v", name, err)
			w.Close()
		}
	}
}
