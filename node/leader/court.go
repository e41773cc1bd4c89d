package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader/blame"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// charges hold all that there may be to rule on.
type charges struct {
	Trial blame.Trial // of the generation that was given up
	Ruled bool        // the log says whose fault that was
	// Jump is what is to be done about the loss. Ended says why the generation ends though its members carry it on,
	// once the log knows.
	Jump  blame.Ruling
	Ended string
	// Restarts is what is to be done about a member whose process is started again and again.
	Restarts blame.Ruling
	// Dispute is what is to be done about replicas with local steps that contradict each other. Hearing: their coordinators are being asked.
	Dispute blame.Ruling
	Hearing bool
}

// court follows who is at fault over the generations of a term, and has the log write down whom plans do without.
type court struct {
	Config
	past     blame.Endings
	deaf     deafWatch
	restarts blame.Restarts
	losses   blame.Losses
	// found is when this leader first heard that a member of one replica with local steps is at fault by another's word.
	found seenPlan
	// unruled is the generation whose ruling the log does not take.
	unruled plan.Generation
}

// look returns what there is to rule on.
func (c *court) look(m moment, by carried) charges {
	said := by.counted(append(m.stall.Accusations, c.deaf.look(m.state, m.now)...))
	found := charges{Trial: c.trial(m.state, m.stall.By, said), Ruled: c.ruled(m.state), Ended: endedByRuling(m.state)}
	if len(m.stall.Accusations) > 0 {
		found.Trial.Lively, found.Trial.Absent = m.lively(c.Self), c.absent(m.state)
	}
	found.Jump, _ = c.losses.Look(m.state, c.Losses)
	c.restarts.Look(m.state.Members, m.now)
	found.Restarts = c.restarts.Often(m.state, m.now)
	found.Dispute, found.Hearing = c.dispute(m, found.Ruled), m.hearing
	return found
}

// trial gathers what blame.Judge looks at: who gave the generation up, and what they and others say.
func (c *court) trial(state consensus.State, by []plan.PeerID, said []accusation) blame.Trial {
	now := c.Now()
	tr := blame.Trial{Accusations: said, Past: state.Blames, Owners: state.Owners, Name: state.NameOf, Faults: map[plan.PeerID]int{}}
	if tr.Start = state.Plan.Start; len(state.Older) > 0 && state.Checkpoint.Step == tr.Start {
		tr.Older = state.Older[0].Step
	}
	c.past.Before(&tr, by)
	usable := 0
	for _, m := range state.Members {
		tr.Faults[m.Peer] = m.Faults
		_, out := m.LeftOut(now)
		if m.State == consensus.Active {
			tr.Active++
			if !out {
				usable++
			}
			if slices.Contains(state.Owners, m.Peer) && state.Plan.Places(m.Peer) {
				tr.Computing = append(tr.Computing, m.Peer)
			}
		}
		tr.Alone = tr.Alone || out && state.Plan.Places(m.Peer) // nobody else could do the work
	}
	tr.Alone = tr.Alone || usable < 2
	return tr
}

// rule writes down whose fault it was that the current generation ended.
func (c *court) rule(ctx context.Context, state consensus.State, r blame.Ruling) error {
	e := c.confirm(ctx, state, r).Blame
	e.Generation, e.Step = state.Plan.Generation, min(e.Step, state.Run.Train.Steps)
	if r.Out {
		m, _ := state.Member(e.Peer)
		e.Until = c.Now().Add(leftOutFor(m.Faults)).Unix()
	}
	if e.Kind != plan.LossJump {
		c.past.Progress()
	}
	c.restarts.Forget(e.Peer)
	c.Log.Warn("ruling on a fault", "generation", e.Generation, "kind", e.Kind, "peer", e.Peer, "why", state.Told(e))
	err := c.Consensus.Propose(ctx, e)
	if errors.Is(err, consensus.ErrRejected) && !errors.Is(err, consensus.ErrStale) {
		c.unruled = e.Generation // the run goes on without it
		c.losses.Forget()
	}
	return err
}

// absent returns the members of the plan whose newest heartbeats say that they have not begun with it: one that changes over to
// another log does so once that has come, and nobody reaches its workers before. Who goes on not to begin is found by deafWatch, and who lets
// one plan after the other end so by blame.Judge.
func (c *court) absent(s consensus.State) map[plan.PeerID]bool {
	all := map[plan.PeerID]bool{}
	for _, p := range s.Plan.Peers() {
		if b, _ := c.Heartbeats.Last(p); b.Generation < s.Plan.Generation {
			all[p] = true
		}
	}
	return all
}

// ruled reports whether the log says whose fault it was that the current generation ended, or takes no such word.
func (c *court) ruled(state consensus.State) bool {
	g := state.Plan.Generation
	return c.unruled == g || slices.ContainsFunc(state.Blames, func(b consensus.Blame) bool { return b.Generation == g && b.Kind != plan.LossJump })
}

// endedByRuling returns why the current generation ends though its members carry it on, if it does: for a jump of its
// loss, or since the leader itself sees that a member has no part in it. With local steps the others make their outer step first, without its replica.
func endedByRuling(s consensus.State) string {
	for _, b := range s.Blames {
		switch {
		case b.Generation != s.Plan.Generation:
		case b.GoesBack():
			return fmt.Sprintf("%s at step %d", b.Detail, b.Step)
		case b.Kind != plan.LossJump && b.Accuser == "" && b.Until != 0 && s.Plan.Local == nil:
			return fmt.Sprintf("%s is left out: %s", s.NameOf(b.Peer), b.Detail)
		}
	}
	return ""
}

// progress takes in that the generation has come to a new checkpoint.
func (c *court) progress() { c.past.Progress() }

// replaced takes in how the generation of a state ended, when another one replaces it.
func (c *court) replaced(state consensus.State) {
	c.past.Note(c.Heartbeats.Stalled(state.Plan.Peers(), state.Plan.Generation, time.Now()), c.ruled(state))
}

// fault rules on a generation that was given up for one, before anything else is done about it: whoever is at fault
// may restart or leave to be forgotten. It waits for the words of all members for a while, for those of the accused as
// long as a heartbeat takes.
func (v view) fault() (verdict, bool) {
	said := slices.DeleteFunc(slices.Clone(v.Trial.Accusations), func(a accusation) bool { return a.Kind == plan.LostLink })
	if v.Ruled || v.Plan.Generation == 0 || len(said) == 0 {
		return verdict{}, false
	}
	deaf := slices.ContainsFunc(said, func(a accusation) bool { return a.By == "" })
	missing := slices.ContainsFunc(v.Plan.Peers(), func(p plan.PeerID) bool {
		accused := slices.ContainsFunc(said, func(a accusation) bool { return a.Accused == p })
		return (!accused || v.Stall.For <= gossip.Every) && !slices.Contains(v.Stall.By, p)
	})
	if missing && !deaf && v.Stall.For <= stallGrace {
		return verdict{}, true
	}
	r, ok := blame.Judge(v.Trial)
	return verdict{Rule: r}, ok
}

// jumped rules on a jump of the loss, unless the generation ends anyway.
func (v view) jumped() (verdict, bool) {
	return verdict{Rule: v.Jump}, v.Jump != blame.Ruling{} && v.Ended == ""
}

// restarted rules on a member that is started again and again, unless the generation ends anyway.
func (v view) restarted() (verdict, bool) {
	return verdict{Rule: v.Restarts}, v.Restarts != blame.Ruling{} && v.Ended == ""
}

// dispute returns what is to be done about replicas with local steps that contradict each other, or one of which has sent another what no honest one does.
// Words of all are waited for as long as heartbeats take. Of several rulings on a dispute it is the first one that the log does not have.
func (c *court) dispute(m moment, ruled bool) blame.Ruling {
	if c.unruled == m.state.Plan.Generation {
		return blame.Ruling{}
	}
	for _, r := range blame.Dispute(m.state, m.heard) {
		has := func(b consensus.Blame) bool {
			return b.Generation == m.state.Plan.Generation && b.Kind == r.Kind && b.Peer == r.Peer && (b.Until != 0) == r.Out
		}
		if !slices.ContainsFunc(m.state.Blames, has) {
			return r
		}
	}
	if ruled {
		return blame.Ruling{}
	}
	said := c.Heartbeats.Found(m.state.Plan)
	if len(said) == 0 {
		return blame.Ruling{}
	}
	if c.found.generation != m.state.Plan.Generation {
		c.found = seenPlan{m.state.Plan.Generation, m.now}
	}
	if m.now.Sub(c.found.at) < foundGrace {
		return blame.Ruling{}
	}
	r, _ := blame.Judge(c.trial(m.state, nil, said))
	r.Diverged, r.Back = false, 0 // of another's messages alone
	return r
}

// foundGrace is for how long the words of others are waited for where a member says what another replica's has sent it.
const foundGrace = 2 * gossip.Every

// contradictions returns what replicas with local steps say against each other, in the round that the plan has ended with, in one that ends with nothing, or of those
// that have ended the one under way before they might. It began after step from.
func contradictions(s consensus.State) (from plan.Step, found []plan.Contradiction) {
	switch {
	case s.Round != nil:
		return s.Round.From, s.Round.Contradictions(s.Plan)
	case s.Merged != nil:
		return s.Merged.From, s.Merged.Contradictions
	}
	return 0, nil
}

// disputed rules on replicas that contradict each other, once their coordinators were asked.
func disputed(v view) (verdict, bool) {
	return verdict{Rule: v.Dispute}, v.Dispute != blame.Ruling{} || v.Hearing
}

// ruled plans after a ruling that ends the generation though its members carry it on.
func (v view) ruled() (verdict, bool) {
	return verdict{Plan: true, Why: v.Ended}, v.Ended != ""
}
