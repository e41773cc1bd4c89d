package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// mostNamed are how many replicas a sentence names.
const mostNamed = 3

// roundView is the round of local steps under way as a node knows it, at a time.
type roundView struct {
	state consensus.State
	beats *gossip.Tracker
	now   time.Time
}

// inner returns the newest inner step of a replica, as its coordinator reports.
func (v roundView) inner(r plan.Replica) gossip.InnerStep {
	b, _ := v.beats.Last(plan.CoordinatorOf(v.state.Plan, r).Peer)
	if i := slices.IndexFunc(b.Inner, func(s gossip.InnerStep) bool { return s.Replica == r }); i >= 0 && b.Generation == v.state.Plan.Generation {
		return b.Inner[i]
	}
	return gossip.InnerStep{}
}

// alone returns what inner steps take by replica, in nanoseconds, where it is known.
func (v roundView) alone() map[plan.Replica]int64 {
	all := map[plan.Replica]int64{}
	for r := range v.state.Plan.Replicas {
		if took := v.inner(plan.Replica(r)).Nanos; v.state.Plan.Local != nil && took > 0 {
			all[plan.Replica(r)] = took
		}
	}
	return all
}

// ended reports whether a replica has ended its part of the round, and whose messages it lacks of those that are waited for.
func (v roundView) ended(r plan.Replica) (lacks []plan.Replica, ok bool) {
	round := v.state.Round
	if round.Gathered[r] != nil {
		return nil, true
	}
	b, _ := v.beats.Last(plan.CoordinatorOf(v.state.Plan, r).Peer)
	i := slices.IndexFunc(b.HandedIn, func(h gossip.HandedIn) bool {
		return h.Replica == r && h.Generation == v.state.Plan.Generation && h.From == round.From
	})
	if i < 0 {
		return nil, false
	}
	awaited := round.Awaited()
	lacks = slices.DeleteFunc(slices.Clone(b.HandedIn[i].Lacks), func(q plan.Replica) bool { return !slices.Contains(awaited, q) })
	return lacks, true
}

// ahead reports whether a replica that has ended its part makes inner steps of the next round, while messages travel.
func (v roundView) ahead(r plan.Replica) bool {
	step, end := v.inner(r).Step, v.state.Round.End
	return v.state.Run != nil && step >= end && step < v.state.Plan.Local.MergedAt(end, v.state.Run.Train.Steps)
}

// name returns what people call a replica: its number and the node of its coordinator.
func (v roundView) name(r plan.Replica) string { return replicaName(v.state, v.state.Plan, r) }

func replicaName(state consensus.State, p plan.Plan, r plan.Replica) string {
	if int(r) >= len(p.Replicas) {
		return fmt.Sprintf("replica %d", r)
	}
	return fmt.Sprintf("replica %d (%s)", r, state.NameOf(plan.CoordinatorOf(p, r).Peer))
}

// some joins the first of many names.
func some(all []string) string {
	if more := len(all) - mostNamed; more > 0 {
		all = append(slices.Clone(all[:mostNamed]), fmt.Sprintf("%d more", more))
	}
	if last := len(all) - 1; last > 0 {
		return strings.Join(all[:last], ", ") + " and " + all[last]
	}
	return strings.Join(all, "")
}

// replica returns what a replica does.
func (v roundView) replica(r plan.Replica) api.ReplicaStatus {
	p, round, inner := v.state.Plan, v.state.Round, v.inner(r)
	s := api.ReplicaStatus{
		Replica: r, Peer: plan.CoordinatorOf(p, r).Peer, Step: inner.Step, Loss: inner.Loss,
		State: api.ReplicaEnded, Text: "has ended with the plan",
	}
	if inner.Nanos > 0 && v.state.Run != nil {
		train := v.state.Run.Train
		s.TokensPerS = float64(p.Replicas[r].Micros*train.MicroBatch*v.state.Run.Model.Context) / (float64(inner.Nanos) / 1e9)
	}
	if round == nil {
		return s
	}
	s.Of = round.End - round.From
	s.Made = min(max(inner.Step, round.From)-round.From, s.Of)
	lacks, ended := v.ended(r)
	out := slices.IndexFunc(round.LeftOut, func(o rounds.LeftOut) bool { return o.Replica == r })
	switch ago, heard := v.beats.Ago(s.Peer, v.now); {
	case out >= 0:
		s.State, s.Text = api.ReplicaLeftOut, "is not waited for: "+withNames(round.LeftOut[out].Reason, v.state.NameOf)
	case ended && v.ahead(r):
		s.State, s.Text = api.ReplicaComputes, "makes inner steps of the next round while messages travel"
	case ended && len(lacks) > 0:
		s.Text = fmt.Sprintf("has ended its part, and waits for what %s learned", some(v.names(lacks)))
	case ended:
		s.Text = "has ended its part"
	case !heard:
		s.State, s.Text = api.ReplicaSilent, "was not heard of so far"
	case away(v.beats, s.Peer, v.now):
		s.State, s.Text = api.ReplicaSilent, fmt.Sprintf("not heard of for %s", plan.Duration(ago.Round(time.Second)))
	default:
		s.State, s.Text = api.ReplicaComputes, "makes inner steps"
	}
	return s
}

func (v roundView) names(all []plan.Replica) (names []string) {
	for _, r := range all {
		names = append(names, v.name(r))
	}
	return names
}

// replicas returns what each replica of a plan with local steps does.
func (v roundView) replicas() (all []api.ReplicaStatus) {
	if v.state.Plan.Local == nil {
		return nil
	}
	for r := range v.state.Plan.Replicas {
		all = append(all, v.replica(plan.Replica(r)))
	}
	return all
}

// waits says who waits for whom; empty while no replica has ended its part.
func (v roundView) waits() string {
	var ended, late, lacking []string
	for _, r := range v.state.Round.Awaited() {
		switch s := v.replica(r); {
		case v.ahead(r):
		case s.State != api.ReplicaEnded && s.State != api.ReplicaComputes:
			late = append(late, fmt.Sprintf("%s, %s", v.name(r), s.Text))
		case s.State == api.ReplicaComputes:
			late = append(late, fmt.Sprintf("%s, at %d of %d inner steps", v.name(r), s.Made, s.Of))
		default:
			ended = append(ended, v.name(r))
			if lacks, _ := v.ended(r); len(lacks) > 0 {
				lacking = append(lacking, fmt.Sprintf("%s lacks what %s learned", v.name(r), some(v.names(lacks))))
			}
		}
	}
	waits := "waits"
	if len(ended) > 1 {
		waits = "wait"
	}
	switch {
	case len(ended) == 0:
		return ""
	case len(late) > 0:
		return fmt.Sprintf("%s %s for %s", some(ended), waits, some(late))
	case len(lacking) > 0:
		return "messages are on their way: " + some(lacking)
	}
	return "all have what the others learned: the log says who counts"
}

// round returns the round under way; nil without one.
func (v roundView) round() *api.Round {
	r := v.state.Round
	if v.state.Plan.Local == nil || r == nil {
		return nil
	}
	out := &api.Round{From: r.From, End: r.End, Closed: r.Closed, Text: stepsText(r.From, r.End)}
	if r.Closed {
		out.Text += ", ended early"
	}
	if waits := v.waits(); waits != "" {
		out.Text += ": " + waits
	} else {
		out.Text += ": all replicas make inner steps"
	}
	return out
}

// standsStill says for whom the replicas of a node wait, which have made no step for a time; empty where one of them makes inner steps, and while
// that is usual.
func (v roundView) standsStill(self plan.PeerID, still time.Duration) string {
	p, round := v.state.Plan, v.state.Round
	if p.Local == nil {
		return ""
	}
	if b, _ := v.beats.Last(self); len(b.Met) > 0 {
		still -= time.Duration(b.Met[0].WaitedNanos) * 3 / 2
	}
	if still <= 0 {
		return ""
	}
	if round == nil {
		return "the plan has ended with its newest outer step, and another one follows"
	}
	here := false
	for r, pipe := range p.Replicas {
		if slices.ContainsFunc(pipe.Stages, func(at plan.Placement) bool { return at.Peer == self }) {
			if _, ended := v.ended(plan.Replica(r)); !ended || v.ahead(plan.Replica(r)) {
				return ""
			}
			here = true
		}
	}
	if !here {
		return ""
	}
	waits := v.waits()
	if waits == "" {
		waits = "the others make inner steps"
	}
	return fmt.Sprintf("the outer step of %s is not made yet: %s", stepsText(round.From, round.End), waits)
}

// ends says what is done once the newest step is the run's last one; else nothing.
func (v roundView) ends(newest plan.Step) string {
	state := v.state
	if m := state.Merged; m != nil && m.Generation == state.Plan.Generation {
		newest = max(newest, m.To)
	}
	if state.Run == nil || state.Finished || newest < state.Run.Train.Steps {
		return ""
	}
	return fmt.Sprintf("all %d steps are made: the finished model is evaluated and saved", state.Run.Train.Steps)
}

// stepsText names the steps after one up to another.
func stepsText(from, to plan.Step) string {
	if to <= from+1 {
		return fmt.Sprintf("step %d", to)
	}
	return fmt.Sprintf("steps %d to %d", from+1, to)
}
