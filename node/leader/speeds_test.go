package leader

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/kernels/emulate"
	"pnode/planner/plan"
)

// threeStages is a run of 3 devices, a stage each, with little to compute, and its losses when nothing happens.
func threeStages(t *testing.T, steps plan.Step) (run plan.RunSpec, want map[plan.Step]uint64) {
	run = rehearsedRun()
	run.Train.Stages, run.Train.Steps, run.Train.Micros, run.Train.MicroBatch = 1, steps, 8, 1
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, run)
		r.train(func(plan.Step) {})
		want = maps.Clone(r.losses)
	})
	run.Train.Stages = 3
	return run, want
}

// withPlans has the leader of a rehearsal compare plans, too. All devices are owners', and slow enough for what little they compute.
func (r *rehearsal) withPlans() *rehearsal {
	r.better = &betterWatch{Leader: r.leader, search: r.watch.spawn, schedule: &r.watch}
	r.state.Owners = r.net.Peers()
	r.device.MatMulFLOPS, r.device.AttentionFLOPS = r.device.MatMulFLOPS/8, r.device.AttentionFLOPS/8
	for i := range r.state.Members {
		r.state.Members[i].Profile.Devices[0].MatMulFLOPS = r.device.MatMulFLOPS
	}
	return r
}

// layersAt returns by stage how many layers a plan of one replica has.
func layersAt(p plan.Plan) (layers []int) {
	for _, at := range p.Replicas[0].Stages {
		layers = append(layers, at.Layers.Len())
	}
	return layers
}

// TestASlowDeviceOfOneReplicaLosesLayersWithinFiveSteps has the middle device of three, an owner's, become three times slower
// in virtual time, and be fast again later. Within five steps another cut is planned, and one more when it has been fast for long. Losses are those
// of a run in which nothing happened.
func TestASlowDeviceOfOneReplicaLosesLayersWithinFiveSteps(t *testing.T) {
	t.Parallel()
	run, want := threeStages(t, 130)
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, run).withPlans()
		const slowAfter, fastAfter = 8 * time.Second, 60 * time.Second
		r.changes[r.net.Peers()[1]] = []emulate.Change{{After: slowAfter, Percent: 300}, {After: fastAfter, Percent: 100}}
		var ended []time.Duration // by step
		plans := r.train(func(plan.Step) { ended = append(ended, time.Since(r.begun)) })
		if !maps.Equal(r.losses, want) {
			t.Errorf("losses of %d steps, some differ from those of %d without a change", len(r.losses), len(want))
		}
		after := func(change time.Duration) int { // the first step that is not over by then
			return 1 + slices.IndexFunc(ended, func(d time.Duration) bool { return d > change })
		}
		slow, fast := after(slowAfter), after(fastAfter)
		for _, p := range plans {
			t.Logf("from step %d on %v", p.Start+1, layersAt(p))
		}
		if len(plans) != 3 || !slices.Equal(layersAt(plans[2]), layersAt(plans[0])) || layersAt(plans[1])[1] >= layersAt(plans[0])[1] {
			t.Fatalf("%d plans", len(plans))
		}
		again, back := int(plans[1].Start)+1, int(plans[2].Start)+1 // the first steps of the plans
		even, late, cut := r.mean(3, slow-1), r.mean(slow+1, again-1), r.mean(again+1, fast-1)
		t.Logf("steps of %v; %v from step %d on; %v from step %d on; fast again from step %d on, the cut of before from step %d on", even, late, slow, cut, again, fast, back)
		if again-slow > 5 || late < 2*even || cut > late*7/10 || back < fast {
			t.Errorf("slower from step %d on, another cut from step %d on; fast from step %d on, the cut of before from step %d on", slow, again, fast, back)
		}
	})
}

// TestNoiseMovesNoLayers: devices whose speeds differ by 5% from step to step, in virtual time.
func TestNoiseMovesNoLayers(t *testing.T) {
	t.Parallel()
	run, want := threeStages(t, 60)
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, run).withPlans()
		rng := rand.New(rand.NewPCG(7, 8))
		for _, peer := range r.net.Peers() {
			for after := time.Duration(0); after < 5*time.Minute; after += time.Duration(200+rng.IntN(1000)) * time.Millisecond {
				r.changes[peer] = append(r.changes[peer], emulate.Change{After: after, Percent: 95 + rng.Int64N(11)})
			}
		}
		if plans := r.train(func(plan.Step) {}); len(plans) != 1 {
			t.Errorf("%d plans", len(plans))
		}
		if !maps.Equal(r.losses, want) {
			t.Errorf("losses of %d steps, some differ from those of %d without noise", len(r.losses), len(want))
		}
	})
}
