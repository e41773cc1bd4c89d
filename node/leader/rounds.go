package leader

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader/grace"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/planner/rounds"
	"pnode/swarm/consensus"
)

// meeting describes the outer step that replicas with local steps make next, or that their plan has ended with; zero of other plans.
type meeting struct {
	// Propose ends the round early, or leaves a replica out.
	Propose consensus.Entry
	// Meets: the round under way may yet end with an outer step. Saving: what the plan's last one has made is being saved.
	Meets, Saving bool
	// Over says that the plan has ended with an outer step, which is saved, Lost that nothing comes of the newest round. Both say why.
	Over, Lost string
}

// roundWatch follows the rounds of the current plan. The zero value of all but beats has seen none.
type roundWatch struct {
	beats *gossip.Tracker
	grace grace.Watch
	// ended is when this leader first saw that the plan of a generation had ended with an outer step.
	ended seenPlan
	// exchange is how long messages of the plan of a generation are on their way.
	exchange struct {
		generation plan.Generation
		takes      time.Duration
	}
}

// exchangeOf returns exchangeTime of a state's plan, which it asks for once.
func (w *roundWatch) exchangeOf(s consensus.State) time.Duration {
	if w.exchange.generation != s.Plan.Generation {
		w.exchange.generation, w.exchange.takes = s.Plan.Generation, exchangeTime(s)
	}
	return w.exchange.takes
}

// look takes in how a round goes, where some replicas cannot go on.
func (w *roundWatch) look(m moment, unable map[plan.Replica]string) meeting {
	state, step := m.state, w.beats.StepTime(m.state.Plan)
	patience := savePatience(step, m.patience)
	switch last := state.Merged; {
	case state.Plan.Local == nil:
		return meeting{}
	case state.Round != nil:
		r, unable := *state.Round, withBlamed(state, unable)
		e, lost := w.grace.Next(grace.View{
			Now: m.now, Plan: state.Plan, Round: r, Unable: unable, Said: w.said(state),
			Takes: time.Duration(r.End-r.From) * min(step, slowStep), Exchange: w.exchangeOf(state), Patience: patience,
			Overlap: overlap(state, r.From, step),
		})
		if lost {
			return meeting{Lost: fmt.Sprintf("the round after step %d cannot end: too few replicas are left, or agree", r.From)}
		}
		return meeting{Propose: e, Meets: true}
	case last == nil || !last.Last || last.To == state.Run.Train.Steps:
		return meeting{}
	default:
		return w.end(state, *last, unable, m.now, patience+overlap(state, last.To, step))
	}
}

// overlap returns for how long replicas of a state's plan that end a round with a step make inner steps of the next one before they make the outer step.
func overlap(s consensus.State, end plan.Step, step time.Duration) time.Duration {
	if end == s.Plan.Start {
		return 0
	}
	return time.Duration(s.Plan.Local.MergedAt(end, s.Run.Train.Steps)-end) * min(step, slowStep)
}

// end takes in how a plan ends with its last outer step: that is saved, and what replicas that go on have for themselves.
func (w *roundWatch) end(state consensus.State, last plan.Merged, unable map[plan.Replica]string, now time.Time, patience time.Duration) meeting {
	if w.ended.generation != state.Plan.Generation {
		w.ended = seenPlan{state.Plan.Generation, now}
	}
	saved, early := state.Checkpoint.Step >= last.To, now.Sub(w.ended.at) <= patience
	saves := func(q plan.Replica) bool {
		has := func(o consensus.OwnState) bool { return o.Replica == q && o.Whole(*state.Run) }
		return unable[q] == "" && !(saved && slices.ContainsFunc(state.Checkpoint.Own, has))
	}
	switch {
	case early && slices.ContainsFunc(last.Counted(), saves):
		return meeting{Saving: true}
	case saved:
		return meeting{Over: overText(state, last)}
	}
	return meeting{Lost: fmt.Sprintf("the outer step of step %d was not saved", last.To)}
}

// overText says why a plan has ended with an outer step.
func overText(s consensus.State, last plan.Merged) string {
	if i := slices.IndexFunc(last.Contradictions, func(c plan.Contradiction) bool { return !c.Hasty() }); i >= 0 {
		c := last.Contradictions[i]
		return fmt.Sprintf("replicas %d and %d contradict each other on the messages of the round up to step %d, for which replicas %v had no part in the outer step", c.By, c.Of, last.To, last.Disputed)
	}
	if blamed := withBlamed(s, nil); len(blamed) > 0 {
		return blamed[slices.Min(slices.Collect(maps.Keys(blamed)))]
	}
	for r, part := range last.Parts {
		if part.Steps == 0 {
			return fmt.Sprintf("replica %d had no part in the outer step of step %d", r, last.To)
		}
	}
	return fmt.Sprintf("the plan has ended with the outer step of step %d", last.To)
}

// said returns the words of the replicas' coordinators, each of its own replica.
func (w *roundWatch) said(state consensus.State) (all []gossip.HandedIn) {
	for r := range state.Plan.Replicas {
		r := plan.Replica(r)
		b, _ := w.beats.Last(state.Substitute.Carrier(plan.CoordinatorOf(state.Plan, r).Peer))
		if i := slices.IndexFunc(b.HandedIn, func(h gossip.HandedIn) bool { return h.Replica == r }); i >= 0 {
			all = append(all, b.HandedIn[i])
		}
	}
	return all
}

// unknownExchange is how long the messages of a round are believed to be on their way where nobody can tell.
const unknownExchange = time.Minute

// exchangeTime returns how long the messages of a round of a state's plan are on their way, by what its members say of themselves and their lines, those that are gone or
// leave among them.
func exchangeTime(state consensus.State) time.Duration {
	in := NextInput(state)
	in.Members = slices.Clone(in.Members)
	for i := range in.Members {
		in.Members[i].Draining = false
	}
	for _, p := range state.Plan.Peers() {
		if !slices.ContainsFunc(in.Members, func(m planner.Member) bool { return m.Peer == p }) {
			m, _ := state.Member(p)
			in.Members = append(in.Members, planner.Member{Peer: p, Profile: m.Profile})
		}
	}
	nanos, err := planner.OuterStep(in, state.Plan)
	if err != nil {
		return unknownExchange // such as of a member that the log has forgotten
	}
	return min(time.Duration(nanos), mostRedo)
}

// withBlamed adds the replicas that have a member which the log has left out of plans in this one.
func withBlamed(s consensus.State, unable map[plan.Replica]string) map[plan.Replica]string {
	all := maps.Clone(unable)
	for _, b := range s.Blames {
		if b.Generation != s.Plan.Generation || b.Until == 0 || b.Kind == plan.LossJump {
			continue
		}
		for r, pipe := range s.Plan.Replicas {
			if slices.ContainsFunc(pipe.Stages, func(at plan.Placement) bool { return at.Peer == b.Peer }) {
				if all == nil {
					all = map[plan.Replica]string{}
				}
				all[plan.Replica(r)] = plan.Clip(s.NameOf(b.Peer)+" is left out of plans "+s.Told(b), maxReasonBytes)
			}
		}
	}
	return all
}

// unableOf returns which replicas of the plan cannot go on, and why: those with a member that is gone, was started again or gave the plan up.
func unableOf(v view) map[plan.Replica]string {
	why, absent := map[plan.Replica]string{}, v.absent()
	for _, p := range v.Stall.By {
		absent[p] = cmp.Or(absent[p], "has given the plan up")
	}
	for _, m := range v.Members {
		if m.Ended {
			absent[m.Peer] = "is gone: its process has ended"
		}
	}
	for r, pipe := range v.Plan.Replicas {
		for _, at := range pipe.Stages {
			if a := absent[at.Peer]; a != "" {
				why[plan.Replica(r)] = plan.Clip(v.nameOf(at.Peer)+" "+a, maxReasonBytes)
			}
		}
	}
	return why
}

// awaited has the log end a round early, or go on without a replica.
func awaited(v view) (verdict, bool) { return verdict{Propose: v.Propose}, v.Propose != nil }

// met waits for the outer step that the living make without who is lost, or with which a pause begins, and for its checkpoint: the next plan begins with it.
func met(v view) (verdict, bool) {
	why := v.absence()
	switch {
	case v.Saving || v.Meets && (v.broken() || v.Paused):
		return verdict{Prepare: why != "", Why: why}, true
	case v.Over != "" && !v.Paused && why == "":
		return verdict{Plan: true, Why: v.Over}, true
	case v.Lost != "" && !v.broken():
		return verdict{Plan: true, Why: v.Lost}, true
	}
	return verdict{}, false
}

// together returns a plan as a state has it begin: with the samples and the states of replicas that the newest checkpoint has. A search ahead knew an
// older one.
func together(state consensus.State, p plan.Plan) plan.Plan {
	p.Start, p.Stream = state.Checkpoint.Step, state.Checkpoint.Stream
	if !state.Run.Train.Sync.Local {
		return p
	}
	p.Replicas = slices.Clone(p.Replicas)
	for r := range p.Replicas {
		p.Replicas[r].Own = nil
	}
	rounds.Begin(&p, ownStates(state))
	return p
}

// ownWords says what a plan loses of what replicas with local steps had for themselves at the newest checkpoint, and what its replicas begin with in place of
// that.
func ownWords(s consensus.State, p plan.Plan) (lines []string) {
	uses := func(q plan.Replica) bool {
		return slices.ContainsFunc(p.Replicas, func(pipe plan.Pipeline) bool { return pipe.Own != nil && pipe.Own.Replica == q && !pipe.Own.Copied })
	}
	for _, o := range s.Checkpoint.Own {
		if uses(o.Replica) {
			continue
		}
		lines = append(lines, fmt.Sprintf("what replica %d had for itself at step %d, the state of its optimizer and what its messages had left, goes on in no replica", o.Replica, s.Checkpoint.Step))
	}
	for r, pipe := range p.Replicas {
		if pipe.Own != nil && pipe.Own.Copied && p.Local != nil {
			lines = append(lines, fmt.Sprintf("replica %d begins with a copy of the state of replica %d's optimizer at step %d", r, pipe.Own.Replica, pipe.Own.Step))
		}
	}
	return lines
}
