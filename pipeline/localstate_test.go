package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"pnode/kernels"
	"pnode/planner/plan"
)

// localKeeper has what replicas with local steps have saved: by step and layer what they have in common, and by step, replica and layer the rest.
type localKeeper struct {
	test   *testing.T
	run    plan.RunSpec
	hold   func(State) // unless nil, called between what the device has of a state that is in common and what the node's memory has
	mu     sync.Mutex  // guards the rest
	common map[plan.Step]map[int][]byte
	own    map[plan.Own]map[int][]byte
}

// Save wants the same of all replicas that is in common.
func (k *localKeeper) Save(_ context.Context, s State) error {
	states := map[int][]byte{}
	for _, part := range []bool{true, false} {
		for _, l := range s.Layers {
			from := io.Reader(l)
			if part && !s.Own {
				from = io.LimitReader(l, int64(4*k.run.Model.LayerLen(l.Layer)))
			}
			read, err := io.ReadAll(from)
			if err != nil {
				return err
			}
			states[l.Layer] = append(states[l.Layer], read...)
		}
		if part && !s.Own && k.hold != nil {
			k.hold(s)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.common == nil {
		k.common, k.own = map[plan.Step]map[int][]byte{}, map[plan.Own]map[int][]byte{}
	}
	if k.common[s.Step] == nil {
		k.common[s.Step] = map[int][]byte{}
	}
	into := k.common[s.Step]
	if of := (plan.Own{Replica: s.Replica, Step: s.Step}); s.Own {
		if k.own[of] == nil {
			k.own[of] = map[int][]byte{}
		}
		into = k.own[of]
	}
	for l, state := range states {
		if had, ok := into[l]; ok && !bytes.Equal(had, state) {
			k.test.Errorf("step %d layer %d: replica %d has another state than one before", s.Step, l, s.Replica)
		}
		into[l] = state
	}
	return nil
}

// moments returns how many bytes of what a replica has for itself are moments.
func (k *localKeeper) moments(layer int) int {
	return LayerStateBytes(k.run, layer) - 4*k.run.Model.LayerLen(layer)
}

// states returns a replica's states as workers without local steps save them.
func (k *localKeeper) states(r plan.Replica) map[plan.Step]map[int][]byte {
	all := map[plan.Step]map[int][]byte{}
	for of, layers := range k.own {
		for l, own := range layers {
			if of.Replica == r {
				if all[of.Step] == nil {
					all[of.Step] = map[int][]byte{}
				}
				all[of.Step][l] = slices.Concat(LayerParams(k.run.Model, l, k.common[of.Step][l]), own[:k.moments(l)])
			}
		}
	}
	return all
}

// startsWith loads what a plan begins with.
type startsWith struct {
	*localKeeper
	plan plan.Plan
}

func (k startsWith) Load(_ context.Context, layer int, of Part, dst io.Writer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	own := *k.plan.Replicas[0].Own
	own.Copied = false
	common, mine := k.common[k.plan.Start][layer], k.own[own][layer]
	if common == nil || mine == nil {
		return fmt.Errorf("layer %d of step %d was not saved by replica %d", layer, own.Step, own.Replica)
	}
	params, moments := 4*k.run.Model.LayerLen(layer), k.moments(layer)
	_, err := dst.Write(map[Part][]byte{Parameters: common[:params], OuterMomentum: common[params:], Moments: mine[:moments], Missed: mine[moments:]}[of])
	return err
}

// following returns the plan after one, cut elsewhere, each replica with its own state.
func following(run plan.RunSpec, p plan.Plan, made []plan.Merged, bounds ...[]int) plan.Plan {
	shares := []int(nil)
	for _, pipe := range p.Replicas {
		shares = append(shares, pipe.Micros)
	}
	next := localPlan(run, p.Local.Codec, shares, bounds...)
	end := made[len(made)-1]
	next.Generation, next.Start, next.Stream = p.Generation+1, end.To, end.Stream
	for r := range next.Replicas {
		next.Replicas[r].Own = &plan.Own{Replica: plan.Replica(r), Step: end.To}
	}
	return next
}

// goingOn has a run of local steps that did not stop, and the same one up to its first outer step.
type goingOn struct {
	run         plan.RunSpec
	plan        plan.Plan
	want        met
	whole, left *localKeeper // what the two have saved
	made        []plan.Merged
	kept        map[plan.WorkerID]*Retained
}

func goOn(t *testing.T, run plan.RunSpec, codec string, change func(*plan.Plan)) *goingOn {
	t.Helper()
	run.Train.CheckpointEvery = 2
	g := &goingOn{run: run, plan: localPlan(run, codec, []int{2, 4}, []int{0, 2, 3}, []int{0, 1}), kept: map[plan.WorkerID]*Retained{}}
	change(&g.plan)
	g.whole, g.left = &localKeeper{test: t, run: run}, &localKeeper{test: t, run: run}
	g.want = trainLocalFrom(t, run, g.plan, g.whole, 0, nil, nil)
	g.made = trainLocalFrom(t, run, g.plan, g.left, 2, g.kept, nil).made
	t.Cleanup(func() {
		for _, r := range g.kept {
			r.Close()
		}
	})
	if len(g.made) != 1 || !g.made[0].Last {
		t.Fatalf("the first plan has made %v", g.made)
	}
	return g
}

// saved returns a keeper with what was saved at the first outer step.
func (g *goingOn) saved(t *testing.T) *localKeeper {
	k := &localKeeper{test: t, run: g.run, common: map[plan.Step]map[int][]byte{2: g.left.common[2]}, own: map[plan.Own]map[int][]byte{}}
	for r := range g.plan.Replicas {
		of := plan.Own{Replica: plan.Replica(r), Step: 2}
		k.own[of] = g.left.own[of]
	}
	return k
}

// check carries the next plan out and wants, or does not want, the losses and states of the run that did not stop.
func (g *goingOn) check(t *testing.T, same bool, next plan.Plan, k *localKeeper, kept map[plan.WorkerID]*Retained) {
	t.Helper()
	got := trainLocalFrom(t, g.run, next, k, 0, kept, nil)
	alike := fmt.Sprint(k.common[6]) == fmt.Sprint(g.whole.common[6])
	for r := range next.Replicas {
		of := plan.Own{Replica: plan.Replica(r), Step: 6}
		alike = alike && len(k.own[of]) > 0 && fmt.Sprint(k.own[of]) == fmt.Sprint(g.whole.own[of])
		for step, loss := range got.losses[r] {
			alike = alike && loss == g.want.losses[r][step]
		}
		if len(got.losses[r]) != 4 {
			t.Errorf("replica %d made %d steps", r, len(got.losses[r]))
		}
	}
	if alike != same {
		t.Errorf("the same losses and states: %t, want %t", alike, same)
	}
}

// TestLocalStepsGoOn: what is saved at an outer step is loaded by workers of another cut of the same replicas, or kept in memory, and the rest of the
// run has the losses and states of one that did not stop, to the bit.
func TestLocalStepsGoOn(t *testing.T) {
	for _, codec := range []string{"int8", "topk", "f32"} {
		t.Run(codec, func(t *testing.T) {
			run := localRun("tied")
			if codec == "f32" {
				run = byMuon(run)
			}
			g := goOn(t, run, codec, func(*plan.Plan) {})
			t.Run("in another cut", func(t *testing.T) {
				g.check(t, true, following(g.run, g.plan, g.made, []int{0}, []int{0, 1, 4}), g.saved(t), nil)
			})
			t.Run("in memory", func(t *testing.T) {
				next := following(g.run, g.plan, g.made, []int{0, 2, 3}, []int{0, 1})
				for _, r := range g.kept {
					r.Keep(next)
				}
				g.check(t, true, next, &localKeeper{test: t, run: g.run}, g.kept)
			})
			t.Run("without what messages lacked", func(t *testing.T) {
				next := following(g.run, g.plan, g.made, []int{0, 1}, []int{0, 3})
				for r := range next.Replicas {
					next.Replicas[r].Own.Copied = true
				}
				g.check(t, codec == "f32", next, g.saved(t), nil)
			})
		})
		if raced {
			break // the numbers do not depend on it
		}
	}
}

// TestOffloadedLocalStepsGoOn: so it is with optimizer state in the node's memory.
func TestOffloadedLocalStepsGoOn(t *testing.T) {
	offload := func(p *plan.Plan) {
		for r := range p.Replicas {
			for s := range p.Replicas[r].Stages {
				p.Replicas[r].Stages[s].Offload = true
			}
		}
	}
	g := goOn(t, localRun("tied"), "int8", offload)
	next := following(g.run, g.plan, g.made, []int{0, 1}, []int{0, 3})
	offload(&next)
	g.check(t, true, next, g.saved(t), nil)
	next = following(g.run, g.plan, g.made, []int{0, 2, 3}, []int{0, 1})
	offload(&next)
	for _, r := range g.kept {
		r.Keep(next)
	}
	g.check(t, true, next, &localKeeper{test: t, run: g.run}, g.kept)
}

// TestEveryStepGoesOnFromLocal: a plan whose replicas make every step together begins with the parameters that replicas had in common, and with the
// moments of one of them.
func TestEveryStepGoesOnFromLocal(t *testing.T) {
	g := goOn(t, localRun("tied"), "int8", func(*plan.Plan) {})
	next := following(g.run, g.plan, g.made, []int{0, 2, 3}, []int{0, 1})
	next.Local = nil
	for r := range next.Replicas {
		next.Replicas[r].Own = nil
	}
	want := &memoryKeeper{layers: g.left.states(1)}
	results := func(p plan.Plan, k Keeper) map[plan.Step]float64 {
		var mu sync.Mutex // guards losses
		losses := map[plan.Step]float64{}
		trainBy(t, Config{Run: g.run, Plan: p, Keeper: k, OnStep: func(s StepResult) {
			mu.Lock()
			defer mu.Unlock()
			losses[s.Step] = s.Loss
		}}, func(d kernels.Device) kernels.Device { return d })
		return losses
	}
	before := results(next, from{want, 2})
	for r := range next.Replicas {
		next.Replicas[r].Own = &plan.Own{Replica: 1, Step: 2}
	}
	got := &memoryKeeper{}
	after := results(next, savesTo{startsWith{g.saved(t), next}, got})
	if fmt.Sprint(before) != fmt.Sprint(after) || len(after) != 4 {
		t.Errorf("losses %v, want %v", after, before)
	}
	for l, state := range want.layers[6] {
		if !bytes.Equal(state, got.layers[6][l]) {
			t.Errorf("layer %d ends in another state", l)
		}
	}
	for id, r := range g.kept { // the same moments alone are taken over
		for at, layers := range r.Keep(next) {
			if (len(layers) > 0) != (at.Replica == 1) {
				t.Errorf("%s of %s keeps the layers %v of replica %d stage %d", id.Device, id.Peer, layers, at.Replica, at.Stage)
			}
		}
	}
}

// savesTo saves elsewhere.
type savesTo struct {
	startsWith
	to *memoryKeeper
}

func (k savesTo) Save(ctx context.Context, s State) error { return k.to.Save(ctx, s) }

// TestASaveReadsTheOuterStepItBeganWith: where a keeper has not read the node's memory when the next round ends, its outer step waits.
func TestASaveReadsTheOuterStepItBeganWith(t *testing.T) {
	run := localRun("tied")
	run.Train.CheckpointEvery = 2
	p := localPlan(run, "f32", []int{2, 4}, []int{0, 2}, []int{0})
	want := &localKeeper{test: t, run: run}
	trainLocalFrom(t, run, p, want, 0, nil, nil)
	steps := map[plan.Step]chan struct{}{}
	for step := range run.Train.Steps {
		steps[step+1] = make(chan struct{})
	}
	held := &localKeeper{test: t, run: run, hold: func(s State) {
		if s.Replica == 1 && s.Step == 2 {
			<-steps[4]
		}
	}}
	trainLocalFrom(t, run, p, held, 0, nil, func(_ *memoryRounds, r plan.Replica, step plan.Step) bool {
		if r == 1 {
			close(steps[step])
		}
		return false
	})
	if fmt.Sprint(held.common) != fmt.Sprint(want.common) || fmt.Sprint(held.own) != fmt.Sprint(want.own) {
		t.Error("other states were saved")
	}
}
