package leader

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/kernels/cpu"
	"pnode/kernels/emulate"
	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// squares is a text without a file.
type squares struct{ context int }

func (s squares) Micro(_ context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	at := func(i int) int32 { return int32((i*i + i/3) % 61) }
	for b := range batch {
		for t := range s.context {
			i := int(step)*1009 + int(micro)*31 + b*97 + t
			tokens, targets = append(tokens, at(i)), append(targets, at(i+1))
		}
	}
	return tokens, targets, nil
}

func (s squares) HeldOut(ctx context.Context, index, batch int) (tokens, targets []int32, err error) {
	return s.Micro(ctx, 1_000_003, plan.Micro(index), batch)
}
func (s squares) HeldOutMicros(int, int) int            { return 1 }
func (s squares) DocumentStarts(tokens []int32) []int32 { return make([]int32, len(tokens)) }

// states keeps what was saved last of each layer.
type states struct {
	mu     sync.Mutex // guards layers
	layers map[int][]byte
}

func (s *states) Save(_ context.Context, saved pipeline.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range saved.Layers {
		state, err := io.ReadAll(l)
		if err != nil {
			return err
		}
		s.layers[l.Layer] = state
	}
	return nil
}

func (s *states) Load(_ context.Context, layer int, _ pipeline.Part, dst io.Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := dst.Write(s.layers[layer])
	return err
}

// rehearsal is a run in one process: emulated devices and links, real QUIC and workers, and
// a planner that hears of them as by heartbeats.
type rehearsal struct {
	*testing.T
	net       *link.Emulated
	endpoints []*link.Endpoint
	device    emulate.Profile
	changes   map[plan.PeerID][]emulate.Change // of devices' speeds
	slow      map[plan.PeerID]*gossip.SlowDowns
	begun     time.Time // the training
	keeper    *states
	leader    *Leader
	state     consensus.State

	mu     sync.Mutex // guards what follows
	watch  scheduleWatch
	better *betterWatch // compares plans, too, unless nil
	why    string
	onStep func(plan.Step) // at the coordinator
	losses map[plan.Step]uint64
	took   []time.Duration // by step, from 0: step 1
	course []string        // by step
}

// rehearsedRun is 4 stages of 30 ms a micro-batch with boundaries of 8 KiB: 3 ms at
// 25 Mbit/s, 13 ms at 5. Devices and links are as slow as they are so that little has to be
// computed and sent for that: these take the time of the machine.
func rehearsedRun() plan.RunSpec {
	return plan.RunSpec{
		Run:   "rehearsal",
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 6, Heads: 1, Channels: 32},
		Train: plan.TrainSpec{
			Seed: 7, Steps: 22, Micros: 20, MicroBatch: 4, LR: 3e-3, MinLR: 3e-4, WarmupSteps: 2,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, ClipNorm: 0.5, Replicas: 1, Stages: 4,
		},
	}
}

// newRehearsal makes as many nodes as the run has stages in all replicas.
func newRehearsal(t *testing.T, run plan.RunSpec) *rehearsal {
	t.Helper()
	shape := link.LinkConditions{BytesPerS: 3_125_000, Delay: 5 * time.Millisecond}
	net, err := link.NewEmulated(link.EmulatedOptions{Peers: run.Train.Stages * run.Train.Replicas, Seed: 3, Conditions: shape})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	r := &rehearsal{
		T: t, net: net, keeper: &states{layers: map[int][]byte{}}, losses: map[plan.Step]uint64{},
		leader: New(Config{Heartbeats: gossip.NewTracker(), Log: quiet}),
		device: emulate.Profile{Model: "slow", MatMulFLOPS: 3e8, AttentionFLOPS: 3e8, MemoryBytesPerS: 25e8, MemoryBytes: 1 << 30},
	}
	inline := func(search func(context.Context)) bool { search(t.Context()); return true }
	r.watch = scheduleWatch{Leader: r.leader, spawn: inline}
	r.state.Run = &run
	r.changes, r.slow = map[plan.PeerID][]emulate.Change{}, map[plan.PeerID]*gossip.SlowDowns{}
	for i, peer := range net.Peers() {
		r.slow[peer] = gossip.NewSlowDowns()
		m := consensus.Member{Peer: peer, State: consensus.Active, Profile: plan.Profile{Devices: []plan.DeviceProfile{
			{Name: "cpu", MatMulFLOPS: r.device.MatMulFLOPS, MemoryBytesPerS: r.device.MemoryBytesPerS, MemoryFreeBytes: r.device.MemoryBytes},
		}}}
		for _, other := range net.Peers() {
			if other != peer {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: other, BytesPerS: shape.BytesPerS, RTTNanos: 2 * shape.Delay.Nanoseconds()})
			}
		}
		r.state.Members = append(r.state.Members, m)
		r.endpoints = append(r.endpoints, link.NewEndpoint(net.Network(i), link.Options{}))
	}
	return r
}

// plan makes the next generation, as the planner would.
func (r *rehearsal) plan(start plan.Step) {
	r.Helper()
	in := NextInput(r.state)
	in.NodeBytes, in.Start = 0, start
	plan, _, err := r.watch.planner(r.why)(r.Context(), in)
	if err != nil {
		r.Fatal(err)
	}
	r.state.Plan, r.why = plan, ""
}

// generation carries the plan out until its workers end: with the run, or because the
// schedule is to change.
func (r *rehearsal) generation(ctx context.Context) {
	r.Helper()
	group, ctx := errgroup.WithContext(ctx)
	p := r.state.Plan
	for i, peer := range r.net.Peers() {
		if !p.Places(peer) {
			continue
		}
		session := r.endpoints[i].Session(p.Generation, p.Peers())
		defer session.Close()
		var meter gossip.LinkMeter
		defer meter.Follow(session.Stats)()
		inner, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			r.Fatal(err)
		}
		device, err := emulate.New(inner, emulate.Options{Profile: r.device, Changes: r.changesFromNow(peer)})
		if err != nil {
			r.Fatal(err)
		}
		defer device.Close()
		w, err := pipeline.New(pipeline.Config{
			Worker: plan.WorkerID{Peer: peer, Device: "cpu"}, Run: *r.state.Run, Plan: p, Device: device,
			Data: squares{r.state.Run.Model.Context}, Exchange: session, Keeper: r.keeper, Log: r.leader.Log,
			Stop: r.stop, Next: r.next, OnLoaded: func() {}, OnStep: func(s pipeline.StepResult) { r.step(peer, s, &meter) },
		})
		if err != nil {
			r.Fatal(err)
		}
		defer w.Close()
		group.Go(func() error {
			if err := w.Run(ctx, ctx); err != nil {
				return err
			}
			return w.Saved()
		})
	}
	if err := group.Wait(); err != nil {
		r.Fatal(err)
	}
}

// changesFromNow returns the changes of a device's speed for one that is opened now.
func (r *rehearsal) changesFromNow(peer plan.PeerID) (changes []emulate.Change) {
	for _, c := range r.changes[peer] {
		c.After = max(0, c.After-time.Since(r.begun))
		changes = append(changes, c)
	}
	return changes
}

func (r *rehearsal) stop() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why != ""
}

// next is the course that the planner wants.
func (r *rehearsal) next(plan.Step) plan.ScheduleChoice {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.leader.wish.Load(); w != nil && w.Generation == r.state.Plan.Generation {
		if course, err := plan.ParseScheduleChoice(w.Schedule); err == nil {
			return course
		}
	}
	return r.state.Plan.ScheduleChoice()
}

// step is a worker's word of a step: a heartbeat to the planner, who looks after every one.
func (r *rehearsal) step(peer plan.PeerID, s pipeline.StepResult, meter *gossip.LinkMeter) {
	if s.Final {
		return
	}
	b := gossip.Heartbeat{Peer: peer, Generation: r.state.Plan.Generation, Step: s.Step, StepNanos: s.Total.Nanoseconds(), Links: meter.Rates(), Schedule: s.Schedule.String()}
	for _, t := range s.Stages {
		b.Stages = append(b.Stages, gossip.TimesOf(t))
	}
	r.slow[peer].Note(b.Generation, s, b.Links, gossip.Work{Micros: r.state.Run.Train.Micros, MessageBytes: 8 << 10})
	r.slow[peer].Fill(&b)
	r.leader.Heartbeats.Note(b, time.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	if peer == r.state.Plan.Coordinator().Peer {
		defer r.onStep(s.Step)
	}
	if bits, told := r.losses[s.Step]; told && bits != math.Float64bits(s.Loss) {
		r.Errorf("step %d: losses %v and %v", s.Step, math.Float64frombits(bits), s.Loss)
	}
	r.losses[s.Step] = math.Float64bits(s.Loss)
	coordinates := peer == r.state.Plan.Coordinator().Peer
	if coordinates {
		r.took, r.course = append(r.took, s.Total), append(r.course, s.Schedule.String())
	}
	if coordinates || b.Slower == s.Step { // who became slower wakes the leader
		if r.better != nil {
			r.leader.speeds.look(r.state, time.Now())
			r.why = r.better.look(moment{state: r.state, now: time.Now()}).Better
			return
		}
		// A change is worth it in a run that goes on for long.
		r.why = r.watch.look(r.state, planner.Outlook{Left: 10_000, Lasts: math.MaxInt64})
	}
}

// train runs to the end and gives the plans that it took.
func (r *rehearsal) train(onStep func(plan.Step)) (plans []plan.Plan) {
	r.Helper()
	r.onStep, r.begun = onStep, time.Now()
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for _, e := range r.endpoints {
		serving.Go(func() {
			if err := e.Run(ctx); err != nil {
				r.Error(err)
			}
		})
	}
	for done := plan.Step(0); done < r.state.Run.Train.Steps; done = plan.Step(len(r.took)) {
		r.plan(done)
		plans = append(plans, r.state.Plan)
		r.generation(ctx)
	}
	stop()
	serving.Wait()
	r.net.Close()
	return plans
}

// mean returns the average time of the steps from first to last.
func (r *rehearsal) mean(first, last int) time.Duration {
	var sum time.Duration
	for _, d := range r.took[first-1 : last] {
		sum += d
	}
	return sum / time.Duration(last-first+1)
}

// TestScheduleChangesWithTheLink slows the middle link of a running pipeline down, from
// 25 Mbit/s and 5 ms to 5 Mbit/s and 60 ms, in virtual time. The planner answers within
// five steps, all stages go on with another schedule from the same step, which is faster;
// and no loss differs from those of a run in which nothing happened.
func TestScheduleChangesWithTheLink(t *testing.T) {
	t.Parallel()
	alone := rehearsedRun()
	alone.Train.Stages = 1
	want := map[plan.Step]uint64{}
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, alone)
		r.train(func(plan.Step) {})
		maps.Copy(want, r.losses)
	})
	const slowAfter = 6
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, rehearsedRun())
		plans := r.train(func(step plan.Step) {
			if step != slowAfter {
				return
			}
			b, c := r.state.Plan.Replicas[0].Stages[1].Peer, r.state.Plan.Replicas[0].Stages[2].Peer
			slow := link.LinkConditions{BytesPerS: 625_000, Delay: 60 * time.Millisecond}
			r.net.SetConditions(b, c, slow)
			r.net.SetConditions(c, b, slow)
		})
		if !maps.Equal(r.losses, want) {
			t.Errorf("losses of %d steps, some differ from those of %d without a change", len(r.losses), len(want))
		}
		if len(plans) != 1 {
			t.Fatalf("%d plans: %v", len(plans), plans)
		}
		before := plans[0].ScheduleChoice().String()
		changed := slices.IndexFunc(r.course, func(c string) bool { return c != before }) // steps before the change
		after := r.course[len(r.course)-1]
		if changed < slowAfter || slices.ContainsFunc(r.course[changed:], func(c string) bool { return c != after }) {
			t.Fatalf("courses by step: %q", r.course)
		}
		fast, slow, again := r.mean(3, slowAfter), r.mean(slowAfter+2, changed), r.mean(changed+2, len(r.took))
		t.Logf("steps of %v, %v after the link slowed down, %v from step %d on; %s, then %s", fast, slow, again, changed+1, before, after)
		if slow < fast*5/4 || again > slow*9/10 {
			t.Errorf("a step takes %v, %v over the slow link and %v after the change", fast, slow, again)
		}
		if late := changed - slowAfter; late > 5 {
			t.Errorf("%d steps until the change", late)
		}
	})
}

// TestAStragglerGetsLessWorkWithinFiveSteps has one of two replicas become three times slower, in virtual time, and be fast
// again later. Within five steps the other replica takes more of the micro-batches, and steps are faster than with even shares.
// Back at its speed the straggler gets its share again, once. All that is one generation, since no other plan is better, with the losses of a run in which
// nothing happened.
func TestAStragglerGetsLessWorkWithinFiveSteps(t *testing.T) {
	t.Parallel()
	alone := rehearsedRun()
	alone.Train.Stages, alone.Train.Micros, alone.Train.Steps = 1, 16, 56
	want := map[plan.Step]uint64{}
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, alone)
		r.train(func(plan.Step) {})
		maps.Copy(want, r.losses)
	})
	synctest.Test(t, func(t *testing.T) {
		run := alone
		run.Train.Replicas = 2
		r := newRehearsal(t, run)
		r.comparePlans()
		const slowAfter, fastAfter = 8 * time.Second, 26 * time.Second
		r.changes[r.net.Peers()[1]] = []emulate.Change{{After: slowAfter, Percent: 300}, {After: fastAfter, Percent: 100}}
		var ended []time.Duration // by step
		begun := time.Now()
		plans := r.train(func(plan.Step) { ended = append(ended, time.Since(begun)) })
		if !maps.Equal(r.losses, want) {
			t.Errorf("losses of %d steps, some differ from those of %d without a change", len(r.losses), len(want))
		}
		if len(plans) != 1 {
			t.Fatalf("%d plans: %v", len(plans), plans)
		}
		first := func(after int, is func(step int) bool) int { // step that is so, from 1
			for step := after; step <= len(ended); step++ {
				if is(step) {
					return step
				}
			}
			t.Fatalf("never after step %d: %q", after, r.course)
			return 0
		}
		slow := first(1, func(s int) bool { return ended[s-1] > slowAfter })
		answered := first(1, func(s int) bool { return r.course[s-1] != r.course[0] })
		back := first(answered, func(s int) bool { return r.course[s-1] != r.course[answered-1] })
		even, late, shared := r.mean(3, slow-1), r.mean(slow+1, answered-1), r.mean(answered+1, back-1)
		t.Logf("steps of %v on %q; %v from step %d on; %v on %q from step %d on; back from step %d on", even, r.course[0], late, slow, shared, r.course[answered-1], answered, back)
		if answered-slow > 5 {
			t.Errorf("slower from step %d on, other shares from step %d on", slow, answered)
		}
		if late < 2*even || shared > late*7/10 {
			t.Errorf("a step takes %v, %v with a straggler and %v with other shares", even, late, shared)
		}
		if last := r.course[len(r.course)-1]; last != r.course[0] || slices.ContainsFunc(r.course[back-1:], func(c string) bool { return c != last }) {
			t.Errorf("courses by step: %q", r.course)
		}
	})
}
