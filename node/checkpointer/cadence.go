package checkpointer

import (
	"sync"
	"time"

	"pnode/planner/departures"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// forgetShare is how many times as long as a checkpoint takes passes from its begin to that of the next one at most, where
	// messages are forgotten.
	forgetShare = 4
	// newestTook and newestSteps are of how many checkpoints and steps the middle says how long one takes: a single one may be long.
	newestTook, newestSteps = 5, 9
	// lostAfter is when a checkpoint that was not committed counts as one that never will be.
	lostAfter = 10 * time.Minute
)

// Cadence says when the next checkpoint is due in one generation, where the run leaves that to pnode: as package holders says,
// by how large the state is, how long the last checkpoints took until they were committed, what steps lost by them, and how
// often members are lost. That is in the log: the process that coordinates the steps may just have been started itself. A checkpoint is
// due earlier where messages can no longer be kept for a replay.
type Cadence struct {
	plan plan.Plan

	mu        sync.Mutex // guards the rest
	clock     departures.Watch
	asked     plan.Step       // of the checkpoint under way; 0: none is
	begun     time.Time       // when the last one was asked for, or the generation began
	committed time.Time       // when the last one was seen to be committed, or the generation began
	took      []float64       // the newest ones until they were committed, in steps as long as those beside each
	stepped   time.Time       // when the last step ended; zero before
	steps     []time.Duration // the newest ones, each from the end of the one before
	saving    bool            // a checkpoint was under way at some time since stepped
	beside    time.Duration   // what the steps took while it was, so many
	besides   int
	slowdown  slowdown
	told      *holders.Cadence // nil before the first step
}

// newCadence returns the cadence of the generation of a plan, which begins now.
func newCadence(p plan.Plan) *Cadence {
	now := time.Now()
	return &Cadence{plan: p, begun: now, committed: now}
}

// Cadence returns the cadence of the generation of a plan, which begins now.
func (c *Checkpointer) Cadence(p plan.Plan) *Cadence {
	made := newCadence(p)
	c.cadence.Store(made)
	return made
}

// Told returns how often checkpoints of a generation are made; nil where this node does not say when, or has not yet.
func (c *Checkpointer) Told(g plan.Generation) *holders.Cadence {
	now := c.cadence.Load()
	if now == nil || now.plan.Generation != g {
		return nil
	}
	now.mu.Lock()
	defer now.mu.Unlock()
	return now.told
}

// Due reports at the end of a step whether the state after it is to be saved, given the run's state and whether messages are about to be
// forgotten. A save is under way from then on.
func (c *Cadence) Due(step plan.Step, state consensus.State, forgets bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.note(state.Checkpoint.Step, now)
	c.see(now)
	took := time.Duration(median(c.took) * float64(median(c.steps)))
	cadence := holders.Checkpoint{
		StateBytes: stateBytes(c.plan, state.Checkpoint), TookNanos: int64(took), LostNanos: int64(c.slowdown.lost()),
	}.Cadence(state.Departures.Rate(c.clock.Look(state.Departures, now)))
	cadence.StepNanos = int64(median(c.steps))
	if often := max(time.Duration(holders.LeastNanos), forgetShare*took); forgets && int64(often) < cadence.EveryNanos {
		cadence.EveryNanos, cadence.Why = int64(often), holders.ForMessages
	}
	c.told = &cadence
	if c.asked != 0 && now.Sub(c.begun) < lostAfter {
		return false
	}
	every := time.Duration(cadence.EveryNanos)
	if state.Checkpoint.Step == 0 { // there is none to go back to
		every = min(every, time.Duration(holders.LeastNanos))
	}
	if now.Sub(c.begun) < every || now.Sub(c.committed) < took {
		return false
	}
	c.asked, c.begun, c.saving = step, now, true
	return true
}

// Committed takes in that the checkpoint of a step is committed now. Due would notice it at the end of a step, which may be long.
func (c *Cadence) Committed(step plan.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(step, time.Now())
}

// note takes in the step of the newest checkpoint.
func (c *Cadence) note(saved plan.Step, now time.Time) {
	if c.asked != 0 && saved >= c.asked {
		c.committed, c.asked = now, 0
	}
}

// see takes in how long the step took that ends now. How long a checkpoint took counts in steps: on a machine that other work makes slow
// both take longer, and nothing of that is left when it is over.
func (c *Cadence) see(now time.Time) {
	if !c.stepped.IsZero() {
		long := now.Sub(c.stepped)
		c.slowdown.step(long, c.saving)
		c.steps = newest(newestSteps, append(c.steps, long))
		if c.saving {
			c.beside, c.besides = c.beside+long, c.besides+1
		}
	}
	if c.saving && c.asked == 0 {
		c.slowdown.saved()
		steps := float64(c.committed.Sub(c.begun)) / float64(max(c.beside, 1)) * float64(c.besides)
		c.took = newest(newestTook, append(c.took, steps))
		c.saving, c.beside, c.besides = false, 0, 0
	}
	c.stepped = now
}

// stateBytes returns the size of the largest stage's state in a checkpoint.
func stateBytes(p plan.Plan, of consensus.Checkpoint) (most int64) {
	if len(p.Replicas) == 0 {
		return 0
	}
	for _, place := range p.Replicas[0].Stages { // the others do not save
		bytes := int64(0)
		for _, l := range of.Layers {
			if place.Layers.Contains(l.Layer) {
				bytes += l.SizeBytes
			}
		}
		most = max(most, bytes)
	}
	return most
}
