package monitor

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/planner/plan"
)

// Position orders the committed steps of a run. A generation that starts from an older
// checkpoint repeats steps, under its own number.
type Position struct {
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
}

func positionOf(e api.Event) Position { return Position{e.Generation, e.Step} }

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.Step, q.Step))
}

// maxLogged bounds the steps that are kept, held back and read at once: as many as a subscriber
// of events can lag behind.
const maxLogged = api.HistoryEvents

// speedMemory weighs the newest step in the moving average of the speed.
const speedMemory = 0.1

// StepLog holds the newest committed steps of the run as this node knows them, each once and in
// the order of their positions. It only grows at its end: this node's workers append the steps of
// plans that it has a part in, and all others are merged from other nodes' logs.
type StepLog struct {
	publish func(api.Event)

	mu   sync.Mutex // guards what follows
	kept []api.Event
	end  Position // of the newest step, or where a generation begins
	// begun says that it is known where to log from. A node that comes into a run which goes on
	// does not log what was before.
	begun bool
	// owed is the last missing step of earlier generations, 0 for none. Meanwhile steps of the
	// present one wait in held: a step is not logged after a newer one.
	owed plan.Step
	held []api.Event
	// last is the run's last step, held back until the closing evaluation brings the held-out
	// loss of the finished model.
	last *api.Event

	newest   api.Event // of the current generation; its held-out losses are the newest measured
	at       time.Time // of this node's own newest step, zero before the first
	took     time.Duration
	schedule string // of the newest step
	stages   map[plan.StageID]pipeline.StageTimes
}

// Begin starts a plan's generation at the state of its start step. steps is the run's last one.
func (l *StepLog) Begin(p plan.Plan, steps plan.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logLast()
	l.begin(Position{p.Generation, p.Start})
	l.enter(Position{p.Generation, p.Start})
	l.newest.Steps, l.at = steps, time.Time{}
}

// begin notes where a generation starts. Steps still owed from the one before do not come any
// more. The caller holds mu.
func (l *StepLog) begin(start Position) {
	l.giveUp()
	switch {
	case l.begun && l.end.Step < start.Step:
		l.owed = start.Step
	case l.end.compare(start) < 0:
		l.end = start
	}
	l.begun = true
}

// enter turns to a generation; the caller holds mu.
func (l *StepLog) enter(start Position) {
	if l.newest.Generation == start.Generation {
		return // another node's log had it before the consensus did
	}
	l.newest.Generation, l.newest.Step = start.Generation, start.Step
	l.took, l.schedule, l.stages = 0, "", map[plan.StageID]pipeline.StageTimes{}
}

// Append takes in a worker's step of so many tokens. The first worker that reports a step logs it; the
// others only add their stage times. left is the schedule of the step before, where this one
// has another.
func (l *StepLog) Append(r pipeline.StepResult, tokens int, now time.Time) (left string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Final {
		l.newest.HeldOut, l.newest.HeldOutF32 = r.HeldOut, r.HeldOutF32
		if l.last != nil {
			l.last.HeldOut, l.last.HeldOutF32 = r.HeldOut, r.HeldOutF32
		}
		l.logLast()
		return ""
	}
	for _, t := range r.Stages {
		l.stages[t.StageID] = t
	}
	if schedule := r.Schedule.String(); schedule != l.schedule {
		left, l.schedule = l.schedule, schedule
	}
	l.took = r.Total
	if r.Step == l.newest.Step && !l.at.IsZero() {
		return left
	}
	if !l.at.IsZero() {
		rate := float64(tokens) / max(now.Sub(l.at).Seconds(), 1e-6)
		if l.newest.TokensPerS == 0 {
			l.newest.TokensPerS = rate
		}
		l.newest.TokensPerS += speedMemory * (rate - l.newest.TokensPerS)
	}
	l.at, l.newest.Step, l.newest.Loss = now, r.Step, r.Loss
	if r.HeldOut != nil {
		l.newest.HeldOut, l.newest.HeldOutF32 = r.HeldOut, r.HeldOutF32
	}
	e := l.newest
	e.Kind, e.HeldOut, e.HeldOutF32 = api.KindStep, r.HeldOut, r.HeldOutF32
	if e.Step == e.Steps {
		l.last = &e
	} else {
		l.note(e)
	}
	return left
}

// logLast logs the run's last step, if it is held back; the caller holds mu.
func (l *StepLog) logLast() {
	if l.last != nil {
		l.note(*l.last)
		l.last = nil
	}
}

// note logs a step of this node's own workers, or holds it back; the caller holds mu.
func (l *StepLog) note(e api.Event) {
	if l.owed == 0 {
		l.log(e)
	} else if l.held = append(l.held, e); len(l.held) >= maxLogged {
		l.giveUp()
	}
}

// Merge logs the steps of another node's log that are newer than the end. Steps that are owed are
// here once anything as new as the last of them is.
func (l *StepLog) Merge(events []api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	added := l.log(events...)
	if l.owed != 0 && l.end.Step >= l.owed {
		added = append(added, l.giveUp()...)
	}
	for _, e := range added {
		if positionOf(e).compare(positionOf(l.newest)) <= 0 {
			continue // of a generation before, or this node's own
		}
		l.enter(positionOf(e))
		l.newest.Step, l.newest.Steps, l.newest.Loss, l.newest.TokensPerS = e.Step, e.Steps, e.Loss, e.TokensPerS
		if e.HeldOut != nil {
			l.newest.HeldOut, l.newest.HeldOutF32 = e.HeldOut, e.HeldOutF32
		}
	}
}

// GiveUp stops waiting for steps that are owed.
func (l *StepLog) GiveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveUp()
}

func (l *StepLog) giveUp() (added []api.Event) {
	held := l.held
	l.owed, l.held = 0, nil
	return l.log(held...)
}

// log keeps and publishes those events that are newer than the end; the caller holds mu.
func (l *StepLog) log(events ...api.Event) (added []api.Event) {
	for _, e := range events {
		if e.Kind == api.KindStep && positionOf(e).compare(l.end) > 0 {
			l.end = positionOf(e)
			added = append(added, e)
			l.publish(e)
		}
	}
	l.kept = append(l.kept, added...)
	if over := len(l.kept) - maxLogged; over > 0 {
		l.kept = slices.Delete(l.kept, 0, over)
	}
	return added
}

// Since returns the steps kept that are newer than a position, oldest first.
func (l *StepLog) Since(p Position) []api.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearchFunc(l.kept, p, func(e api.Event, p Position) int { return positionOf(e).compare(p) })
	if found {
		i++
	}
	return slices.Clone(l.kept[i:])
}

// End returns how far the log has come, and whether it has begun.
func (l *StepLog) End() (end Position, begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end, l.begun
}

// Owes reports whether steps of earlier generations are waited for.
func (l *StepLog) Owes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed != 0
}

// Lacks reports whether steps are missing here that another node has, the newest of them at a
// position. The log of a node that came too late for its generation begins there. A node that is
// placed in the generation has its own workers to report it.
func (l *StepLog) Lacks(newest Position, late, placed bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if late && !l.begun {
		l.begun, l.end = true, Position{newest.Generation, newest.Step - min(newest.Step, 1)}
	}
	return l.owed != 0 || l.begun && !placed && l.end.compare(newest) < 0
}

// Newest returns the newest step of the current generation, with the newest held-out losses.
func (l *StepLog) Newest() api.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// Finish logs the last step, if it is held back, and returns the newest one.
func (l *StepLog) Finish() api.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logLast()
	return l.newest
}

// fillHeartbeat reports the newest step and this node's share of it. Losses that are not finite
// stay out: JSON has no word for them.
func (l *StepLog) fillHeartbeat(b *gossip.Heartbeat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Generation, b.Step, b.TokensPerS, b.StepNanos = l.newest.Generation, l.newest.Step, l.newest.TokensPerS, l.took.Nanoseconds()
	if len(l.schedule) <= gossip.MaxScheduleBytes {
		b.Schedule = l.schedule
	}
	if !math.IsNaN(l.newest.Loss) && !math.IsInf(l.newest.Loss, 0) {
		b.Loss = l.newest.Loss
	}
	for _, t := range l.stages {
		b.Stages = append(b.Stages, gossip.TimesOf(t))
	}
}
