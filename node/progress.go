package node

import (
	"sync"
	"time"

	"pnode/node/api"
	"pnode/pipeline"
	"pnode/planner"
)

// progress is what this node shows of the run: the newest committed step, its speed and
// the stage times of the placements here. Workers write it, status and heartbeats read.
type progress struct {
	emit func(api.Event)

	mu         sync.Mutex // guards what follows
	generation planner.Generation
	step       planner.Step
	loss       float64
	heldOut    *float64
	tokensPerS float64
	lastStep   time.Time
	stages     map[stageKey]pipeline.StageTimes
}

type stageKey struct {
	replica planner.Replica
	stage   planner.Stage
}

// speedMemory weighs the newest step in the moving average of the speed.
const speedMemory = 0.1

// begin starts a generation: no step of it is done yet.
func (p *progress) begin(g planner.Generation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation, p.lastStep = g, time.Time{}
	p.stages = map[stageKey]pipeline.StageTimes{}
}

// record takes a worker's step in. The first placement that reports a step makes the
// event; the others only add their stage times.
func (p *progress) record(r pipeline.StepResult, tokens int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Final {
		p.heldOut = r.HeldOut
		return
	}
	p.stages[stageKey{r.Replica, r.Stage}] = r.Times
	if r.Step == p.step && !p.lastStep.IsZero() {
		return
	}
	p.speed(tokens, now)
	p.step, p.loss = r.Step, r.Loss
	if r.HeldOut != nil {
		p.heldOut = r.HeldOut
	}
	p.emit(api.Event{
		Kind: api.KindStep, Step: r.Step, Loss: r.Loss, HeldOut: r.HeldOut,
		TokensPerS: p.tokensPerS, Generation: p.generation,
	})
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
