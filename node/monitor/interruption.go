package monitor

import (
	"slices"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Interruption times the way from the newest step of one plan to the first step of the next, on a node with a part in both.
// Its methods may be called concurrently.
type Interruption struct {
	mu   sync.Mutex // guards the rest
	on   bool       // a plan has ended here, and no step of the next one is committed
	told api.Interruption
	// newest is the newest step of a worker here, at the time that it was reported.
	newest plan.Step
	at     time.Time
	// from is the newest checkpoint when the plan ended, next the plan that follows; zero before it does.
	from plan.Step
	next plan.Plan
	// pauses holds how long the newest interruptions took that followed a pause, in seconds.
	pauses []float64
	// marks are the moments at which each part ended; zero for those that were not seen.
	marks [marksEnd]time.Time
}

// mark names a moment of an interruption.
type mark int

const (
	lastStep mark = iota
	ended
	agreed
	saved
	planMade
	loaded
	firstStep
	marksEnd
)

// End notes that the work on a plan has ended here, in order or not. Where it ends without a step, the interruption before
// it goes on.
func (i *Interruption) End(state consensus.State, orderly bool, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.on || i.at.IsZero() {
		return
	}
	i.on, i.from, i.next = true, state.Checkpoint.Step, plan.Plan{}
	if i.told = (api.Interruption{Rung: api.RungCheckpoint, Last: i.newest}); orderly {
		i.told.Rung = api.RungPause
	}
	i.marks = [marksEnd]time.Time{lastStep: i.at, ended: now}
}

// Salvage notes that the log has named who saves the newest step, and whether some of it is to be replayed.
func (i *Interruption) Salvage(replays bool, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.marks[agreed] = now
	if i.told.Rung = api.RungMemory; replays {
		i.told.Rung = api.RungReplay
	}
}

// save notes that the log has a newer checkpoint.
func (i *Interruption) save(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.next.Generation == 0 {
		i.marks[saved] = now
	}
}

// plan notes the plan that follows. A node without a part in it has nothing to tell.
func (i *Interruption) plan(state consensus.State, self plan.PeerID, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.on = i.on && state.Plan.Places(self); !i.on {
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

// step takes in a step of a worker here. It returns the whole interruption with the first step of the plan that follows.
func (i *Interruption) step(step plan.Step, now time.Time) (api.Interruption, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if step != i.newest {
		i.newest, i.at = step, now
	}
	if !i.on || i.next.Generation == 0 || step <= i.next.Start {
		return api.Interruption{}, false
	}
	i.on, i.marks[firstStep] = false, now
	told, at := i.told, i.marks[lastStep]
	for m, part := range []*float64{&told.TotalS, &told.DetectS, &told.AgreeS, &told.SaveS, &told.PlanS, &told.LoadS, &told.StepS} {
		if t := i.marks[m]; t.After(at) {
			*part, at = t.Sub(at).Seconds(), t
		}
	}
	told.TotalS = now.Sub(i.marks[lastStep]).Seconds()
	if told.Rung == api.RungPause {
		i.pauses = append(i.pauses, told.TotalS)
		i.pauses = i.pauses[max(0, len(i.pauses)-maxPauses):]
	}
	return told, true
}

// maxPauses bounds the interruptions that Pauses counts.
const maxPauses = 7

// Pauses returns how long changes of plan have stopped the steps here that followed a pause: the median of the newest ones, 0
// before the first.
func (i *Interruption) Pauses() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.pauses) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(i.pauses))
	return time.Duration(sorted[len(sorted)/2] * float64(time.Second))
}
