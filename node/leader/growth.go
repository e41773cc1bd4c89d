package leader

import (
	"context"
	"slices"
	"time"

	"pnode/planner"
	"pnode/planner/claims"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// growth follows the steps of the running plan, and has the log say what they show of the speeds that members
// claim. It takes windows of steps as scheduleWatch does, but does with what it hears: a member that keeps its
// times to itself holds nobody up.
type growth struct {
	*Leader
	spawn      spawn
	generation plan.Generation
	shares     []int // of the micro-batches, by replica
	newest     plan.Step
	merged     time.Time // when the outer step of newest was made; zero: not known
	samples    []sample
	made       int // steps that samples are of
	window     *future[claims.Window]
	watch      claims.Watch
	// verdicts are not in the log yet.
	verdicts []claims.Verdict
}

// sample holds what heartbeats said of a step. Of replicas with local steps it is of a round, and steps are by the log: what a member says of its own inner steps
// nobody else has seen.
type sample struct {
	planner.Measured
	steps map[plan.PeerID]int64 // nanoseconds
}

// look takes in the newest step, and returns an entry where there is something to write down.
func (g *growth) look(state consensus.State, in func() planner.Input) (e consensus.Shown, ok bool) {
	p, known := g.shared(state.Plan)
	if g.generation != p.Generation {
		g.generation, g.newest, g.merged, g.window, g.verdicts = p.Generation, p.Start+1, time.Time{}, nil, nil // the first step warms up
		g.forget()
	}
	if shares := p.ScheduleChoice().Micros; !known || !slices.Equal(shares, g.shares) {
		g.shares, g.window = shares, nil // what was seen was of other work
		g.forget()
	}
	if p.Generation == 0 || !known || state.Paused() || state.Finished || !anyStranger(state) {
		return e, false
	}
	state.Plan = p
	if w, done := g.window.get(); done {
		g.window, g.verdicts = nil, g.watch.Note(w)
		g.forget()
	}
	if g.made < windowSteps {
		g.sample(state, time.Now())
	}
	if g.made >= windowSteps && g.window == nil {
		input, samples := in(), g.samples
		g.window = begin(g.spawn, func(context.Context) claims.Window { return windowOf(state, input, samples) })
	}
	e.Generation = p.Generation
	for _, v := range g.verdicts {
		m, _ := state.Member(v.Peer)
		if _, changes := m.Shown.After(p.Generation, v.FLOPS, v.Held); changes {
			e.Members = append(e.Members, consensus.ShownMember{Peer: v.Peer, FLOPS: v.FLOPS, Held: v.Held})
		}
	}
	return e, len(e.Members) > 0
}

// shared returns a plan with the shares of the micro-batches that its steps have. They are not known where the coordinator
// alone speaks of them: they are neither the plan's nor what this leader asked for.
func (l *Leader) shared(p plan.Plan) (running plan.Plan, known bool) {
	running, _ = l.Heartbeats.Running(p)
	shares := running.ScheduleChoice().Micros
	if slices.Equal(shares, p.ScheduleChoice().Micros) {
		return p, true
	}
	if w := l.wish.Load(); w != nil && w.Generation == p.Generation {
		if c, err := plan.ParseScheduleChoice(w.Schedule); err == nil && slices.Equal(c.Micros, shares) {
			shared, err := p.WithShares(shares)
			return shared, err == nil
		}
	}
	return p, false
}

// propose writes down what steps have shown.
func (g *growth) propose(ctx context.Context, e consensus.Shown) error {
	ctx, cancel := context.WithTimeout(ctx, g.Patience())
	defer cancel()
	g.verdicts = nil // the next window says it again where this fails
	for _, m := range e.Members {
		g.Log.Info("steps have shown a speed", "peer", m.Peer, "gflops", float64(m.FLOPS)/1e9, "as_planned", m.Held)
	}
	return g.Consensus.Propose(ctx, e)
}

// anyStranger reports whether a member of the plan is none of the owners' nodes.
func anyStranger(state consensus.State) bool {
	return slices.ContainsFunc(state.Plan.Peers(), func(p plan.PeerID) bool { return !slices.Contains(state.Owners, p) })
}

// forget begins a new window.
func (g *growth) forget() { g.samples, g.made = nil, 0 }

// sample takes in what members of the plan say of its newest step, which most of them have reached. With local steps it is a round, once the next one has ended.
func (g *growth) sample(state consensus.State, now time.Time) {
	s, step := g.said(state.Plan)
	made := 1
	if state.Plan.Local != nil {
		m, began, before := state.Merged, g.merged, g.newest
		if m == nil || m.To <= g.newest {
			return
		}
		g.newest, g.merged = m.To, now
		if began.IsZero() || m.From != before {
			return // it may have begun with what the plan loads, or is not the only one since
		}
		step, made, s.steps = m.To, int(m.To-m.From), roundTimes(state.Plan, *m, now.Sub(began))
	} else if step <= g.newest {
		return
	}
	g.newest, g.samples, g.made = step, append(g.samples, s), g.made+made
}

// roundTimes returns by member how long an inner step of its replica took in a round: all others have seen when the round ended, and how many counted.
func roundTimes(p plan.Plan, m plan.Merged, took time.Duration) map[plan.PeerID]int64 {
	times := map[plan.PeerID]int64{}
	for _, r := range m.Counted() {
		for _, at := range p.Replicas[r].Stages {
			times[at.Peer] = max(times[at.Peer], took.Nanoseconds()/int64(m.Parts[r].Steps))
		}
	}
	return times
}

// said returns what members of a plan say of its newest step, and the step that most of them have reached.
func (g *growth) said(p plan.Plan) (s sample, step plan.Step) {
	s.steps = map[plan.PeerID]int64{}
	var reached []plan.Step
	for _, peer := range p.Peers() {
		b, _ := g.Heartbeats.Last(peer)
		if b.Generation != p.Generation {
			continue
		}
		m := b.Measured(p)
		s.Stages, s.Links = append(s.Stages, m.Stages...), append(s.Links, m.Links...)
		s.steps[peer] = b.StepNanos
		reached = append(reached, b.Step)
	}
	if len(reached) == 0 {
		return s, 0
	}
	slices.Sort(reached)
	return s, reached[(len(reached)-1)/2]
}

// windowOf compares the median times of a window with what the plan counted on.
func windowOf(state consensus.State, in planner.Input, samples []sample) claims.Window {
	w := claims.Window{Generation: state.Plan.Generation, Apart: state.Plan.Local != nil}
	var all []planner.Measured
	for _, s := range samples {
		all = append(all, s.Measured)
	}
	expected, err := planner.Expect(in, state.Plan, planner.Median(all))
	if err != nil {
		return w // such as a plan whose device is lost: the next one counts
	}
	w.PredictedNanos, w.ExplainedNanos = expected.StepNanos, expected.ExplainedNanos
	for _, c := range state.Counted() {
		if !state.Plan.Places(c.Peer) {
			continue
		}
		var steps []int64
		for _, s := range samples {
			if n := s.steps[c.Peer]; n > 0 {
				steps = append(steps, n)
			}
		}
		work := claims.Work{Counted: c, PlannedNanos: expected.PlannedNanos[c.Peer], ReportedNanos: expected.ReportedNanos[c.Peer]}
		if slices.Sort(steps); len(steps) > 0 {
			work.StepNanos = steps[(len(steps)-1)/2]
		}
		w.Members = append(w.Members, work)
	}
	return w
}
