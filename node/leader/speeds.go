package leader

import (
	"context"
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader/grace"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// idleFor is how long a device without a stage counts with the speed that it showed with one. Its node measures it again meanwhile.
const idleFor = 2 * time.Minute

// speeds follows how long devices compute against what their profiles say. Each node does so, whoever leads: the next leader
// would else go back to plans by the profiles.
type speeds struct {
	beats *gossip.Tracker
	seen  planner.Ratios
	// ratios has the speeds that plans count on besides profiles.
	ratios  []planner.Ratio
	running plan.Plan
	planned map[plan.WorkerID]planner.Work // what its devices are to do in a step; nil where that is not known yet
	newest  plan.Step
	slower  slower
	late    grace.Late
	idle    map[plan.WorkerID]time.Time // since when devices that count with another speed have had no stage
}

// look takes in the newest step of a state's plan, unless a substitute computes two parts. It reports whether plans count on other speeds
// than before.
func (s *speeds) look(state consensus.State, now time.Time) bool {
	if state.Run == nil || state.Plan.Generation == 0 {
		return false
	}
	rates := map[plan.WorkerID]planner.Work{}
	for _, c := range state.Counted() {
		for _, d := range c.Profile.Devices {
			rates[plan.WorkerID{Peer: c.Peer, Device: d.Name}] = planner.Work{Rate: d.MatMulFLOPS, Believed: c.Owner}
		}
	}
	s.follow(state.Plan)
	s.late.Look(state, s.beats, now)
	if work, step, news := s.work(); news && state.Substitute == nil && !state.Paused() {
		s.take(state, rates, work, step)
	}
	s.forget(rates, now)
	before := s.ratios
	s.ratios = nil
	for _, w := range s.seen.Known() {
		if r := s.seen.Of(w, rates[w].Rate); rates[w].Rate > 0 && r.Permille != planner.WholeRatio {
			s.ratios = append(s.ratios, r)
		}
	}
	return !slices.Equal(before, s.ratios)
}

// follow begins anew with another plan, and with another schedule of the same one.
func (s *speeds) follow(p plan.Plan) {
	running, _ := s.beats.Running(p)
	if s.running.Generation != p.Generation {
		s.newest, s.slower, s.late = p.Start+1, slower{generation: p.Generation}, grace.Late{} // the first step warms up
	} else if s.running.ScheduleChoice().String() == running.ScheduleChoice().String() {
		return
	}
	s.running, s.planned = running, nil
}

// work returns what members say of their newest steps on the schedule that runs, and the step that most of them have reached. It is news
// where that is a new one, or where a member has become slower since. Replicas with local steps each have their own newest step.
func (s *speeds) work() (work []planner.Work, step plan.Step, news bool) {
	schedule, said := s.running.ScheduleChoice().String(), s.beats.Slower(s.running)
	var reached []plan.Step
	for _, peer := range s.running.Peers() {
		b, _ := s.beats.Last(peer)
		newest, other := b.Newest(), b.Schedule != "" && b.Schedule != schedule && s.running.Local == nil // which has it in its own words
		if b.Generation != s.running.Generation || newest <= s.running.Start+1 || other {
			continue
		}
		reached = append(reached, newest)
		for w, nanos := range planner.Computed(s.running, b.Measured(s.running).Stages) {
			if w.Peer == peer && nanos > 0 {
				work = append(work, planner.Work{Worker: w, ReportedNanos: nanos, Slower: said[peer] > s.slower.by[peer]})
			}
		}
	}
	if len(reached) == 0 {
		return nil, 0, false
	}
	slices.Sort(reached)
	step, work = reached[(len(reached)-1)/2], s.withLate(work)
	return work, step, step > s.newest || slices.ContainsFunc(work, func(w planner.Work) bool { return w.Slower })
}

// withLate adds what the devices of replicas have shown for which others have waited. Of one that has not ended its inner step that is how long it has taken.
func (s *speeds) withLate(work []planner.Work) []planner.Work {
	for r, underWay := range s.late.Due {
		for _, at := range s.running.Replicas[r].Stages {
			i := slices.IndexFunc(work, func(w planner.Work) bool { return w.Worker == at.Worker() })
			if i < 0 && underWay == 0 {
				continue
			}
			least := underWay.Nanoseconds()
			if i < 0 {
				work, i = append(work, planner.Work{Worker: at.Worker()}), len(work)
			} else if b, _ := s.beats.Last(at.Peer); b.StepNanos > 0 { // the others of its replica wait, too
				least = int64(float64(work[i].ReportedNanos) * float64(underWay) / float64(b.StepNanos))
			}
			work[i].ReportedNanos, work[i].Slower = max(work[i].ReportedNanos, least), true
		}
	}
	return work
}

// take compares a step with what the plan's devices were to do in it.
func (s *speeds) take(state consensus.State, rates map[plan.WorkerID]planner.Work, work []planner.Work, step plan.Step) {
	if s.planned == nil {
		computing, err := planner.Computing(NextInput(state), s.running)
		if err != nil {
			return // such as a plan whose device is lost
		}
		s.planned = map[plan.WorkerID]planner.Work{}
		for w, nanos := range computing {
			s.planned[w] = planner.Work{Rate: rates[w].Rate, Believed: rates[w].Believed, PlannedNanos: nanos}
		}
	}
	for i, w := range work {
		planned := s.planned[w.Worker]
		work[i].Rate, work[i].Believed, work[i].PlannedNanos = planned.Rate, planned.Believed, planned.PlannedNanos
	}
	s.seen.Note(step, work)
	s.newest, s.slower.by, s.late.Due = max(s.newest, step), s.beats.Slower(s.running), nil
}

// forget counts on the profiles of devices that are gone, and of those that have had no stage for long.
func (s *speeds) forget(rates map[plan.WorkerID]planner.Work, now time.Time) {
	idle, placed := map[plan.WorkerID]time.Time{}, s.running.Workers()
	for _, w := range s.seen.Known() {
		_, there := rates[w]
		if there && slices.Contains(placed, w) {
			continue
		}
		since, before := s.idle[w]
		if !before {
			since = now
		}
		if there && now.Sub(since) <= idleFor {
			idle[w] = since
		} else {
			s.seen.Forget(w)
		}
	}
	s.idle = idle
}

// lasted returns for how many steps up to the newest one devices have shown their speeds, since plans last counted on others; 0
// where that was before the plan.
func (s *speeds) lasted(p plan.Plan, newest plan.Step) plan.Step {
	if from := s.seen.Changed(); from > p.Start && newest >= from {
		return newest - from + 1
	}
	return 0
}

// search has a search for plans count on the speeds that devices have shown by now.
func (s *speeds) search(search searchFunc) searchFunc {
	ratios := s.ratios
	return func(ctx context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
		in.Ratios = ratios
		return search(ctx, in)
	}
}
