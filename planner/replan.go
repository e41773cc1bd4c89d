package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/change"
	"pnode/planner/plan"
)

// ReplanPercent is how much faster a step must become for a running plan to be replaced: predictions are off by some
// percent.
const ReplanPercent = 5

// What package change says, for the planner's callers.
type (
	// Decision is an answer with its reason.
	Decision = change.Decision
	// Change compares a plan that runs with one that would take its place.
	Change = change.Change
	// Outlook says for how long the next plan is of use, and how long earlier changes have stopped the steps.
	Outlook = change.Outlook
	// Stop is how long an earlier change stopped them.
	Stop = change.Stop
	// Spare is a member without a stage in a plan that runs.
	Spare = change.Spare
)

// ShouldReplan decides whether the current plan should be replaced, given the members of
// now: at once when there is none, when a member of it is gone or leaving, or when it has other replicas or stages than
// were asked for, which devices were missing for; otherwise when the best plan's predicted step is at least ReplanPercent
// faster, if that [Decision.Pays]. Where devices compute slower or faster than their profiles say, a commit can give the replicas of the
// current plan other shares: that counts as the current plan. Errors are Make's: then there is nothing to change to.
func ShouldReplan(ctx context.Context, in Input, current plan.Plan) (Decision, error) {
	if current.Generation == 0 {
		return Decision{Replan: true, Reason: "there is no plan yet"}, nil
	}
	for _, peer := range current.Peers() {
		switch i := slices.IndexFunc(in.Members, func(m Member) bool { return m.Peer == peer }); {
		case i < 0:
			return Decision{Replan: true, Reason: fmt.Sprintf("%s is gone", peer.Short())}, nil
		case in.Members[i].Draining:
			return Decision{Replan: true, Reason: fmt.Sprintf("%s is leaving", in.Members[i].label())}, nil
		}
	}
	in.Previous = &current
	s, best, others, err := decide(ctx, in)
	if err != nil {
		return Decision{}, err
	}
	s, best, others = orFewer(ctx, in, s, best, others)
	if s.yields == "" && !cutAsAsked(current, in.Run.Train) {
		return Decision{Replan: true, Reason: "the replicas and stages that were asked for are possible again"}, nil
	}
	now, err := s.predict(current)
	if errors.Is(err, plan.ErrBadPlan) {
		return Decision{Replan: true, Reason: fmt.Sprintf("the plan cannot go on: %v", err)}, nil
	}
	if err != nil {
		return Decision{}, err
	}
	if shared, err := s.reshared(current); err == nil && len(in.Ratios) > 0 && current.Local == nil {
		now.Step = min(now.Step, shared.Step)
	}
	then := best.step()
	gain := max(0, int64(now.Step-then)) * 1000 / int64(max(now.Step, 1))
	text := fmt.Sprintf("a new plan's step takes %s instead of %s, %s less", plan.Time(then), plan.Time(now.Step), plan.Permille(gain))
	c := Change{Now: now.Step, Then: then}
	c.Bytes, c.Move = s.moved(best.layout.Rows)
	d := Decision{Reason: text, Change: c, Spares: spares(s.problem, current, now.Step, append([]*candidate{best}, others...))}
	if d.Replan = gain >= ReplanPercent*10; !d.Replan {
		d.Reason += fmt.Sprintf("; a change needs %d%%", ReplanPercent)
	}
	return d, nil
}

// spares returns the members with devices that the current plan does without, each with the quickest candidates that use it and that do not.
// A step of the current plan takes now.
func spares(p *problem, current plan.Plan, now schedule.Nanos, found []*candidate) (all []Spare) {
	own := map[plan.PeerID][]int{}
	var peers []plan.PeerID
	for d, device := range p.devices {
		if !current.Places(device.peer) {
			if own[device.peer] == nil {
				peers = append(peers, device.peer)
			}
			own[device.peer] = append(own[device.peer], d)
		}
	}
	for _, peer := range peers {
		spare := Spare{Peer: peer, Without: now}
		for _, k := range found {
			switch step := k.step(); {
			case !slices.ContainsFunc(own[peer], k.uses):
				spare.Without = min(spare.Without, step)
			case spare.With == 0 || step < spare.With:
				spare.With = step
			}
		}
		all = append(all, spare)
	}
	return all
}

// cutAsAsked reports whether a plan has the replicas and the stages that the run asks for; 0 asks for nothing. Copies of the
// model on the same devices are one replica here.
func cutAsAsked(p plan.Plan, asked plan.TrainSpec) bool {
	one := map[plan.WorkerID]bool{}
	for _, at := range p.Replicas[0].Stages {
		one[at.Worker()] = true
	}
	cut := shape{len(p.Workers()) / len(one), len(one)}
	return (asked.Replicas == 0 || cut.replicas == asked.Replicas) && (asked.Stages == 0 || cut.stages == asked.Stages)
}

const (
	// DriftPercent is by how much a step must be off its prediction before another schedule
	// is considered, GainPercent how much less one must promise.
	DriftPercent = 20
	GainPercent  = 10
	// driftWindows counts windows in a row that must agree at first: noise does not.
	driftWindows = 3
)

// Watch follows reselections window by window and decides when to change the schedule. The
// zero value has seen nothing.
type Watch struct {
	generation plan.Generation
	off        int // windows in a row
	// slowed counts the slow-downs that were answered in the generation.
	slowed int
}

// mostSlowed bounds how often the windows that a change needs are doubled.
const mostSlowed = 4

// windows returns how many windows in a row must agree. Each slow-down that was answered doubles them for changes in place:
// what was slow and is fast again has to stay so before it gets its work back, the longer the more often that happened.
func (w *Watch) windows(r Reselection) int {
	if !r.InPlace {
		return driftWindows
	}
	return driftWindows << min(w.slowed, mostSlowed)
}

// Changed notes that the schedule has changed: windows of before say nothing of it.
func (w *Watch) Changed() { w.off = 0 }

// Slowed decides at once where a stage or link takes much longer than it used to, for a change that a commit alone can
// make.
func (w *Watch) Slowed(current plan.Generation, r Reselection) Decision {
	if w.generation != current {
		*w = Watch{generation: current}
	}
	if now := r.usual(); !r.InPlace || !gains(now, r.Then) {
		return Decision{Reason: fmt.Sprintf("slower, but no other schedule that a commit can change to is %d%% better: %s instead of %s", GainPercent, plan.Time(r.Then), plan.Time(now))}
	}
	w.off = 0
	w.slowed++
	return Decision{Replan: true, Reason: r.Why}
}

// Note takes a window in and decides, with what a change that a commit alone cannot make would cost.
func (w *Watch) Note(current plan.Generation, r Reselection, o Outlook) Decision {
	if w.generation != current {
		*w = Watch{generation: current}
	}
	no := func(format string, args ...any) Decision {
		w.off = 0
		return Decision{Reason: fmt.Sprintf(format, args...)}
	}
	now := r.usual()
	pays, cost := Change{Now: now, Then: r.Then}.Pays(o)
	switch {
	case !r.Reshared && r.asPromised():
		return no("a step takes %s as predicted, %s", plan.Time(r.Measured), plan.Time(r.Promised))
	case !gains(now, r.Then):
		return no("a step takes %s, predicted were %s; no other schedule is %d%% better", plan.Time(r.Measured), plan.Time(r.Promised), GainPercent)
	case !r.InPlace && !pays:
		return no("another schedule gains %s a step: %s", plan.Time(now-r.Then), cost)
	}
	if w.off++; w.off < w.windows(r) {
		return Decision{Reason: fmt.Sprintf("%d of %d: %s", w.off, w.windows(r), r.Why)}
	}
	return Decision{Replan: true, Reason: r.Why}
}

// asPromised reports whether a step takes about what was predicted: then nothing is to change.
func (r Reselection) asPromised() bool {
	return max(r.Measured-r.Promised, r.Promised-r.Measured)*100 < r.Promised*DriftPercent
}

// AsPredicted reports whether a step takes about as long as was predicted. One that takes longer has to do so by its model with measured times, too.
func (r Reselection) AsPredicted() bool {
	usual := r.usual()
	return max(usual-r.Promised, r.Promised-usual)*100 < r.Promised*GainPercent
}

// usual returns what a step of the schedule that runs counts as: the time that it took where that is
// less than its model says. A model that is off promises too much.
func (r Reselection) usual() schedule.Nanos { return min(r.Now, r.Measured) }

// gains reports whether a step is shorter by a margin.
func gains(now, then schedule.Nanos) bool { return (now-then)*100 >= now*GainPercent }
