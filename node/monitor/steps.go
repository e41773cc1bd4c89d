package monitor

import (
	"maps"
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

// steps holds what this node knows of the run's steps: their log, and more of the newest one. Where replicas make local steps,
// steps are the run's once an outer step counts them. Its methods may be called concurrently.
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
	since    plan.Step // whose time at is, with local steps
	schedule string
	took     time.Duration
	each     average // from step to step of this generation
	stages   map[plan.StageID]pipeline.StageTimes
	inner    map[plan.Replica]gossip.InnerStep // the newest of this generation
	alone    map[plan.Replica]average          // what inner steps of this generation take
	moved    time.Time                         // the newest inner step or step of the run came, or a plan began
	// Steps of this generation that a worker here applied before their commit, and those of them that one rolled back.
	optimistic, rolledBack stepCount
}

// average is a moving average of times in seconds.
type average struct {
	each float64
	n    int // measured
}

// with returns the average with one more time. It is one of times: of steps that came at once, after a wait, that of rates would tell a
// speed that never was.
func (a average) with(took time.Duration) average {
	a.n++
	a.each += max(speedMemory, 1/float64(a.n)) * (took.Seconds() - a.each)
	return a
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
	s.newest.Steps, s.at, s.moved = end, time.Time{}, time.Now()
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
	s.took, s.schedule, s.stages, s.each = 0, "", map[plan.StageID]pipeline.StageTimes{}, average{}
	s.inner, s.alone = map[plan.Replica]gossip.InnerStep{}, map[plan.Replica]average{}
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
	s.took, s.moved = r.Total, now
	if r.Replica != nil {
		alone := s.alone[*r.Replica].with(r.Total)
		s.alone[*r.Replica] = alone
		s.inner[*r.Replica] = gossip.InnerStep{Replica: *r.Replica, Step: r.Step, Loss: finite(r.Loss), Nanos: int64(alone.each * 1e9)}
		if s.at.IsZero() {
			s.at, s.since = now, r.Step
		}
		return left
	}
	if !s.at.IsZero() {
		if r.Step == s.newest.Step {
			return left // another worker here has reported it
		}
		s.measure(tokens, now.Sub(s.at))
	}
	s.at = now
	s.add(r)
	return left
}

// add logs a step that counts, and holds back the run's last one; the caller holds mu.
func (s *steps) add(r pipeline.StepResult) {
	s.newest.Step, s.newest.Loss, s.newest.StepS, s.newest.GradientNorm = r.Step, r.Loss, r.Total.Seconds(), nil
	if r.Norm > 0 { // else not measured
		norm := r.Norm
		s.newest.GradientNorm = &norm
	}
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
}

// count takes in the run's steps of a round of local steps, each of so many tokens. Another replica that is coordinated here, or another
// node, may have told them before.
func (s *steps) count(all []pipeline.StepResult, tokens int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = slices.DeleteFunc(slices.Clone(all), func(r pipeline.StepResult) bool { return r.Step <= s.newest.Step })
	if len(all) == 0 {
		return
	}
	s.moved = now
	if to := all[len(all)-1].Step; to > s.since && !s.at.IsZero() {
		s.measure(tokens, now.Sub(s.at)/time.Duration(to-s.since))
		s.at, s.since = now, to
	}
	for _, r := range all {
		s.add(r)
	}
}

// measure takes in how long after the step before one of so many tokens came. The caller holds mu.
func (s *steps) measure(tokens int, took time.Duration) {
	s.each = s.each.with(took)
	s.newest.TokensPerS = float64(tokens) / max(s.each.each, 1e-6)
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
		if order := positionOf(e).compare(positionOf(s.newest)); order < 0 || order == 0 && s.last == nil {
			continue // of a generation before, or this node's own
		}
		s.last = nil // where it is held back, the other node has had the closing evaluation
		s.enter(positionOf(e))
		s.moved = time.Now()
		s.newest.Step, s.newest.Steps, s.newest.Loss, s.newest.TokensPerS = e.Step, e.Steps, e.Loss, e.TokensPerS
		s.newest.GradientNorm, s.newest.StepS = e.GradientNorm, e.StepS
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

// still returns for how long no step came, of the run or of a replica here; 0 before the first plan.
func (s *steps) still(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved.IsZero() {
		return 0
	}
	return now.Sub(s.moved)
}

// finish logs the last step, if it is held back, and returns the newest one.
func (s *steps) finish() api.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLast()
	return s.newest
}

// finite returns a loss, and 0 in place of one that is not finite.
func finite(loss float64) float64 {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0
	}
	return loss
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
	b.Loss = finite(s.newest.Loss)
	for _, r := range slices.Sorted(maps.Keys(s.inner)) {
		b.Inner = append(b.Inner, s.inner[r])
	}
	for _, t := range s.stages {
		b.Stages = append(b.Stages, gossip.TimesOf(t))
	}
}
