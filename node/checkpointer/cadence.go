package checkpointer

import (
	"math"
	"slices"
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
	// firstRetry is after how long a checkpoint for which a disk had no room is tried again. It doubles each time, up to mostRetry.
	firstRetry, mostRetry = 5 * time.Second, time.Minute
	// mostHeard bounds how many steps a checkpoint is believed to take by another node's word.
	mostHeard = 32
)

// Cadence says when the next checkpoint is due in one generation, where the run leaves that to pnode: as package holders says,
// by how large the state is, how long the last checkpoints took until they were committed, what steps lost by them, and how
// often members are lost. That is in the log: the process that coordinates the steps may just have been started itself. A checkpoint is
// due earlier where messages can no longer be kept for a replay.
type Cadence struct {
	plan plan.Plan

	mu        sync.Mutex // guards the rest
	clock     departures.Watch
	newest    plan.Step       // that has ended
	made      plan.Step       // of the checkpoint that is committed, or that the generation begins with
	asked     plan.Step       // of the checkpoint under way; 0: none is
	waits     plan.PeerID     // a node that it waited for when a step ended last
	promised  plan.Step       // how many steps were told to go by from the one before until it is committed, at most
	late      plan.Step       // how many did, of the last one, where they were more; else 0
	lateBy    plan.PeerID     // a node that it waited for then
	leftOut   int             // checkpoints since made that a member left out for want of room
	written   time.Duration   // how long the others wrote the last of these
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

// newCadence returns the cadence of the generation of a plan, which begins now. Checkpoints took so many steps of late; 0 is unknown.
func newCadence(p plan.Plan, took float64) *Cadence {
	now := time.Now()
	c := &Cadence{plan: p, begun: now, committed: now, made: p.Start}
	if took > 0 {
		c.took = []float64{took}
	}
	return c
}

// Cadence returns the cadence of the generation of a plan, which begins now. How long checkpoints took in the plan before counts as one that
// this plan has made: in steps, which a change makes longer or shorter like checkpoints. heard returns what a member has said of
// the cadence, for where another node coordinated the steps.
func (c *Checkpointer) Cadence(p plan.Plan, heard func(plan.PeerID) *holders.Cadence) *Cadence {
	took := 0.0
	if before := c.cadence.Load(); before != nil {
		took = before.usual(heard)
	}
	made := newCadence(p, took)
	c.cadence.Store(made)
	c.leftOut.Store(0)
	return made
}

// usual returns how many steps checkpoints took here, or as the node says that coordinated them; 0 where neither knows.
func (c *Cadence) usual(heard func(plan.PeerID) *holders.Cadence) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.took) > 0 && len(c.steps) > 0 {
		return median(c.took)
	}
	if len(c.plan.Replicas) > 0 {
		if said := heard(c.plan.Coordinator().Peer); said != nil && said.StepNanos > 0 {
			return min(float64(said.TookNanos)/float64(said.StepNanos), mostHeard)
		}
	}
	return median(c.took)
}

// Told returns how often checkpoints of a generation are made; nil where this node does not say when, or has not yet.
func (c *Checkpointer) Told(g plan.Generation) *holders.Cadence {
	now := c.cadence.Load()
	if now == nil || now.plan.Generation != g {
		return nil
	}
	now.mu.Lock()
	defer now.mu.Unlock()
	if now.told == nil {
		return nil
	}
	told := *now.told
	if now.asked != 0 {
		told.Saving, told.SavingNanos = now.asked, int64(time.Since(now.begun))
	}
	return &told
}

// Due reports at the end of a step whether the state after it is to be saved, given the run's state and whether messages are about to be
// forgotten. A save is under way from then on. leftOut are the steps of checkpoints that members say their disk had no room for, and that nobody
// writes any more: such a one never will be complete, and the next one is tried soon.
func (c *Cadence) Due(step plan.Step, state consensus.State, forgets bool, leftOut ...plan.Step) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.newest = step
	c.note(state.Checkpoint.Step, now)
	c.see(now)
	if c.asked != 0 && slices.Contains(leftOut, c.asked) {
		c.asked, c.saving, c.beside, c.besides = 0, false, 0, 0
		c.leftOut, c.written = c.leftOut+1, now.Sub(c.begun)
	}
	took := time.Duration(median(c.took) * float64(median(c.steps)))
	cadence := holders.Checkpoint{
		StateBytes: stateBytes(c.plan, state.Checkpoint), TookNanos: int64(took), LostNanos: int64(c.slowdown.lost()),
	}.Cadence(state.Departures.Rate(c.clock.Look(state.Departures, now)))
	cadence.StepNanos = int64(median(c.steps))
	if often := max(time.Duration(holders.LeastNanos), forgetShare*took); forgets && int64(often) < cadence.EveryNanos {
		cadence.EveryNanos, cadence.Why = int64(often), holders.ForMessages
	}
	c.tell(&cadence, state)
	if c.asked != 0 && now.Sub(c.begun) < lostAfter {
		return false
	}
	every := time.Duration(cadence.EveryNanos)
	if state.Checkpoint.Step == 0 { // there is none to go back to
		every = min(every, time.Duration(holders.LeastNanos))
	}
	if c.leftOut > 0 {
		every = max(min(firstRetry<<min(c.leftOut-1, 8), mostRetry), took, 2*c.written)
	}
	if now.Sub(c.begun) < every || now.Sub(c.committed) < took {
		return false
	}
	c.promised = cadence.Steps(cadence.StepNanos) + c.usually()
	c.asked, c.begun, c.saving, c.waits = step, now, true, ""
	return true
}

// usually returns how many steps pass until a checkpoint is committed.
func (c *Cadence) usually() plan.Step { return plan.Step(math.Ceil(median(c.took))) }

// tell notes what is told. The checkpoint under way, if there is one, may take longer than is usual: the next one begins as many steps after it as
// are usual then.
func (c *Cadence) tell(cadence *holders.Cadence, state consensus.State) {
	cadence.Late, cadence.LateBy = c.late, c.lateBy
	c.told = cadence
	if c.asked == 0 {
		return
	}
	if soonest := int64((float64(c.besides) + median(c.took)) * float64(cadence.StepNanos)); soonest > cadence.EveryNanos {
		cadence.EveryNanos, cadence.Why = soonest, holders.ForLines
	}
	if waits := consensus.Unsaved(state, c.asked); len(waits) > 0 {
		c.waits = waits[0]
	}
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
		c.late, c.lateBy = 0, ""
		if went := c.newest - min(c.newest, c.made); went > c.promised {
			if c.late = went; c.newest-c.asked > c.usually() {
				c.lateBy = c.waits
			}
		}
		c.committed, c.asked, c.made, c.leftOut = now, 0, saved, 0
	} else if c.asked == 0 && c.leftOut > 0 && saved > c.made { // complete, whoever said that there was no room for it
		c.committed, c.made, c.leftOut = now, saved, 0
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
