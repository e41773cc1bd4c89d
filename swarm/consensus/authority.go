package consensus

import (
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// ErrForbidden is wrapped by the refusal of an entry whose author may not propose it, or did not sign it.
var ErrForbidden = errors.New("not allowed")

// Author is who proposed an entry, and the raft term in which a leader put it into the log.
type Author struct {
	Peer plan.PeerID
	Term plan.Term
}

// Authorize returns why the author may not propose an entry; nil if it may. Every node asks it for every
// entry, about the same state:
//
//	entry                  who may propose it
//	SetRun                 the node that founds the run, as its owner
//	Lead                   the leader of the term, which lets nobody else's into the log
//	Join                   the peer itself, once an invite in the log has let it in
//	Update                 the peer itself, or the leader, who has it from the peer's signed gossip
//	SetMemberState         the peer itself; the leader may say that it is gone
//	SetPlan, Rollback,
//	WantPause, Salvage,
//	Substitute, Blame,
//	Shown, CloseRound,
//	LeaveOut               the leader
//	Vouch                  the leader, with the signatures of an owner or of most voters
//	Recover                the leader that goes on with the run, with the signatures under it
//	StageSaved             the workers that the plan gives these layers, a substitute, a salvage, or who restores them
//	Gathered               the coordinator of the replica's steps: who lies harms its own replica, or has to show it in a dispute
//	KeptWhole              an owner's node, of itself: who lies about a copy takes what protects others' layers
//	CopyFailed             the peer whose copies they are: who keeps them then is for the rule to say
//	Invite, Revoke         an owner
//	Redeem                 any member, who lets the newcomer in that has signed it
//	Extend                 an owner
//	WantStop, Resume       an owner; where no owner is active, any member
//	Finish                 the Finisher, once the last step is stored
//
// Who was removed from the run proposes nothing.
func Authorize(s State, by Author, e Entry) error {
	if r, revoked := s.Revocation(by.Peer); revoked {
		return fmt.Errorf("%w: %T by %s, which was %s", ErrForbidden, e, s.NameOf(by.Peer), s.Removal(r))
	}
	if _, member := s.Member(by.Peer); !member {
		switch e.(type) {
		case SetRun, Lead, Join, Vouch:
		default:
			return by.refused(s, e, "members of the run")
		}
	}
	leads := by.Peer == s.Leader && by.Term == s.LeaderTerm
	allowed, who := true, ""
	switch e := e.(type) {
	case SetRun:
		allowed, who = by.Peer == e.Owner, "the owner that it names"
	case Lead:
		allowed, who = by.Peer == e.Peer && by.Term == e.Term, "the leader that it names, in its term"
	case Join:
		allowed, who = by.Peer == e.Peer && s.letIn(e.Peer), "the peer itself, once an invite has let it in,"
	case Update:
		allowed, who = leads || by.Peer == e.Peer, "the peer itself or the leader"
	case SetMemberState:
		allowed, who = by.Peer == e.Peer || leads && e.State == Gone, "the peer itself, or the leader when it is gone"
	case SetPlan, Rollback, WantPause, Salvage, Substitute, Blame, Shown, CloseRound, LeaveOut:
		allowed, who = leads, "the leader of the term"
	case Vouch:
		allowed, who = leads && e.Voucher.Term <= by.Term, "the leader of the term, up to that term,"
	case Recover:
		allowed, who = leads && by.Peer == e.Recovery.By, "the leader that goes on with the run"
	case StageSaved:
		allowed, who = e.savedBy(s, by.Peer), "the worker that the plan gives these layers, for itself and their holder"
		if !allowed && e.Generation < s.Plan.Generation { // a worker of the plan before may be late
			return fmt.Errorf("%T by %s, generation %d, the current one is %d: %w", e, s.NameOf(by.Peer), e.Generation, s.Plan.Generation, ErrStale)
		}
		if !allowed && e.alone(by.Peer).savedBy(s, by.Peer) { // members come and go while a copy is made
			return fmt.Errorf("step %d is saved by %s, and its copy is with a node that is not the holder any more", e.Step, s.NameOf(by.Peer))
		}
	case Gathered:
		if e.Generation < s.Plan.Generation { // a coordinator of the plan before may be late
			return fmt.Errorf("%T by %s, generation %d, the current one is %d: %w", e, s.NameOf(by.Peer), e.Generation, s.Plan.Generation, ErrStale)
		}
		allowed, who = e.by(s) == by.Peer, "the coordinator of the replica"
	case KeptWhole:
		allowed, who = s.Owner(by.Peer) && by.Peer == e.Peer, "an owner's node, of itself,"
	case CopyFailed:
		allowed, who = by.Peer == e.Peer, "the peer whose copies they are"
	case Invite:
		allowed, who = s.Owner(by.Peer) && by.Peer == e.Issuer, "an owner, in its own name,"
	case Revoke:
		allowed, who = s.Owner(by.Peer) && by.Peer == e.By, "an owner, in its own name,"
	case Extend:
		allowed, who = s.Owner(by.Peer), "an owner"
	case WantStop, Resume:
		allowed, who = len(s.ActiveOwners()) == 0 || s.Owner(by.Peer), "an owner while one is active"
	case Redeem:
	case Finish:
		inMemory := func(l LayerRef) bool { return !slices.ContainsFunc(l.Holders, l.StoredBy) }
		saved := s.Run != nil && s.Checkpoint.Step == s.Run.Train.Steps && !slices.ContainsFunc(s.Checkpoint.Layers, inMemory)
		allowed = saved && s.Plan.Generation != 0 && Finisher(s) == by.Peer
		who = "the coordinator of the plan, or of the replica that evaluates the model, once the last step is stored"
	}
	if !allowed {
		return by.refused(s, e, who)
	}
	return nil
}

// Finisher returns who ends the run once its last step is stored: who coordinates the plan, or with local steps the first replica that has that step, which
// evaluates the model.
func Finisher(s State) plan.PeerID {
	if m := s.Merged; m != nil && m.To == s.Run.Train.Steps {
		return s.Substitute.Carrier(plan.CoordinatorOf(s.Plan, m.Counted()[0]).Peer)
	}
	return s.Substitute.Coordinator(s.Plan)
}

// ruling reports whether a peer may propose an entry as the leader, and not else.
func ruling(s State, by plan.PeerID, e Entry) bool {
	led, other := s, s
	led.Leader, other.Leader = by, ""
	author := Author{by, s.LeaderTerm}
	return Authorize(led, author, e) == nil && Authorize(other, author, e) != nil
}

func (by Author) refused(s State, e Entry, who string) error {
	return fmt.Errorf("%w: %T by %s in term %d: only %s may propose it", ErrForbidden, e, s.NameOf(by.Peer), by.Term, who)
}

// alone returns the entry without what it says of copies.
func (e StageSaved) alone(peer plan.PeerID) StageSaved {
	e.Layers = slices.Clone(e.Layers)
	for i := range e.Layers {
		e.Layers[i].Holders = []plan.PeerID{peer}
	}
	return e
}

// savedBy reports whether a worker of peer in the plan computes each of the layers, and whether they are said
// to be with no others than that peer and the stage's holder: by the plan, now, or as one of its last two successors. A substitute is the worker
// in whose place it is. Whom a salvage names, who restores a layer, or who had it in memory, has it alone. Of what is in memory each speaks for itself,
// and of what a replica has for itself its workers alone do.
func (e StageSaved) savedBy(s State, peer plan.PeerID) bool {
	for _, l := range e.Layers {
		if e.Unstored != 0 && !slices.Equal(l.Holders, []plan.PeerID{peer}) {
			return false
		}
		mine := (e.stores(s, l.Layer, peer) || s.Salvage.has(e.Step, l.Layer, peer) || e.restores(s, l.Layer, peer)) && slices.Equal(l.Holders, []plan.PeerID{peer})
		for r, pipe := range s.Plan.Replicas {
			for st, place := range pipe.Stages {
				if s.Substitute.Carrier(place.Peer) != peer || !place.Layers.Contains(l.Layer) {
					continue
				}
				if e.Own != nil {
					mine = mine || plan.Replica(r) == *e.Own && e.Generation == s.Plan.Generation && slices.Equal(l.Holders, []plan.PeerID{peer})
					continue
				}
				at := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(st)}
				keepers := []plan.PeerID{peer, place.Holder, s.Holder(at)}
				for _, c := range s.Successors { // the copy may have been asked of one that has lost its place since
					if c.at() == at {
						keepers = append(keepers, c.Holder, c.Before)
					}
				}
				others := func(h plan.PeerID) bool { return !slices.Contains(keepers, h) }
				mine = mine || !slices.ContainsFunc(l.Holders, others)
			}
		}
		if !mine {
			return false
		}
	}
	return true
}
