package leader

import (
	"context"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/wire"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// windowSteps is the number of steps whose median times make one comparison of schedules.
const windowSteps = 4

// scheduleWatch compares the schedule that runs with the best one for measured times. It takes
// windows of steps one after the other. For the median times of each it has another goroutine
// search for the best schedule, and planner.Watch decides whether that is worth a change. Where a member says that
// something became slower, it does not wait for a window.
type scheduleWatch struct {
	*Leader
	spawn spawn // runs the searches
	watched
	verdict planner.Watch
	// slower has by which steps of a generation members had become slower, as far as that was answered.
	slower slower
	// links are those of the newest window, of whatever generation: the plan after a change in
	// place has them too, or it would begin with the schedule before.
	links []planner.MeasuredLink
}

// watched records what was seen of one schedule of one generation.
type watched struct {
	running plan.Plan          // with that schedule
	newest  plan.Step          // that was sampled
	window  []planner.Measured // one step each
	compare *future[comparison]
	// wished is the schedule that the coordinator was asked for.
	wished string
	// why a new plan is to change the schedule, and the times that say so.
	why  string
	seen planner.Measured
}

// slower holds what members of a generation said of their slow-downs.
type slower struct {
	generation plan.Generation
	by         map[plan.PeerID]plan.Step
}

// news reports whether members say more than s knows.
func (s slower) news(said map[plan.PeerID]plan.Step) bool {
	for peer, step := range said {
		if step > s.by[peer] {
			return true
		}
	}
	return false
}

// comparison is the best schedule for the times of a window.
type comparison struct {
	best planner.Reselection
	seen planner.Measured
	// urgent: it follows from a slow-down.
	urgent bool
	err    error
}

// look takes in the newest step, if there is a new one. Where another schedule is better it
// asks the coordinator for it. Where that takes a new plan, look returns the reason for one.
func (s *scheduleWatch) look(state consensus.State, o planner.Outlook) string {
	step := s.follow(state.Plan)
	if s.why != "" || state.Paused() {
		return s.why
	}
	seen, all := s.Heartbeats.Seen(s.running)
	if all && s.compare == nil {
		s.answer(state, seen)
	}
	if all && step > s.newest && len(s.window) < windowSteps {
		s.newest, s.window = step, append(s.window, seen)
	}
	if len(s.window) == windowSteps && s.compare == nil {
		s.compareWith(state, planner.Median(s.window), false)
	}
	if c, ok := s.compare.get(); ok {
		s.window, s.compare = nil, nil
		s.conclude(state, c, o)
	}
	return s.why
}

// learn follows the steps of the plan while another member leads. Whoever leads next knows the lines that are slow, by what it
// heard of them itself: a leader that told others of them could slander any. Nothing is searched for while lines carry what
// members measured before, and nobody is asked for a schedule.
func (s *scheduleWatch) learn(state consensus.State) {
	before := s.running
	step := s.follow(state.Plan)
	if before.Generation != s.running.Generation || before.ScheduleChoice().String() != s.running.ScheduleChoice().String() {
		s.lines.Calm()
	}
	if c, ok := s.compare.get(); ok {
		s.window, s.compare = nil, nil
		if c.err == nil {
			s.lines.Note(state, c.best, c.seen, s.newest, s.Now(), c.urgent)
		}
	}
	seen, all := s.Heartbeats.Seen(s.running)
	if !all || state.Paused() || s.compare != nil {
		return
	}
	if s.lines.Doubts(state, seen.Links) {
		s.answer(state, seen)
	}
	if step > s.newest && s.compare == nil {
		s.newest, s.window = step, append(s.window, seen)
	}
	if len(s.window) < windowSteps || s.compare != nil {
		return
	}
	median := planner.Median(s.window)
	if s.links, s.window = median.Links, nil; s.lines.Doubts(state, median.Links) {
		s.compareWith(state, median, false)
	} else {
		s.lines.Calm()
	}
}

// answer compares at once where a member says that a stage or link of it became slower.
func (s *scheduleWatch) answer(state consensus.State, seen planner.Measured) {
	said := s.Heartbeats.Slower(s.running)
	if s.slower.generation != s.running.Generation {
		s.slower = slower{generation: s.running.Generation}
	}
	if !s.slower.news(said) {
		return
	}
	if s.compareWith(state, seen, true); s.compare != nil {
		s.slower.by = said
	}
}

// compareWith has the best schedule searched for with measured times.
func (s *scheduleWatch) compareWith(state consensus.State, seen planner.Measured, urgent bool) {
	in, running := NextInput(state), s.running
	in.Ratios, in.Links = s.speeds.ratios, s.lines.With(nil)
	s.links = seen.Links
	s.compare = begin(s.spawn, func(context.Context) comparison {
		best, err := s.Planner.Reselect(in, running, seen)
		return comparison{best, seen, urgent, err}
	})
}

// follow begins anew with another generation, and with another schedule of the same one. It
// returns the newest step.
func (s *scheduleWatch) follow(p plan.Plan) plan.Step {
	running, step := s.Heartbeats.Running(p)
	if s.running.Generation != p.Generation {
		s.watched = watched{running: p, newest: p.Start + 1} // the first step warms up
		s.wish.Store(nil)
	}
	if from, to := s.running.ScheduleChoice().String(), running.ScheduleChoice().String(); from != to {
		s.Log.Info("the schedule has changed", "step", step, "from", from, "to", to)
		s.watched = watched{running: running, newest: step, wished: s.wished}
		s.verdict.Changed()
	}
	return step
}

// conclude ends a window.
func (s *scheduleWatch) conclude(state consensus.State, c comparison, o planner.Outlook) {
	if c.err != nil {
		s.Log.Debug("schedule not compared", "cause", c.err)
		return
	}
	var d planner.Decision
	if c.urgent {
		d = s.verdict.Slowed(s.running.Generation, c.best)
	} else {
		d = s.verdict.Note(s.running.Generation, c.best, o)
	}
	s.Log.Debug("schedule compared", "step", s.newest, "measured", time.Duration(c.best.Measured), "promised", time.Duration(c.best.Promised),
		"now", time.Duration(c.best.Now), "best", time.Duration(c.best.Then), "verdict", d.Reason)
	if !d.Replan || c.urgent { // another plan may be better still than another schedule
		s.lines.Note(state, c.best, c.seen, s.newest, s.Now(), c.urgent)
	}
	if !d.Replan {
		return
	}
	s.Log.Info("the schedule is to change", "why", d.Reason)
	schedule := c.best.Plan.ScheduleChoice().String()
	if c.urgent && schedule == s.wished {
		return // the coordinator has still to hear of it
	}
	if c.best.InPlace && schedule != s.wished && len(schedule) <= gossip.MaxScheduleBytes {
		s.wished = schedule
		s.want(&gossip.ScheduleWish{Generation: s.running.Generation, Schedule: schedule, Why: wire.Clip(d.Reason, gossip.MaxWhyBytes)})
		return
	}
	s.why, s.seen = d.Reason, c.seen // the coordinator cannot make this change, or did not
}

// want has this node's heartbeats ask the coordinator for a schedule, the next one at once.
func (l *Leader) want(w *gossip.ScheduleWish) {
	l.wish.Store(w)
	select {
	case l.wishes <- struct{}{}:
	default: // there is word of an earlier one
	}
}

// planner returns the search for a next generation that is wanted for a reason: the same devices
// with the schedule that the watch found, if that is the reason, else a plan from the beginning.
func (s *scheduleWatch) planner(why string) func(context.Context, planner.Input) (plan.Plan, plan.Reasons, error) {
	found, links, search := s.watched, s.lines.With(s.links), s.Planner
	return s.speeds.search(func(ctx context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
		if why != "" && why == found.why {
			if r, err := search.Reselect(in, found.running, found.seen); err == nil {
				return r.Plan, r.Reasons, nil
			}
		}
		in.Links = links
		return search.Make(ctx, in)
	})
}

// repairer returns the repair of the plan in force, with links and speeds as steps have shown them.
func (s *scheduleWatch) repairer() searchFunc {
	links, repair := s.lines.With(s.links), s.Planner.Repair
	return s.speeds.search(func(_ context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
		in.Links = links
		return repair(in)
	})
}
