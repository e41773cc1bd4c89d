package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// decideEvery is how often the planner looks whether something has to change.
const decideEvery = 500 * time.Millisecond

// proposeTimeout bounds one proposal; a planner that cannot commit loses its term.
const proposeTimeout = 10 * time.Second

// leader is what the planner remembers within its term.
type leader struct {
	term plan.Term
	// plans counts those made since the checkpoint of step countedAt.
	plans     int
	countedAt plan.Step
	// weighed is the state for which better was worked out.
	weighed weighed
	better  string
	// schedule follows what the running plan shows.
	schedule scheduleWatch
}

// sightings tell since when this node has been listening for each process of the roster: who
// begins to listen, or slept, cannot blame others for what it missed.
type sightings struct {
	since map[process]time.Time
	last  time.Time
}

// maxNap is how late a look may come before this node counts as having slept.
const maxNap = 2 * time.Second

// look notes the processes in the roster now.
func (s *sightings) look(members []consensus.Member, now time.Time) {
	before := s.since
	if now.Sub(s.last) > maxNap {
		before = nil
	}
	s.since, s.last = map[process]time.Time{}, now
	for _, m := range members {
		id := process{m.Peer, m.Boot}
		since, seen := before[id]
		if !seen {
			since = now
		}
		s.since[id] = since
	}
}

// process is one start of a node.
type process struct {
	peer plan.PeerID
	boot uint64
}

// weighed names what a comparison of plans depends on.
type weighed struct {
	epoch      uint64
	generation plan.Generation
}

// lead runs the planner's duties on whichever node is elected.
func (n *Node) lead(ctx context.Context) {
	tick := time.NewTicker(decideEvery)
	defer tick.Stop()
	var l leader
	var seen sightings
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, state := time.Now(), n.raft.State()
		seen.look(state.Members, now)
		_, term, self := n.raft.Leader()
		if !self {
			l = leader{}
			n.setBlocked("") // it is another's to tell
			n.setWanted(nil)
			continue
		}
		if l.term != term {
			l = leader{term: term}
			n.log.Info("this node is the planner", "term", term)
		}
		if state.Run == nil {
			continue
		}
		v := l.view(n, state, seen)
		if err := errors.Join(l.carryOut(ctx, n, state, decide(v)), n.bindGrants(ctx, state)); err != nil && ctx.Err() == nil {
			n.log.Warn("planner", "cause", err)
		}
	}
}

// seatsWanted is how many devices the cut takes that the user asked for, as far as it goes.
func seatsWanted(t plan.TrainSpec) int { return max(1, t.Replicas) * max(1, t.Stages) }

// view gathers what decide needs.
func (l *leader) view(n *Node, state consensus.State, seen sightings) leadView {
	v := leadView{
		Plan: state.Plan, Checkpoint: state.Checkpoint.Step,
		MinNodes: state.Run.Train.MinNodes, MinDevices: seatsWanted(state.Run.Train),
		Paused: state.Paused(), Newest: n.beats.Newest(state.Plan.Peers(), state.Plan.Generation),
		Better: cmp.Or(l.weigh(n, state), l.schedule.look(n, state)), Ending: state.StopWanted || state.Finished,
	}
	for _, m := range state.Members {
		if m.State == consensus.Gone {
			continue
		}
		silent := time.Duration(0)
		if m.Peer != n.self {
			silent = n.beats.Silent(m.Peer, seen.since[process{m.Peer, m.Boot}], seen.last)
		}
		v.Members = append(v.Members, memberView{
			Peer: m.Peer, Silent: silent, Devices: len(m.Profile.Devices),
			Active: m.State == consensus.Active, Leaving: m.State == consensus.Draining, Reborn: state.Reborn(m),
		})
	}
	v.Stall = l.stall(n, state, seen.last)
	return v
}

// stall is what the members tell of the plan being given up.
func (l *leader) stall(n *Node, state consensus.State, now time.Time) stall {
	if state.Checkpoint.Step != l.countedAt {
		l.plans, l.countedAt = 0, state.Checkpoint.Step
	}
	s := stall{Stall: n.beats.Stalled(state.Plan.Peers(), state.Plan.Generation, now)}
	s.Patience, s.Plans = min(stallGrace<<min(l.plans, 5), time.Minute), l.plans
	s.Alone = onlyHolder(state, n.self)
	if len(state.Older) > 0 {
		s.Fallback = state.Older[0].Step
	}
	return s
}

// weigh gives the reason for which a plan with the present members is worth the change, or
// nothing. It compares plans once for each roster and generation.
func (l *leader) weigh(n *Node, state consensus.State) string {
	key := weighed{state.Epoch, state.Plan.Generation}
	if state.Plan.Generation == 0 {
		return ""
	}
	if l.weighed != key {
		l.weighed, l.better = key, ""
		in := planInput(state)
		in.Links = l.schedule.links
		plan, _ := n.beats.Running(state.Plan)
		decision, err := planner.ShouldReplan(in, plan)
		if err == nil && decision.Replan {
			l.better = decision.Reason
		}
	}
	return l.better
}

// planInput is the planner's input for the generation after the current one. An asked
// number of replicas or stages yields when there are fewer devices: the run goes on.
func planInput(state consensus.State) planner.Input {
	in := PlanInput(*state.Run)
	in.Start, in.Generation = state.Checkpoint.Step, state.Plan.Generation+1
	if state.Plan.Generation != 0 {
		previous := state.Plan
		in.Previous = &previous
	}
	for _, m := range state.Members {
		if m.State == consensus.Active {
			in.Members = append(in.Members, planner.Member{Peer: m.Peer, Profile: m.Profile})
		}
	}
	train, there := &in.Run.Train, devicesOf(in.Members)
	if seatsWanted(*train) > there {
		train.Stages = 0
	}
	if train.Replicas > there {
		train.Replicas = 0
	}
	return in
}

// devicesOf counts what members compute on.
func devicesOf(members []planner.Member) (n int) {
	for _, m := range members {
		n += len(m.Profile.Devices)
	}
	return n
}

// carryOut turns a verdict into a proposal.
func (l *leader) carryOut(ctx context.Context, n *Node, state consensus.State, v verdict) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	switch {
	case v.Gone != "":
		if n.raft.Answers(ctx, v.Gone) { // only its gossip does not come through
			n.log.Debug("no heartbeats of a node that lives", "peer", v.Gone)
			n.beats.Touch(v.Gone, time.Now())
			return nil
		}
		if v.Doubt && !n.swarm.Data().Refuses(ctx, v.Gone) {
			return nil // it may be the link that is down, which comes back
		}
		m, _ := state.Member(v.Gone)
		n.log.Warn("a node is gone", "peer", v.Gone, "why", v.Why)
		return n.raft.Propose(ctx, consensus.SetMemberState{Peer: v.Gone, Boot: m.Boot, State: consensus.Gone, Reason: v.Why})
	case v.Pause:
		n.log.Info("asking for a checkpoint before a new plan", "why", v.Why)
		return n.raft.Propose(ctx, consensus.WantPause{Count: state.PauseWanted + 1})
	case v.Rollback != 0:
		n.log.Warn("going back to an older checkpoint", "from", state.Checkpoint.Step, "to", v.Rollback, "why", v.Why)
		return n.raft.Propose(ctx, consensus.Rollback{From: state.Checkpoint.Step, To: v.Rollback, Term: l.term, Reason: v.Why})
	case v.Plan:
		return l.plan(ctx, n, state, v.Why)
	}
	n.setBlocked(v.Blocked)
	return nil
}

// noPlan is for people why there is no plan: what says so is the planner in any case.
func noPlan(err error) string { return strings.TrimPrefix(err.Error(), "planner: ") }

// plan makes the next generation and commits it. A refusal for age is no error: the next
// look sees the newer state.
func (l *leader) plan(ctx context.Context, n *Node, state consensus.State, why string) error {
	in := planInput(state)
	p, reasons, err := l.schedule.make(in, why)
	if err != nil {
		n.setBlocked(noPlan(err))
		return nil
	}
	n.setBlocked("")
	lines := []string{why}
	if asked := state.Run.Train; asked.Stages != in.Run.Train.Stages || asked.Replicas != in.Run.Train.Replicas {
		lines = append(lines, fmt.Sprintf("the cut that was asked for needs more than %s, which is what there is", plan.Count(devicesOf(in.Members), "device")))
	}
	lines = append(lines, reasons.Lines()...)
	err = n.raft.Propose(ctx, consensus.SetPlan{Plan: p, Term: l.term, Epoch: state.Epoch, Reasons: clipReasons(lines)})
	if err == nil {
		l.plans++
		n.log.Info("committed a plan", "generation", p.Generation, "start", p.Start, "why", why)
	}
	if errors.Is(err, consensus.ErrStale) {
		return nil
	}
	return err
}

// clipReasons keeps the reasons within what the log takes.
func clipReasons(lines []string) []string {
	lines = lines[:min(len(lines), 64)]
	for i, line := range lines {
		lines[i] = wire.Clip(line, 512)
	}
	return lines
}
