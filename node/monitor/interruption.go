package monitor

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Interruption times the way from the newest step of one plan to the first step of the next, on a node with a part in both; or
// of the same plan, where another member goes on in a lost one's place. Its methods may be called concurrently.
type Interruption struct {
	mu   sync.Mutex // guards the rest
	on   bool       // a plan has ended here, or a member of it is lost, and no step since is committed
	told api.Interruption
	// missed is whose process has ended last, and when that was noticed here.
	missed   plan.PeerID
	missedAt time.Time
	// standIns has the steps that the lost one's workers here have come to, of whom there are to be so many.
	standIns map[plan.WorkerID]plan.Step
	workers  int
	again    plan.Step // the newest one that they have computed again
	// salvaged is the newest step that this node has computed again for a salvage; 0 without one.
	salvaged plan.Step
	// newest is the newest step of a worker here, at the time that it was reported.
	newest plan.Step
	at     time.Time
	// from is the newest checkpoint when the plan ended, next the plan that follows; zero before it does.
	from plan.Step
	next plan.Plan
	// runs is the generation that this node has begun with last, before the one that ended.
	runs, before plan.Generation
	// pauses holds the newest interruptions that followed a pause, the newest last.
	pauses []planner.Stop
	// marks are the moments at which each part ended; zero for those that were not seen.
	marks [marksEnd]time.Time
}

// mark names a moment of an interruption.
type mark int

const (
	lastStep mark = iota
	ended
	agreed
	recomputed // by this node, for a salvage
	saved
	planMade
	loaded
	replayed // by this node, as a substitute
	firstStep
	marksEnd
)

// substitution reports whether a plan goes on with a substitute, whose first step has not come yet.
func (i *Interruption) substitution() bool { return i.on && i.told.Rung == api.RungSubstitute }

// Miss notes that the process of a member has ended, which another one may stand in for.
func (i *Interruption) Miss(peer plan.PeerID, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.missed, i.missedAt = peer, now
}

// Substitute notes that the log has named who goes on in a lost member's place.
func (i *Interruption) Substitute(state consensus.State, s consensus.Substitute, self plan.PeerID, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.on && i.next.Generation == s.Generation {
		i.recovers()
	}
	if i.on || i.at.IsZero() || s.Generation != state.Plan.Generation {
		return
	}
	why := fmt.Sprintf("%s is lost, and %s computes its part", state.NameOf(s.Lost), state.NameOf(s.By))
	i.on, i.standIns, i.workers, i.again = true, map[plan.WorkerID]plan.Step{}, 0, 0
	for _, w := range state.Plan.Workers() {
		if w.Peer == s.Lost && s.By == self {
			i.workers++
		}
	}
	i.told = api.Interruption{Rung: api.RungSubstitute, From: sourceOf(s), Why: why, Last: i.newest}
	i.marks = [marksEnd]time.Time{lastStep: i.at, ended: now, agreed: now}
	if i.missed == s.Lost { // before the log knew
		i.marks[ended] = i.missedAt
	}
}

// StandIn notes that a lost member's worker here has come to a step: first to that of the state that it begins with.
func (i *Interruption) StandIn(w plan.WorkerID, step plan.Step, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.substitution() {
		return
	}
	if _, begun := i.standIns[w]; !begun {
		i.marks[loaded] = now
	} else if step <= i.newest {
		i.marks[replayed] = now
		if step > i.again {
			i.again = step
			i.told.Replayed++
		}
	}
	i.standIns[w] = step
}

// caughtUp reports whether the lost member's workers here have all come to a step, as far as any are here.
func (i *Interruption) caughtUp(step plan.Step) bool {
	for _, at := range i.standIns {
		if at < step {
			return false
		}
	}
	return len(i.standIns) >= i.workers
}

// recovers notes a loss before the first step after a pause: what follows is not what a change of plan takes.
func (i *Interruption) recovers() {
	if i.told.Rung == api.RungPause {
		i.told.Rung = api.RungCheckpoint
	}
}

// End notes that the work on a plan has ended here, in order or not. The log may have the next one already. Where it ends without a step, the interruption before
// it goes on, no longer as a pause where a loss ended it. A substitution that came to nothing becomes part of it.
func (i *Interruption) End(state consensus.State, orderly bool, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.on && !i.substitution() || i.at.IsZero() {
		if !orderly {
			i.recovers()
		}
		return
	}
	i.on, i.from, i.next, i.before = true, state.Checkpoint.Step, plan.Plan{}, i.runs
	if i.told = (api.Interruption{Rung: api.RungCheckpoint, Last: i.newest}); orderly {
		i.told.Rung = api.RungPause
	}
	i.marks = [marksEnd]time.Time{lastStep: i.at, ended: now}
}

// Salvage notes that the log has named who saves the newest step, and how many steps are to be replayed for that.
func (i *Interruption) Salvage(replays plan.Step, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.marks[agreed], i.told.Replayed, i.salvaged = now, replays, 0
	if i.told.Rung = api.RungMemory; replays > 0 {
		i.told.Rung = api.RungReplay
	}
}

// Replaying notes that a lost member's worker has come to a step that is computed again here for a salvage.
func (i *Interruption) Replaying(step plan.Step) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.salvaged = max(i.salvaged, step)
}

// replaying returns the newest step that Replaying noted for the salvage that is under way; 0 without one.
func (i *Interruption) replaying() plan.Step {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.salvaged
}

// Replayed notes that this node has computed the steps of a salvage again.
func (i *Interruption) Replayed(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.marks[recomputed] = now
}

// save notes that the log has a newer checkpoint.
func (i *Interruption) save(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.next.Generation == 0 && !i.substitution() {
		i.marks[saved] = now
	}
}

// plan notes the plan that follows. A node without a part in it, or in the plan before, has nothing to tell: its newest step
// may be long ago.
func (i *Interruption) plan(state consensus.State, self plan.PeerID, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.runs, i.salvaged = state.Plan.Generation, 0
	if i.on = i.on && state.Plan.Places(self); !i.on {
		i.at = time.Time{}
		return
	}
	i.next, i.marks[planMade] = state.Plan, now
	if len(state.Reasons) > 0 {
		i.told.Why = state.Reasons[0]
	}
	if state.Plan.Start > i.from && i.marks[saved].IsZero() { // the log had both at once
		i.marks[saved] = now
	}
	if i.told.Redone = 0; state.Plan.Start < i.told.Last {
		i.told.Rung, i.told.Redone = api.RungCheckpoint, i.told.Last-state.Plan.Start
	}
}

// Load notes that the state is in place here, which stayed in memory for some of the layers.
func (i *Interruption) Load(kept, layers int, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.marks[loaded], i.told.Kept, i.told.Layers = now, kept, layers
}

// step takes in a step of a worker here. It returns the whole interruption with the first step of the plan that follows, or
// of the same one that a substitute has a part in.
func (i *Interruption) step(step plan.Step, now time.Time) (api.Interruption, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.newest
	if step != i.newest {
		i.newest, i.at = step, now
	}
	switch {
	case i.substitution() && step > before && !i.caughtUp(before): // it was under way when the member was lost
		i.told.Last, i.marks[lastStep] = step, now
		return api.Interruption{}, false
	case i.substitution() && step > before:
	case !i.on || i.next.Generation == 0 || step <= i.next.Start:
		return api.Interruption{}, false
	}
	i.on, i.marks[firstStep] = false, now
	told, at := i.told, i.marks[lastStep]
	for m, part := range []*float64{&told.TotalS, &told.DetectS, &told.AgreeS, &told.ReplayS, &told.SaveS, &told.PlanS, &told.LoadS, &told.ReplayS, &told.StepS} {
		if t := i.marks[m]; t.After(at) {
			*part, at = *part+t.Sub(at).Seconds(), t
		}
	}
	told.TotalS = now.Sub(i.marks[lastStep]).Seconds()
	if told.Rung == api.RungPause {
		load := told.LoadS + told.StepS
		i.pauses = append(i.pauses, planner.Stop{Ends: i.before, Rest: nanos(told.TotalS - load), Load: nanos(load)})
		i.pauses = i.pauses[max(0, len(i.pauses)-maxPauses):]
	}
	return told, true
}

// maxPauses bounds the interruptions that Pauses returns.
const maxPauses = 7

// Pauses returns the newest changes of plan that followed a pause, as this node saw them, the newest last.
func (i *Interruption) Pauses() []planner.Stop {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.pauses)
}

// nanos returns a time in seconds as whole nanoseconds, 0 at least.
func nanos(seconds float64) schedule.Nanos { return schedule.Nanos(max(seconds, 0) * 1e9) }
