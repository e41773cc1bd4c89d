package leader

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// rememberedMoves is for how many generations the predicted time of state on the way is remembered.
const rememberedMoves = 64

// slowLasts is how many times as long as it has lasted the speed of a device or a line is expected to last: a change that pays no sooner can wait.
const slowLasts = 4

// wish is a change of plan that can wait.
type wish struct {
	// Better says why another plan would be worth the change; empty when it is not.
	Better string
	// Copying: checkpoints of the plan's stages or copies of them are under way, for which such a change has waited for
	// CopiesFor. A pause would end them.
	Copying   bool
	CopiesFor time.Duration
}

// betterWatch finds out whether another plan for the present members, or another schedule, is worth a change.
type betterWatch struct {
	*Leader
	search   spawn
	schedule *scheduleWatch
	// better compares the best plan for a roster with the one that runs.
	comparedFor roster
	better      *future[planner.Decision]
	input       planner.Input // of that comparison
	hints       hintWatch
	// decided is what came of it, once the cost of the change was weighed.
	decided planner.Decision
	// moves has how long state was predicted to be on the way in the changes that were decided, by the generation that each ended.
	moves map[plan.Generation]schedule.Nanos
	// copies is when a change of the current plan first waited for copies under way.
	copies seenPlan
}

// roster names what a comparison of plans depends on.
type roster struct {
	epoch      uint64
	generation plan.Generation
	ratios     string // of devices' speeds
	lines      int    // changes of what is known of them
	without    string // who is left out, which ends without a change of the state
}

// rosterOf returns the roster of a moment without some members.
func (l *Leader) rosterOf(m moment, out []consensus.Member) roster {
	return roster{m.state.Epoch, m.state.Plan.Generation, fmt.Sprint(l.speeds.ratios), l.lines.Changes(), namesOf(out)}
}

// look returns the change that is wanted. While a substitute computes two parts steps show nothing, and another plan follows
// anyway. Local steps keep their schedule.
func (b *betterWatch) look(m moment) (w wish) {
	switch {
	case m.state.Substitute != nil:
	case m.state.Plan.Local != nil:
		w.Better = b.compare(m)
	case warmedUp(m.state):
		w.Better = fmt.Sprintf("the warm-up of %s has ended: from here on replicas make local steps", plan.Count(int(m.state.Run.Train.Sync.WarmupEnd(m.state.Run.Train.Steps)), "step"))
	default:
		w.Better = cmp.Or(b.compare(m), b.schedule.look(m.state, b.outlook(m.state, m.now, b.moves)))
	}
	w.Copying, w.CopiesFor = b.waitForCopies(m.state, w.Better, m.now)
	return w
}

// warmedUp reports whether the plan has trained to the end of the warm-up before local steps, of which its replicas make none.
func warmedUp(s consensus.State) bool {
	end := s.Run.Train.Sync.WarmupEnd(s.Run.Train.Steps)
	return s.Run.Train.Sync.Local && s.Plan.Generation != 0 && s.Plan.Local == nil && s.Plan.Start < end && s.Checkpoint.Step >= end
}

// compare returns why a plan with the present members is worth the change. It returns nothing
// if it is not, or while a search looks. There is one search for each roster and generation. What it finds is weighed at each
// look: the longer nobody departs, the longer the next plan will last.
func (b *betterWatch) compare(m moment) string {
	if m.state.Plan.Generation == 0 {
		return ""
	}
	if slices.ContainsFunc(m.silent, func(s consensus.Member) bool { return m.state.Plan.Places(s.Peer) }) {
		b.hints.stop() // another plan may be wanted at once
		return ""      // it is back soon, or gone
	}
	if m.state.Plan.Local != nil && len(withBlamed(m.state, nil)) > 0 {
		return "" // the round ends without it, and the plan with the round
	}
	b.begin(m)
	d, ok := b.better.get()
	if ok {
		b.tellSpares(m.state.Plan.Generation, d)
		b.tellHints(m.now)
	}
	if ok && d.Replan && !b.decided.Replan {
		first := b.decided.Reason == ""
		o := b.outlook(m.state, m.now, b.moves)
		if b.decided = d.Pays(o); !d.Pays(b.whileSlow(m, o)).Replan {
			b.decided.Replan = false
		}
		if first && !b.decided.Replan {
			b.Log.Info("another plan is better, and a change does not pay yet", "why", b.decided.Reason)
		}
	}
	if b.decided.Replan {
		b.note(m.state.Plan.Generation, b.decided.Change.Move)
		return b.decided.Reason
	}
	return ""
}

// tellSpares has this node's heartbeats say what members without a stage would add to the plan that runs.
func (b *betterWatch) tellSpares(g plan.Generation, d planner.Decision) {
	s := gossip.Spares{Generation: g}
	for _, spare := range d.Spares {
		s.Members = append(s.Members, gossip.Spare{Peer: spare.Peer, WithNanos: int64(spare.With), WithoutNanos: int64(spare.Without)})
	}
	b.spares.Store(&s)
}

// hintsAfter is how long a plan runs before it is searched for what would help: who trains needs the processor, and what changes soon needs no hints.
const hintsAfter = 30 * time.Second

// hintsFor is how long a search for what would help may take. What it has found by then is told.
const hintsFor = 20 * time.Second

// hintWatch follows the searches for what would help, one at a time.
type hintWatch struct {
	generation plan.Generation
	since      time.Time // of generation
	of         roster    // of the newest search
	found      *future[hinted]
	end        context.CancelFunc // of that search
	resting    time.Time          // nothing is searched for before
}

// hinted has what a search has found, and how long it took.
type hinted struct {
	texts []string
	took  time.Duration
}

// stop ends a search, which is not begun again for the same roster.
func (h *hintWatch) stop() {
	if h.found != nil {
		h.end()
	}
}

// tellHints has this node's heartbeats say what would help, after one search for each roster; searches take at most one part in 1+aheadRest of a
// processor's time.
func (b *betterWatch) tellHints(now time.Time) {
	h := &b.hints
	if g := b.comparedFor.generation; h.generation != g {
		h.stop()
		h.generation, h.since = g, now
	}
	if found, ok := h.found.get(); ok {
		h.end()
		if h.of.generation == h.generation {
			b.Leader.hints.Store(&gossip.Hints{Generation: h.generation, Texts: found.texts})
		}
		h.found, h.resting = nil, now.Add(aheadRest*found.took)
	}
	if b.Planner.Hints == nil || h.found != nil || h.of == b.comparedFor || now.Sub(h.since) < hintsAfter || now.Before(h.resting) {
		return
	}
	in, search := b.input, b.Planner.Hints
	ended, end := context.WithCancel(context.Background())
	h.found = begin(b.search, func(ctx context.Context) hinted {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(ctx, hintsFor)
		defer cancel()
		defer context.AfterFunc(ended, cancel)()
		texts, _ := search(ctx, in)
		return hinted{texts, time.Since(begun)}
	})
	if h.found == nil {
		end()
		return
	}
	h.of, h.end = b.comparedFor, end
}

// whileSlow returns an outlook for a change that may follow from the speed of a device or a line: that is expected to last slowLasts times as
// long as it has lasted.
func (b *betterWatch) whileSlow(m moment, o planner.Outlook) planner.Outlook {
	newest := b.Heartbeats.Newest(m.state.Plan, m.now)
	for _, n := range []plan.Step{b.speeds.lasted(m.state.Plan, newest), b.lines.Lasted(m.state.Plan, newest)} {
		if n > 0 {
			o.Left = min(o.Left, slowLasts*n)
		}
	}
	return o
}

// note remembers how long state is predicted to be on the way when a generation ends, of the newest ones.
func (b *betterWatch) note(ends plan.Generation, move schedule.Nanos) {
	if b.moves == nil {
		b.moves = map[plan.Generation]schedule.Nanos{}
	}
	b.moves[ends] = move
	maps.DeleteFunc(b.moves, func(g plan.Generation, _ schedule.Nanos) bool { return g+rememberedMoves < ends })
}

// begin has the best plan for the present members compared with the one that runs, once for each roster.
func (b *betterWatch) begin(m moment) {
	out := append(leftOut(without(m.state, m.silent), b.Now()), m.silent...)
	r := b.rosterOf(m, out)
	if b.comparedFor == r {
		return
	}
	b.decided = planner.Decision{}
	in := NextInput(without(m.state, out))
	in.Links, in.Ratios = b.lines.With(b.schedule.links), b.speeds.ratios
	current := b.withOwnShares(m.state.Plan)
	blamed := blamedIn(m.state, leftOut(m.state, b.Now()))
	b.better = begin(b.search, func(ctx context.Context) planner.Decision {
		if blamed != "" {
			return planner.Decision{Replan: true, Reason: blamed}
		}
		d, err := b.Planner.ShouldReplan(ctx, in, current)
		d.Replan = d.Replan && err == nil
		return d
	})
	if b.better != nil {
		b.comparedFor, b.input = r, in
	}
}

// blamedIn says which member of the running plan is among those that are left out, and why; empty where none is. The planner would only see that it is
// not there.
func blamedIn(state consensus.State, out []consensus.Member) string {
	for _, peer := range state.Plan.Peers() {
		if i := slices.IndexFunc(out, func(m consensus.Member) bool { return m.Peer == peer && m.Blamed != nil }); i >= 0 {
			return plan.Clip(state.NameOf(peer)+" is left out of plans "+state.Told(*out[i].Blamed), maxReasonBytes)
		}
	}
	return ""
}

// waitForCopies reports whether copies under way hold a change up that is wanted for better, and for how long they have. They
// hold up nothing while a member of the plan leaves.
func (b *betterWatch) waitForCopies(state consensus.State, better string, now time.Time) (copying bool, since time.Duration) {
	leaves := func(m consensus.Member) bool { return m.State == consensus.Draining && state.Plan.Places(m.Peer) }
	if better == "" || state.Paused() || slices.ContainsFunc(state.Members, leaves) || !b.Heartbeats.Copying(state.Plan) {
		b.copies = seenPlan{}
		return false, 0
	}
	if b.copies.generation != state.Plan.Generation {
		b.copies = seenPlan{state.Plan.Generation, now}
		b.Log.Info("a change of plan waits until the copies under way are made", "why", better)
	}
	return true, now.Sub(b.copies.at)
}

// withOwnShares returns a plan with the schedule that its steps have, and its own shares of the micro-batches: those of the steps
// follow what devices show, of which other plans know nothing.
func (l *Leader) withOwnShares(p plan.Plan) plan.Plan {
	running, _ := l.Heartbeats.Running(p)
	if own, err := running.WithShares(p.ScheduleChoice().Micros); err == nil {
		return own
	}
	return p
}
