package leader

import (
	"log/slog"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/wire"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// windowSteps is the number of steps whose median times make one comparison of schedules.
const windowSteps = 4

// scheduleWatch compares the schedule that runs with the best one for measured times.
type scheduleWatch struct {
	door watchDoor
	watched
	// links are those of the newest window, of whatever generation: the plan after a change in
	// place has them too, or it would begin with the schedule before.
	links []planner.MeasuredLink
}

// watchDoor holds the parts that a scheduleWatch works with.
type watchDoor struct {
	heartbeats *gossip.Tracker
	planner    Planner
	search     spawn
	setWish    func(*gossip.ScheduleWish)
	log        *slog.Logger
}

// watched records what was seen of one schedule of one generation.
type watched struct {
	generation plan.Generation
	schedule   string    // that runs
	newest     plan.Step // sampled
	samples    []planner.Measured
	watch      planner.Watch
	comparing  *future[comparison] // of a full window
	// why a new plan is to change the schedule, and the times that say so.
	why  string
	seen planner.Measured
	// wished is the schedule that the coordinator was asked for.
	wished string
}

// comparison is a window of steps with the best schedule for its times.
type comparison struct {
	best    planner.Reselection
	running plan.Plan
	seen    planner.Measured
	err     error
}

// look takes in the newest step, if there is a new one. Where another schedule is better it
// asks the coordinator for it. Where that takes a new plan, look returns the reason for one.
func (s *scheduleWatch) look(state consensus.State) string {
	if s.generation != state.Plan.Generation {
		s.watched = watched{generation: state.Plan.Generation, schedule: state.Plan.ScheduleChoice().String(), newest: state.Plan.Start + 1} // the first step warms up
		s.door.setWish(nil)
	}
	running, step := s.door.heartbeats.Running(state.Plan)
	if schedule := running.ScheduleChoice().String(); schedule != s.schedule {
		s.door.log.Info("the schedule has changed", "step", step, "from", s.schedule, "to", schedule)
		s.watched = watched{generation: s.generation, schedule: schedule, newest: step, wished: s.wished}
	}
	if s.why != "" || state.Paused() {
		return s.why
	}
	if sample, ok := s.door.heartbeats.Seen(running); ok && step > s.newest && len(s.samples) < windowSteps {
		s.newest = step
		s.samples = append(s.samples, sample)
	}
	if len(s.samples) == windowSteps && s.comparing == nil {
		in, seen := NextInput(state), planner.Median(s.samples)
		s.links = seen.Links
		s.comparing = begin(s.door.search, func() comparison {
			best, err := s.door.planner.Reselect(in, running, seen)
			return comparison{best, running, seen, err}
		})
	}
	if c, ok := s.comparing.get(); ok {
		s.samples, s.comparing = s.samples[:0], nil
		s.conclude(c, state.Run.Train.Steps-s.newest)
	}
	return s.why
}

// conclude ends a window; left is the number of steps that the run still has to do.
func (s *scheduleWatch) conclude(c comparison, left plan.Step) {
	if c.err != nil {
		s.door.log.Debug("schedule not compared", "cause", c.err)
		return
	}
	d := s.watch.Note(s.generation, c.best, left)
	s.door.log.Debug("schedule compared", "step", s.newest, "measured", time.Duration(c.best.Measured), "promised", time.Duration(c.best.Promised),
		"now", time.Duration(c.best.Now), "best", time.Duration(c.best.Then), "verdict", d.Reason)
	if !d.Replan {
		return
	}
	s.door.log.Info("the schedule is to change", "why", d.Reason)
	schedule := c.best.Plan.ScheduleChoice().String()
	if c.best.InPlace && schedule != s.wished && len(schedule) <= gossip.MaxScheduleBytes {
		s.wished = schedule
		s.door.setWish(&gossip.ScheduleWish{Generation: s.generation, Schedule: schedule, Why: wire.Clip(d.Reason, gossip.MaxWhyBytes)})
		return
	}
	s.why, s.seen = d.Reason, c.seen // the coordinator cannot make this change, or did not
}

// planner returns the search for a next generation that is wanted for a reason: the same devices
// with the schedule that the watch found, if that is the reason, else a plan from the beginning.
func (s *scheduleWatch) planner(why string) func(planner.Input) (plan.Plan, plan.Reasons, error) {
	found, links, make, reselect := s.watched, s.links, s.door.planner.Make, s.door.planner.Reselect
	return func(in planner.Input) (plan.Plan, plan.Reasons, error) {
		if why != "" && why == found.why && in.Previous != nil {
			running := *in.Previous
			if choice, err := plan.ParseScheduleChoice(found.schedule); err == nil {
				if on, err := running.WithSchedule(choice); err == nil {
					running = on
				}
			}
			if r, err := reselect(in, running, found.seen); err == nil {
				return r.Plan, r.Reasons, nil
			}
		}
		in.Links = links
		return make(in)
	}
}
