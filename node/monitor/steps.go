package monitor

import (
	"math"
	"slices"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/planner/plan"
)

// speedMemory weighs the newest step in the moving average of the time between two; that of the first ones is their mean.
const speedMemory = 0.1

// steps holds what this node knows of the run's steps: their log, and more of the newest one. Its
// methods may be called concurrently.
type steps struct {
	mu  sync.Mutex // guards what follows
	log stepLog
	// last is the run's last step, held back until the closing evaluation brings the held-out
	// loss of the finished model.
	last *api.Event
	// newest is of the current generation; its held-out losses are the newest measured.
	newest api.Event
	// lineage is that of the log in which the generations here were made.
	lineage plan.Partings

	// Of this node's own workers: when and with which schedule they reported their newest step,
	// zero before the first; what it took, and where that went.
	at       time.Time
	schedule string
	took     time.Duration
	each     float64 // the average time from step to step of this generation in seconds, of so many measured
	measured int
	stages   map[plan.StageID]pipeline.StageTimes
	// Steps of this generation that a worker here applied before their commit, and those of them that one rolled back.
	optimistic, rolledBack stepCount
}

// stepCount counts steps, which several workers report.
type stepCount struct {
	n      int
	newest plan.Step
}

func (c *stepCount) add(step plan.Step) {
	if step > c.newest {
		c.n, c.newest = c.n+1, step
	}
}

// postValidation returns how many steps of the current generation this node has applied before their commit, and how many of them it has
// rolled back.
func (s *steps) postValidation() (optimistic, rolledBack int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.optimistic.n, s.rolledBack.n
}

// begin starts a plan's generation, made in a lineage of the log, at the state of its start step. end is the run's last step.
func (s *steps) begin(p plan.Plan, lineage plan.Partings, end plan.Step) {
	s.follow(lineage)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLast()
	start := position{p.Generation, p.Start}
	s.log.begin(start)
	s.enter(start)
	s.newest.Steps, s.at = end, time.Time{}
}

// follow notes which lineage the log is of that plans are from. Where it parted from the one before, generations are counted anew: steps
// since then do not count.
func (s *steps) follow(lineage plan.Partings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared, parted := s.lineage.Since(lineage)
	if !parted {
		return
	}
	s.lineage = slices.Clone(lineage)
	if max(s.newest.Generation, s.log.end.Generation) > shared {
		s.logLast()
		s.log.restart(shared)
	}
	if s.newest.Generation > shared {
		s.enter(position{})
		s.newest = api.Event{Steps: s.newest.Steps}
	}
}

// enter turns to a generation; the caller holds mu.
func (s *steps) enter(start position) {
	if s.newest.Generation == start.Generation {
		return // another node's log had it before the consensus did
	}
	s.newest.Generation, s.newest.Step = start.Generation, start.Step
	s.took, s.schedule, s.stages, s.measured = 0, "", map[plan.StageID]pipeline.StageTimes{}, 0
	s.optimistic, s.rolledBack = stepCount{}, stepCount{}
}

// report takes in a worker's step of so many tokens. The first worker that reports a step logs it;
// the others only add their stage times. left is the schedule of the step before, where this one
// has another.
func (s *steps) report(r pipeline.StepResult, tokens int, now time.Time) (left string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Final {
		s.newest.HeldOut, s.newest.HeldOutF32 = r.HeldOut, r.HeldOutF32
		if s.last != nil {
			s.last.HeldOut, s.last.HeldOutF32 = r.HeldOut, r.HeldOutF32
		}
		s.logLast()
		return ""
	}
	for _, t := range r.Stages {
		s.stages[t.StageID] = t
	}
	if schedule := r.Schedule.String(); schedule != s.schedule {
		left, s.schedule = s.schedule, schedule
	}
	if r.Optimistic {
		s.optimistic.add(r.Step)
	}
	if r.RolledBack {
		s.rolledBack.add(r.Step)
	}
	s.took = r.Total
	if !s.at.IsZero() {
		if r.Step == s.newest.Step {
			return left // another worker here has reported it
		}
		s.measure(tokens, now.Sub(s.at))
	}
	s.at, s.newest.Step, s.newest.Loss = now, r.Step, r.Loss
	if r.HeldOut != nil {
		s.newest.HeldOut, s.newest.HeldOutF32 = r.HeldOut, r.HeldOutF32
	}
	e := s.newest
	e.Kind, e.HeldOut, e.HeldOutF32 = api.KindStep, r.HeldOut, r.HeldOutF32
	if e.Step == e.Steps {
		s.last = &e
	} else {
		s.log.report(e)
	}
	return left
}

// measure takes in how long after the step before one of so many tokens came. The average is one of times: of steps that came
// at once, after a wait, that of rates would tell a speed that never was. The caller holds mu.
func (s *steps) measure(tokens int, took time.Duration) {
	s.measured++
	weight := max(speedMemory, 1/float64(s.measured))
	s.each += weight * (took.Seconds() - s.each)
	s.newest.TokensPerS = float64(tokens) / max(s.each, 1e-6)
}

// logLast logs the run's last step, if it is held back; the caller holds mu.
func (s *steps) logLast() {
	if s.last != nil {
		s.log.report(*s.last)
		s.last = nil
	}
}

// merge takes in the steps of another node's log, asked for while plans were from the log of a lineage.
func (s *steps) merge(events []api.Event, lineage plan.Partings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, parted := s.lineage.Since(lineage); parted {
		return // to another one, or to one that is followed soon
	}
	for _, e := range s.log.merge(events) {
		if positionOf(e).compare(positionOf(s.newest)) <= 0 {
			continue // of a generation before, or this node's own
		}
		s.enter(positionOf(e))
		s.newest.Step, s.newest.Steps, s.newest.Loss, s.newest.TokensPerS = e.Step, e.Steps, e.Loss, e.TokensPerS
		if e.HeldOut != nil {
			s.newest.HeldOut, s.newest.HeldOutF32 = e.HeldOut, e.HeldOutF32
		}
	}
}

// with hands the log to f, which must not keep it.
func (s *steps) with(f func(l *stepLog)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.log)
}

// logged returns how far the log has come.
func (s *steps) logged() logEnd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.logEnd
}

// current returns the newest step of the current generation, with the newest held-out losses.
func (s *steps) current() api.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// finish logs the last step, if it is held back, and returns the newest one.
func (s *steps) finish() api.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLast()
	return s.newest
}

// fillHeartbeat reports the newest step and this node's share of it. Losses that are not finite
// stay out: JSON has no word for them.
func (s *steps) fillHeartbeat(b *gossip.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.Lineage = s.lineage.Of(s.newest.Generation)
	b.Generation, b.Step, b.TokensPerS, b.StepNanos = s.newest.Generation, s.newest.Step, s.newest.TokensPerS, s.took.Nanoseconds()
	if len(s.schedule) <= gossip.MaxScheduleBytes {
		b.Schedule = s.schedule
	}
	if !math.IsNaN(s.newest.Loss) && !math.IsInf(s.newest.Loss, 0) {
		b.Loss = s.newest.Loss
	}
	for _, t := range s.stages {
		b.Stages = append(b.Stages, gossip.TimesOf(t))
	}
}
