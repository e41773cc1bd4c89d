package leader

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/kernels/emulate"
	"pnode/node/gossip"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// comparePlans has the leader of a rehearsal compare plans, too. All devices are owners'.
func (r *rehearsal) comparePlans() {
	r.better = &betterWatch{Leader: r.leader, search: r.watch.spawn, schedule: &r.watch}
	r.state.Owners = r.net.Peers()
}

// layersAt returns by stage how many layers a plan of one replica has.
func layersAt(p plan.Plan) (layers []int) {
	for _, at := range p.Replicas[0].Stages {
		layers = append(layers, at.Layers.Len())
	}
	return layers
}

// layersOf counts the layers of a peer in a plan of one replica.
func layersOf(p plan.Plan, peer plan.PeerID) (n int) {
	for _, at := range p.Replicas[0].Stages {
		if at.Peer == peer {
			n += at.Layers.Len()
		}
	}
	return n
}

// TestASlowDeviceOfOneReplicaLosesLayersWithinFiveSteps has the middle device of three, an owner's, become three times slower
// in virtual time, and be fast again later. All devices' speeds differ by up to 5% all the time. Within five steps another cut is planned, and one
// more when the device has been fast for long. Losses are those of a run in which nothing happened.
func TestASlowDeviceOfOneReplicaLosesLayersWithinFiveSteps(t *testing.T) {
	t.Parallel()
	run := rehearsedRun()
	run.Train.Stages, run.Train.Steps, run.Train.Micros, run.Train.MicroBatch = 1, 130, 8, 1
	want := map[plan.Step]uint64{}
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, run)
		r.train(func(plan.Step) {})
		maps.Copy(want, r.losses)
	})
	run.Train.Stages = 3
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, run)
		r.comparePlans()
		r.device.MatMulFLOPS, r.device.AttentionFLOPS = r.device.MatMulFLOPS/8, r.device.AttentionFLOPS/8 // there is little to compute
		for i := range r.state.Members {
			r.state.Members[i].Profile.Devices[0].MatMulFLOPS = r.device.MatMulFLOPS
		}
		const slowAfter, fastAfter, most = 8 * time.Second, 60 * time.Second, 5 * time.Minute
		rng := rand.New(rand.NewPCG(7, 8))
		for i, peer := range r.net.Peers() {
			for now := time.Duration(0); now < most; now += time.Duration(200+rng.IntN(1000)) * time.Millisecond {
				percent := 95 + rng.Int64N(11)
				if i == 1 && now > slowAfter && now < fastAfter {
					percent *= 3
				}
				r.changes[peer] = append(r.changes[peer], emulate.Change{After: now, Percent: percent})
			}
		}
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
		mine := func(p plan.Plan) int { return layersOf(p, r.net.Peers()[1]) } // in whatever order the devices are
		if len(plans) != 3 || !slices.Equal(layersAt(plans[2]), layersAt(plans[0])) || mine(plans[1]) >= mine(plans[0]) {
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

// paced is a run of two devices whose heartbeats say that they compute for that many thousandths of what their profiles say.
type paced struct {
	*testing.T
	speeds
	state consensus.State
	step  plan.Step
	now   time.Time
}

func newPaced(t *testing.T, owners ...plan.PeerID) *paced {
	run := rehearsedRun()
	run.Train.Stages = 2
	p := &paced{T: t, speeds: speeds{beats: gossip.NewTracker()}, state: consensus.State{Run: &run, Owners: owners}}
	for _, peer := range []plan.PeerID{"a", "b"} {
		p.state.Members = append(p.state.Members, consensus.Member{Peer: peer, State: consensus.Active, Profile: speedOf(1e9), Shown: plan.Shown{FLOPS: 1e9, Held: true}})
	}
	made, _, err := planner.Make(t.Context(), NextInput(p.state))
	if err != nil {
		t.Fatal(err)
	}
	p.state.Plan = made
	return p
}

// steps has both say so of some more steps.
func (p *paced) steps(n int, permille ...int64) {
	p.Helper()
	computing, err := planner.Computing(NextInput(p.state), p.state.Plan)
	if err != nil {
		p.Fatal(err)
	}
	for range n {
		p.step, p.now = p.step+1, p.now.Add(time.Second)
		for i, of := range permille {
			b := gossip.Heartbeat{Peer: p.state.Members[i].Peer, Generation: p.state.Plan.Generation, Step: p.step, StepNanos: 1e9}
			for w, nanos := range computing {
				stages := p.state.Plan.StagesOf(w)
				for _, at := range stages {
					part := nanos / int64(len(stages)) * of / 1000
					if w.Peer == b.Peer {
						b.Stages = append(b.Stages, gossip.StageTimes{Replica: at.Replica, Stage: at.Stage, ForwardNanos: part / 3, BackwardNanos: part - part/3})
					}
				}
			}
			p.beats.Note(b, p.now)
		}
		p.look(p.state, p.now)
	}
}

func (p *paced) of(peer plan.PeerID) int64 {
	for _, r := range p.ratios {
		if r.Worker.Peer == peer {
			return r.Permille
		}
	}
	return planner.WholeRatio
}

// TestSpeedsOfDevices: owners' devices count as they compute, slower or faster, others' as slower alone. Who goes is forgotten, and so is
// a device that has had no stage for long.
func TestSpeedsOfDevices(t *testing.T) {
	p := newPaced(t, "a", "b")
	p.steps(20, 1000, 3000)
	if p.of("a") != 1000 || p.of("b") != 2828 {
		t.Fatalf("%v", p.ratios)
	}
	if p.lasted(p.state.Plan, p.step) < 10 {
		t.Errorf("for %d steps", p.lasted(p.state.Plan, p.step))
	}
	gone := p.state
	gone.Members = slices.Clone(gone.Members)
	gone.Members[1].State = consensus.Gone
	if p.look(gone, p.now); p.of("b") != 1000 {
		t.Errorf("gone, it counts %d", p.of("b"))
	}
	p.steps(20, 1000, 3000)
	alone := p.state
	alone.Plan.Replicas = []plan.Pipeline{{Micros: alone.Plan.Replicas[0].Micros, Stages: slices.Clone(alone.Plan.Replicas[0].Stages)}}
	alone.Plan.Generation++
	for i := range alone.Plan.Replicas[0].Stages {
		alone.Plan.Replicas[0].Stages[i].Peer = "a"
	}
	if p.look(alone, p.now.Add(time.Second)); p.of("b") != 2828 {
		t.Errorf("without a stage it counts %d", p.of("b"))
	}
	if p.look(alone, p.now.Add(2*idleFor)); p.of("b") != 1000 {
		t.Errorf("long without a stage it counts %d", p.of("b"))
	}

	fast := newPaced(t, "a", "b")
	if fast.steps(20, 1000, 300); fast.of("b") != 354 {
		t.Errorf("a fast device of an owner's counts %d", fast.of("b"))
	}
	liar := newPaced(t, "a")
	if liar.steps(20, 1000, 300); len(liar.ratios) != 0 {
		t.Errorf("%v", liar.ratios)
	}
	carried := newPaced(t, "a", "b")
	carried.state.Substitute = &consensus.Substitute{}
	if carried.steps(20, 1000, 3000); len(carried.ratios) != 0 {
		t.Errorf("while a substitute computes two parts: %v", carried.ratios)
	}
}
