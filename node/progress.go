package node

import (
	"fmt"
	"math"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// progress is what this node shows of the run: the newest committed step, its speed and
// the stage times of the placements here. Workers write it, and other nodes' chronicles
// where there are none; status and heartbeats read.
type progress struct {
	emit func(api.Event)
	// idle devices compute nothing: losses mean nothing.
	idle bool

	mu         sync.Mutex // guards what follows
	chronicle  chronicle
	generation plan.Generation
	steps      plan.Step // of the run
	step       plan.Step
	loss       float64
	heldOut    *float64
	heldOutF32 *float64 // the same with every stage in float32, if it was measured
	tokensPerS float64
	lastStep   time.Time
	took       time.Duration // the newest step
	course     string        // of the newest step
	stages     map[plan.StageID]pipeline.StageTimes
	// last is the event of the run's last step, held back until the closing evaluation
	// tells the held-out loss of the finished model.
	last *api.Event
}

// speedMemory weighs the newest step in the moving average of the speed.
const speedMemory = 0.1

// begin starts a generation at the state of the plan's start step.
func (p *progress) begin(plan plan.Plan, steps plan.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.emitLast()
	p.show(p.chronicle.begin(plan.Generation, plan.Start))
	p.enter(plan.Generation, plan.Start)
	p.steps, p.lastStep = steps, time.Time{}
}

// enter turns to a generation that begins at a step; the caller holds mu.
func (p *progress) enter(g plan.Generation, start plan.Step) {
	if p.generation == g {
		return // another node told of it before the log did
	}
	p.generation, p.step, p.took, p.course = g, start, 0, ""
	p.stages = map[plan.StageID]pipeline.StageTimes{}
}

// record takes a worker's step in. The first worker that reports a step makes the event;
// the others only add their stage times. left is the course of the step before, where this
// one took another.
func (p *progress) record(r pipeline.StepResult, tokens int, now time.Time) (left string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Final {
		p.heldOut, p.heldOutF32 = r.HeldOut, r.HeldOutF32
		if p.last != nil {
			p.last.HeldOut, p.last.HeldOutF32 = r.HeldOut, r.HeldOutF32
		}
		p.emitLast()
		return ""
	}
	for _, t := range r.Stages {
		p.stages[t.StageID] = t
	}
	if course := r.Schedule.String(); course != p.course {
		left, p.course = p.course, course
	}
	p.took = r.Total
	if r.Step == p.step && !p.lastStep.IsZero() {
		return left
	}
	p.speed(tokens, now)
	p.step, p.loss = r.Step, r.Loss
	if r.HeldOut != nil {
		p.heldOut, p.heldOutF32 = r.HeldOut, r.HeldOutF32
	}
	e := api.Event{
		Kind: api.KindStep, Step: r.Step, Steps: p.steps, Loss: r.Loss, HeldOut: r.HeldOut, HeldOutF32: r.HeldOutF32,
		TokensPerS: p.tokensPerS, Generation: p.generation,
	}
	if r.Step == p.steps {
		p.last = &e
		return left
	}
	p.show(p.chronicle.note(e))
	return left
}

// emitLast shows the last step, if it is held back; the caller holds mu.
func (p *progress) emitLast() {
	if p.last != nil {
		p.show(p.chronicle.note(*p.last))
		p.last = nil
	}
}

// show makes steps known; the caller holds mu.
func (p *progress) show(steps []api.Event) {
	for _, e := range steps {
		p.emit(e)
	}
}

// told takes in steps of another node's chronicle, after this node's newest.
func (p *progress) told(steps []api.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := p.chronicle.take(steps)
	p.show(shown)
	for _, e := range shown {
		if placeOf(e).compare(place{p.generation, p.step}) <= 0 {
			continue // of a generation before, or this node's own
		}
		p.enter(e.Generation, e.Step)
		p.step, p.steps, p.loss, p.tokensPerS = e.Step, e.Steps, e.Loss, e.TokensPerS
		if e.HeldOut != nil {
			p.heldOut, p.heldOutF32 = e.HeldOut, e.HeldOutF32
		}
	}
}

// lacks tells whether steps are missing here that another node knows, the newest of them at a
// place. A node that came too late for its generation tells from there on; one that is placed
// in it has its own workers to tell.
func (p *progress) lacks(told place, late, placed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if late {
		p.chronicle.beginAt(told)
	}
	return p.chronicle.owed != 0 || p.chronicle.begun && !placed && p.chronicle.end.compare(told) < 0
}

// owes tells whether steps of generations before are waited for; giveUp ends that.
func (p *progress) owes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chronicle.owed != 0
}

func (p *progress) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show(p.chronicle.giveUp())
}

// begun tells whether this node tells steps yet, end how far it has come with it.
func (p *progress) begun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chronicle.begun
}

func (p *progress) end() place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chronicle.end
}

// after are the steps known here that are newer than a place.
func (p *progress) after(at place) []api.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chronicle.after(at)
}

func (p *progress) speed(tokens int, now time.Time) {
	if !p.lastStep.IsZero() {
		rate := float64(tokens) / max(now.Sub(p.lastStep).Seconds(), 1e-6)
		if p.tokensPerS == 0 {
			p.tokensPerS = rate
		}
		p.tokensPerS += speedMemory * (rate - p.tokensPerS)
	}
	p.lastStep = now
}

// newest is the newest committed step of the current generation.
func (p *progress) newest() plan.Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step
}

// fill puts the progress into a status.
func (p *progress) fill(s *api.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Step, s.HeldOut, s.HeldOutF32, s.TokensPerS = p.step, p.heldOut, p.heldOutF32, p.tokensPerS
	if p.loss != 0 { // 0 is that of no step
		loss := p.loss
		s.Loss = &loss
	}
}

// fillBeat puts the progress into a heartbeat. Losses that are not finite stay out: JSON
// has no word for them.
func (p *progress) fillBeat(b *gossip.Heartbeat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.Generation, b.Step, b.TokensPerS, b.StepNanos = p.generation, p.step, p.tokensPerS, p.took.Nanoseconds()
	if len(p.course) <= gossip.MaxScheduleBytes {
		b.Schedule = p.course
	}
	if !math.IsNaN(p.loss) && !math.IsInf(p.loss, 0) {
		b.Loss = p.loss
	}
	for _, t := range p.stages {
		b.Stages = append(b.Stages, gossip.TimesOf(t))
	}
}

// done is the event at the end of a run.
func (p *progress) done(state consensus.State) api.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.emitLast()
	e := api.Event{Kind: api.KindDone, Generation: p.generation, Step: state.Checkpoint.Step, Loss: p.loss, HeldOut: p.heldOut, HeldOutF32: p.heldOutF32, TokensPerS: p.tokensPerS}
	e.Steps = state.Run.Train.Steps
	uniform := math.Log(float64(state.Run.Model.Vocab))
	switch {
	case state.Finished && p.idle:
		e.Message = fmt.Sprintf("finished at step %d; a device that computes nothing makes losses mean nothing", e.Step)
	case state.Finished && p.heldOut != nil:
		e.Message = fmt.Sprintf("finished at step %d: held-out loss %.3f nats a token%s, %s", e.Step, *p.heldOut, p.besideF32(state), besideUniform(*p.heldOut, uniform))
	case state.Finished:
		e.Message = fmt.Sprintf("finished at step %d", e.Step)
	case e.Step == 0:
		e.Message = "stopped before the first checkpoint; begin again from step 0 with --resume"
	default:
		e.Message = fmt.Sprintf("stopped; the checkpoint of step %d is safe, go on with --resume", e.Step)
	}
	return e
}

// besideF32 says in brackets how far the held-out loss is from that in float32 throughout; nothing
// where the run is that. The caller holds mu.
func (p *progress) besideF32(state consensus.State) string {
	switch text := api.PrecisionText(p.heldOut, p.heldOutF32, 3); {
	case text != "":
		return " (" + text + ")"
	case state.Run.Train.Rounds(state.Plan):
		return " (what lower precision costs was not measured)"
	default:
		return ""
	}
}

// besideUniform says how far a loss is from guessing every token alike.
func besideUniform(loss, uniform float64) string {
	if loss > uniform {
		return fmt.Sprintf("%.3f above the uniform %.3f: it has learned nothing yet", loss-uniform, uniform)
	}
	return fmt.Sprintf("%.3f below the uniform %.3f", uniform-loss, uniform)
}
