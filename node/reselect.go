package node

import (
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/wire"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// windowSteps are the steps of which the middle times count as one look at the schedule.
const windowSteps = 4

// scheduleWatch is what the planner remembers of how the running schedule does.
type scheduleWatch struct {
	generation plan.Generation
	course     string    // that runs
	newest     plan.Step // sampled
	samples    []planner.Seen
	watch      planner.Watch
	// why a new plan is to change the schedule; with seen, its times.
	why  string
	seen planner.Seen
	// wanted is the course that the plan is to take.
	wanted string
	// links are those of the newest window, of whatever generation: the plan behind a course
	// that a commit changed has them too, or it would begin with the course before.
	links []planner.LinkSeen
}

// look takes in the newest step, if it is a new one. Where another course is better it is
// made known to the coordinator; where it takes a new plan, look gives the reason for one.
func (s *scheduleWatch) look(n *Node, state consensus.State) string {
	if s.generation != state.Plan.Generation {
		*s = scheduleWatch{generation: state.Plan.Generation, course: state.Plan.ScheduleChoice().String(), newest: state.Plan.Start + 1, links: s.links} // the first step warms up
		n.setWanted(nil)
	}
	plan, step := n.beats.Running(state.Plan)
	if course := plan.ScheduleChoice().String(); course != s.course {
		n.log.Info("the schedule has changed", "step", step, "from", s.course, "to", course)
		*s = scheduleWatch{generation: s.generation, course: course, newest: step, wanted: s.wanted, links: s.links}
	}
	if s.why != "" || state.Paused() || step <= s.newest {
		return s.why
	}
	sample, ok := n.beats.Seen(plan)
	if !ok {
		return ""
	}
	s.newest = step
	if s.samples = append(s.samples, sample); len(s.samples) == windowSteps {
		s.decide(n, state, plan)
	}
	return s.why
}

// decide ends a window.
func (s *scheduleWatch) decide(n *Node, state consensus.State, plan plan.Plan) {
	seen := planner.Median(s.samples)
	s.samples, s.links = s.samples[:0], seen.Links
	r, err := planner.Reselect(planInput(state), plan, seen)
	if err != nil {
		n.log.Debug("schedule not compared", "cause", err)
		return
	}
	d := s.watch.Note(plan.Generation, r, state.Run.Train.Steps-s.newest)
	n.log.Debug("schedule compared", "step", s.newest, "measured", time.Duration(r.Seen), "promised", time.Duration(r.Promised),
		"now", time.Duration(r.Now), "best", time.Duration(r.Then), "verdict", d.Reason)
	if !d.Replan {
		return
	}
	n.log.Info("the schedule is to change", "why", d.Reason)
	course := r.Plan.ScheduleChoice().String()
	if r.InPlace && course != s.wanted && len(course) <= gossip.MaxScheduleBytes {
		s.wanted = course
		n.setWanted(&gossip.ScheduleWish{Generation: plan.Generation, Schedule: course, Why: wire.Clip(d.Reason, gossip.MaxWhyBytes)})
		return
	}
	s.why, s.seen = d.Reason, seen // a commit cannot make this change, or did not
}

// running is a plan on the course that it has by now.
func (s *scheduleWatch) running(p plan.Plan) plan.Plan {
	course, err := plan.ParseScheduleChoice(s.course)
	if err != nil {
		return p
	}
	on, err := p.WithSchedule(course)
	if err != nil {
		return p
	}
	return on
}

// make gives the next generation: the same devices with the schedule that the watch found, if
// that is the reason for it.
func (s *scheduleWatch) make(in planner.Input, why string) (plan.Plan, plan.Reasons, error) {
	if why != "" && why == s.why && in.Previous != nil {
		if r, err := planner.Reselect(in, s.running(*in.Previous), s.seen); err == nil {
			return r.Plan, r.Reasons, nil
		}
	}
	in.Links = s.links
	return planner.Make(in)
}
