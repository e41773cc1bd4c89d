package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// A plan's reasons in the log are bounded in count and length.
const (
	maxReasons     = 64
	maxReasonBytes = 512
)

// nextPlan looks for the plan of the next generation, before it is needed where that can be foreseen.
type nextPlan struct {
	search   spawn
	ahead    *ahead // the plans for the loss of single members
	schedule *scheduleWatch
	now      func() time.Time // by which members are left out
	log      *slog.Logger
	// made is the next plan, for an occasion, and those that are left then.
	occasion occasion
	left     string
	made     *future[made]
	begun    time.Time // when the look for it began
	// repaired is the plan in force without what is lost of it, begun where the search for the next one takes long.
	repaired *future[made]
	// suspect is the process whose loss was prepared for last.
	suspect process
}

// occasion names what a new plan depends on. A plan for another one is out of date. It does not depend on the
// checkpoint that it starts from.
type occasion struct {
	roster
	why string
}

// made is the result of a search for the next plan.
type made struct {
	plan  plan.Plan
	lines []string // why it is as it is
	err   error
	took  time.Duration
}

// repairAfter is how long a search may take before the plan in force is repaired instead: each change of plan costs some seconds, so a better
// plan is worth a moment.
const repairAfter = time.Second

// repair returns the plan in force without what is lost, once the search that get began has taken long: the steps wait. Where nothing is
// lost, or too much, there is nothing but the search.
func (n *nextPlan) repair(m moment) (made, bool) {
	if n.repaired == nil && n.schedule.Planner.Repair != nil && time.Since(n.begun) >= repairAfter {
		rest, repair := without(m.state, m.silent), n.schedule.repairer()
		out := leftOut(rest, n.now())
		n.repaired = begin(n.search, func(ctx context.Context) made { return makePlan(ctx, rest, out, repair) })
	}
	next, ok := n.repaired.get()
	return next, ok && next.err == nil
}

// get returns the next generation for a reason once a search has made it. It does not wait for the search. Members that
// are silent for longer than they ever are have no part in it.
func (n *nextPlan) get(m moment, why string) (made, bool) {
	rest := without(m.state, m.silent)
	out := leftOut(rest, n.now())
	o := occasion{n.schedule.rosterOf(m, append(out, m.silent...)), why}
	if n.occasion == o && n.made != nil {
		return n.made.get()
	}
	left, found := describe(rest, out).without(""), n.schedule.watched.why
	// Of who is silent first, and then gone, the same plan is the answer.
	same := n.made != nil && n.occasion.generation == o.generation && n.occasion.ratios == o.ratios && n.left == left && why != found && n.occasion.why != found
	if n.occasion, n.left = o, left; !same {
		n.begun, n.repaired, n.ahead.figures = time.Now(), nil, n.schedule.figures()
		if n.made = n.ahead.take(rest, out); n.made == nil {
			search := n.schedule.planner(why)
			n.made = begin(n.search, func(ctx context.Context) made { return makePlan(ctx, rest, out, search) })
		}
	}
	return n.made.get()
}

// drop forgets a plan that was proposed: a profile may change without the roster's epoch.
func (n *nextPlan) drop() { n.made, n.repaired = nil, nil }

// prepare has the next plan looked for, as it will be once a suspect is gone, if there is one.
func (n *nextPlan) prepare(m moment, why string, suspect plan.PeerID) {
	if suspect != "" {
		m.state = n.stateWithout(m.state, suspect)
	}
	n.get(m, why)
}

// foresee has plans looked for that follow the loss of another member than self.
func (n *nextPlan) foresee(state consensus.State, self plan.PeerID) {
	n.ahead.figures = n.schedule.figures()
	others := slices.DeleteFunc(state.Plan.Peers(), func(p plan.PeerID) bool { return p == self })
	n.ahead.look(state, leftOut(state, n.now()), others, n.search, n.schedule.planner(""))
}

// foreseen returns the members whose process has ended and for whose loss there is a plan.
func (n *nextPlan) foreseen(state consensus.State, members []memberView) map[plan.PeerID]bool {
	ready := map[plan.PeerID]bool{}
	for _, m := range members {
		if m.Ended {
			ready[m.Peer] = n.ahead.ready(state, leftOut(state, n.now()), m.Peer)
		}
	}
	return ready
}

// stateWithout returns the state that the log comes to when it marks a suspected member gone next.
func (n *nextPlan) stateWithout(state consensus.State, suspect plan.PeerID) consensus.State {
	m, _ := state.Member(suspect)
	if id := (process{suspect, m.ProcessEpoch}); n.suspect != id {
		n.suspect = id
		n.log.Info("a node is silent: looking for a plan without it", "peer", suspect)
	}
	next, err := consensus.Apply(state, consensus.SetMemberState{Peer: suspect, ProcessEpoch: m.ProcessEpoch, State: consensus.Gone})
	if err != nil {
		n.log.Debug("no plan ahead", "cause", err)
	}
	return next
}

// makePlan searches for the plan of the next generation without the members that are left out.
func makePlan(ctx context.Context, state consensus.State, out []consensus.Member, search searchFunc) made {
	begun := time.Now()
	p, reasons, in, told, err := searchWithout(ctx, state, out, search)
	if errors.Is(err, planner.ErrNoFit) { // better a plan that may break than none
		p, reasons, in, told, err = searchWithout(ctx, state.BelieveMemory(), out, search)
	}
	lines := told
	if asked := state.Run.Train; asked.Stages != in.Run.Train.Stages || asked.Replicas != in.Run.Train.Replicas {
		lines = append(lines, fmt.Sprintf("the cut that was asked for needs more than %s, which is what there is", plan.Count(devicesOf(in), "device")))
	}
	return made{p, append(lines, reasons.Lines()...), err, time.Since(begun)}
}

// reasons returns why the plan is made and why it is as it is, in the bounds of the log.
func (m made) reasons(why string) []string {
	lines := append([]string{why}, m.lines...)
	lines = lines[:min(len(lines), maxReasons)]
	for i, line := range lines {
		lines[i] = wire.Clip(line, maxReasonBytes)
	}
	return lines
}
