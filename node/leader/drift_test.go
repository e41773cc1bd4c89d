package leader

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// drifting is a run of three owners' devices whose leader hears in heartbeats what devices and lines make of its plan. Speeds and rates differ
// from those of the profiles by up to a tenth, anew in each step, and some by more.
type drifting struct {
	*testing.T
	better   *betterWatch
	schedule scheduleWatch
	state    consensus.State
	rng      *rand.Rand
	step     plan.Step
	now      time.Time
	// slow has by peer how long it computes, in thousandths of what its profile says; line has that of messages between the first two stages.
	slow map[plan.PeerID]int64
	line int64
	// slander is how many times less members say that lines carry than they do, in thousandths; 0 for the truth.
	slander int64
	// told has what members notice themselves.
	told map[plan.PeerID]*gossip.SlowDowns
	// changes has the first step of each plan after the first one, and of each schedule that runs without another plan.
	changes []plan.Step
}

const driftingRate = 300_000 // bytes a second of each line

func newDrifting(t *testing.T, steps plan.Step) *drifting {
	t.Helper()
	run := rehearsedRun()
	run.Model.Blocks, run.Train.Steps, run.Train.Schedule, run.Train.Stages = 22, steps, plan.ScheduleName, 3
	d := &drifting{T: t, rng: rand.New(rand.NewPCG(uint64(steps), 4)), now: time.Unix(1e9, 0), slow: map[plan.PeerID]int64{}, line: 1000, told: map[plan.PeerID]*gossip.SlowDowns{}}
	l := New(Config{Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return d.now }})
	inline := func(search func(context.Context)) bool { search(t.Context()); return true }
	d.schedule = scheduleWatch{Leader: l, spawn: inline}
	d.better = &betterWatch{Leader: l, search: inline, schedule: &d.schedule}
	peers := []plan.PeerID{"a", "b", "c"}
	d.state = consensus.State{Run: &run, Owners: peers}
	for _, peer := range peers {
		d.told[peer] = gossip.NewSlowDowns()
		m := consensus.Member{Peer: peer, State: consensus.Active, Profile: plan.Profile{Devices: []plan.DeviceProfile{
			{Name: "cpu", MatMulFLOPS: 1e9, AttentionFLOPS: 1e9, MemoryBytesPerS: 1e11, MemoryFreeBytes: 1 << 30},
		}}}
		for _, other := range peers {
			if other != peer {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: other, BytesPerS: driftingRate, RTTNanos: 10e6})
			}
		}
		d.state.Members = append(d.state.Members, m)
	}
	d.plan("")
	return d
}

// plan makes the next generation as the leader does for a reason.
func (d *drifting) plan(why string) {
	d.Helper()
	in := NextInput(d.state)
	in.NodeBytes, in.Start = 0, d.step
	p, _, err := d.schedule.planner(why)(d.Context(), in)
	if err != nil {
		d.Fatal(err)
	}
	d.state.Plan = p
}

// shown returns what a plan shows in a step, with noise of so many percent.
func (d *drifting) shown(p plan.Plan, percent int64) (m planner.Measured) {
	d.Helper()
	noisy := func(n int64) int64 { return n * (100 - percent + d.rng.Int64N(2*percent+1)) / 100 }
	computing, err := planner.Computing(NextInput(d.state), p)
	if err != nil {
		d.Fatal(err)
	}
	for s, at := range p.Replicas[0].Stages {
		n := noisy(computing[at.Worker()] * max(d.slow[at.Peer], 1000) / 1000)
		m.Stages = append(m.Stages, planner.MeasuredStage{Stage: plan.Stage(s), ForwardNanos: n / 3, BackwardNanos: n - n/3})
		for _, next := range p.Replicas[0].Stages[s+1 : min(s+2, len(p.Replicas[0].Stages))] {
			rate := int64(driftingRate)
			if at.Peer != "c" && next.Peer != "c" {
				rate = rate * 1000 / d.line
			}
			m.Links = append(m.Links, planner.MeasuredLink{From: at.Peer, To: next.Peer, BytesPerS: noisy(rate), RTTNanos: noisy(10e6)},
				planner.MeasuredLink{From: next.Peer, To: at.Peer, BytesPerS: noisy(rate), RTTNanos: noisy(10e6)})
		}
	}
	m.StepNanos = 1
	r, err := planner.Reselect(NextInput(d.state), p, m)
	if err != nil {
		d.Fatal(err)
	}
	m.StepNanos = int64(r.Now)
	return m
}

// took returns how long a step of a plan takes without noise.
func (d *drifting) took(p plan.Plan) schedule.Nanos { return schedule.Nanos(d.shown(p, 0).StepNanos) }

// running returns the plan with the schedule that its steps have.
func (d *drifting) running() plan.Plan {
	p := d.state.Plan
	if w := d.better.wish.Load(); w != nil && w.Generation == p.Generation {
		choice, err := plan.ParseScheduleChoice(w.Schedule)
		if err == nil {
			p, err = p.WithSchedule(choice)
		}
		if err != nil {
			d.Fatal(err)
		}
	}
	return p
}

// steps goes on for so many steps.
func (d *drifting) steps(n int) {
	d.Helper()
	for range n {
		d.step++
		p := d.running()
		shown := d.shown(p, 10)
		d.now = d.now.Add(time.Duration(shown.StepNanos))
		before := p.ScheduleChoice().String()
		for _, peer := range p.Peers() {
			b := gossip.Heartbeat{Peer: peer, Generation: p.Generation, Step: d.step, StepNanos: shown.StepNanos, Schedule: before}
			for _, s := range shown.Stages {
				if p.Replicas[0].Stages[s.Stage].Peer == peer {
					b.Stages = append(b.Stages, gossip.StageTimes{Stage: s.Stage, ForwardNanos: s.ForwardNanos, BackwardNanos: s.BackwardNanos})
				}
			}
			for _, l := range shown.Links {
				if l.From == peer {
					b.Links = append(b.Links, gossip.LinkRate{Peer: l.To, BytesPerS: l.BytesPerS * 1000 / max(d.slander, 1000), RTTNanos: l.RTTNanos})
				}
			}
			d.notice(&b)
			d.better.Heartbeats.Note(b, d.now)
		}
		d.better.speeds.look(d.state, d.now)
		if why := d.better.look(moment{state: d.state, now: d.now}).Better; why != "" {
			d.plan(why)
			d.Log(d.step, why, layersAt(d.state.Plan), d.state.Plan.ScheduleChoice())
			d.changes = append(d.changes, d.step)
		} else if d.running().ScheduleChoice().String() != before {
			d.Log(d.step, before, d.running().ScheduleChoice())
			d.changes = append(d.changes, d.step)
		}
	}
}

// notice adds to a heartbeat what its member notices of its own stages and lines.
func (d *drifting) notice(b *gossip.Heartbeat) {
	train, model := d.state.Run.Train, d.state.Run.Model
	r := pipeline.StepResult{Step: b.Step, Total: time.Duration(b.StepNanos)}
	for _, s := range b.Stages {
		id := plan.StageID{Replica: s.Replica, Stage: s.Stage}
		r.Stages = append(r.Stages, pipeline.StageTimes{StageID: id, Forward: time.Duration(s.ForwardNanos), Backward: time.Duration(s.BackwardNanos)})
		r.Added = append(r.Added, make([]plan.Micro, train.Micros))
	}
	d.told[b.Peer].Note(b.Generation, r, b.Links, gossip.Work{Micros: train.Micros, MessageBytes: 4 * train.MicroBatch * model.Context * model.Channels})
	d.told[b.Peer].Fill(b)
}

// TestDriftIsAnsweredWhereThatPays: while speeds and rates go up and down by a tenth no plan changes. A device that becomes a little slower, or a line that
// carries less, has another plan made exactly where a change needs no more than that gains, by what a step takes before and after it, and only one; where
// the line carries much less, another schedule runs first.
func TestDriftIsAnsweredWhereThatPays(t *testing.T) {
	t.Parallel()
	const quiet, long = 40, 5000
	for _, c := range []struct {
		slow, line int64
		steps      plan.Step // of the run
		changes    int
		within     plan.Step // so many steps
		back       bool      // another change once all is as before
	}{
		{slow: 1200, line: 1000, steps: long}, // gains less than ReplanPercent
		{slow: 1400, line: 1000, steps: long, changes: 1, within: 5, back: true},
		{slow: 1500, line: 1000, steps: long, changes: 1, within: 5, back: true},
		{slow: 2000, line: 1000, steps: long, changes: 1, within: 5, back: true},
		{slow: 1500, line: 1000, steps: quiet + 20}, // too late in the run
		{slow: 1000, line: 1200, steps: long},
		{slow: 1000, line: 1500, steps: long, changes: 1, within: 7}, // other neighbours, which are as good later
		{slow: 1000, line: 1500, steps: quiet + 20},
		{slow: 1000, line: 10000, steps: long, changes: 2, within: 5},
	} {
		d := newDrifting(t, c.steps)
		d.steps(quiet)
		if d.changes != nil {
			t.Fatalf("%+v: changes with steps %v before anything drifts", c, d.changes)
		}
		d.slow["b"], d.line = c.slow, c.line
		before := d.took(d.running())
		best := before - d.took(d.best())
		d.steps(int(min(250, c.steps-quiet)))
		after, stop := d.took(d.running()), 1e9+before
		t.Logf("%+v: a step of %s, then %s, at best %s; changes with steps %v", c, plan.Time(before), plan.Time(after), plan.Time(before-best), d.changes)
		switch {
		case len(d.changes) != c.changes, c.changes > 0 && d.changes[c.changes-1] > quiet+c.within:
			t.Errorf("%+v: changes with steps %v", c, d.changes)
		case c.changes > 0:
			if gain, left := before-after, schedule.Nanos(c.steps-d.changes[0]); gain*100 < before*planner.ReplanPercent || gain*left <= stop || gain*2 < best {
				t.Errorf("%+v: changed for %s less of %s in %d steps, possible were %s", c, plan.Time(gain), plan.Time(before), left, plan.Time(best))
			}
		case best*100 >= before*planner.ReplanPercent && best*schedule.Nanos(c.steps-quiet-agreed) > stop:
			t.Errorf("%+v: %s less of %s in %d steps are not taken", c, plan.Time(best), plan.Time(before), c.steps-quiet)
		}
		if c.steps < long {
			continue
		}
		d.slow["b"], d.line, d.changes = 1000, 1000, nil
		d.steps(150)
		if len(d.changes) > 1 || (len(d.changes) == 1) != c.back {
			t.Errorf("%+v: changes with steps %v when all is as before", c, d.changes)
		}
	}
}

// TestFollowersLearnSlowLines: members that do not lead know by what they heard themselves which lines are slow, so that the next leader does not
// go back to a plan over them. What members say of lines that steps do not bear out is not believed.
func TestFollowersLearnSlowLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line, slander int64
		known         bool
	}{{1500, 0, true}, {1000, 3000, false}} {
		d := newDrifting(t, 5000)
		l := New(Config{Heartbeats: d.better.Heartbeats, Log: d.better.Log, Now: d.better.Now})
		learner := scheduleWatch{Leader: l, spawn: d.schedule.spawn}
		learn := func(steps int) {
			for range steps {
				d.steps(1)
				learner.learn(d.state)
			}
		}
		learn(30)
		if known := l.lines.With(nil); known != nil {
			t.Errorf("%+v: known are %v before lines are slow", c, known)
		}
		d.line, d.slander = c.line, c.slander
		learn(60)
		known := l.lines.With(nil)
		if (len(known) > 0) != c.known {
			t.Errorf("%+v: known are %v", c, known)
		}
		if !c.known {
			continue
		}
		in := NextInput(d.state)
		in.NodeBytes, in.Start = 0, d.step
		next, _, err := learner.planner("")(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if now, then := d.took(d.running()), d.took(next); then*100 > now*105 {
			t.Errorf("%+v: the next leader would plan a step of %s, this one has one of %s", c, plan.Time(then), plan.Time(now))
		}
	}
}

// agreed is how many steps have to show a drift.
const agreed = 12

// best returns the best plan for devices and lines as they are.
func (d *drifting) best() plan.Plan {
	d.Helper()
	in := NextInput(d.state)
	in.NodeBytes, in.Links = 0, d.shown(d.running(), 0).Links
	for peer, slow := range d.slow {
		in.Ratios = append(in.Ratios, planner.Ratio{Worker: plan.WorkerID{Peer: peer, Device: "cpu"}, Permille: slow})
	}
	p, _, err := planner.Make(d.Context(), in)
	if err != nil {
		d.Fatal(err)
	}
	return p
}
