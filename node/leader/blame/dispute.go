package blame

import (
	"fmt"
	"slices"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Shown says what a coordinator has shown of the messages of which it has told the log: see package pipeline/gather/seals.
type Shown int

// What coordinators show. Silence may be a line's fault, or hide a lie.
const (
	Silent Shown = iota // nothing came of it
	Proven              // what it has told the log, with the seals of those whose messages they are
	Untrue              // something else, or that it has nothing
)

// Heard says what has come of a contradiction, once both coordinators were asked for the messages of replica Of.
type Heard struct {
	plan.Contradiction
	// ByShows and OfShows are what the coordinators of replicas By and Of have shown.
	ByShows, OfShows Shown
	// Twofold are members that have sealed two different messages, where both are proven.
	Twofold []plan.PeerID
}

// Dispute rules on replicas with local steps that contradict each other on what was sent in a round. Each has told the log what it has of all others, in one sum; what
// that sum is of, its coordinator can show with the seals of those who sent it. No majority is asked, and owners are judged like others.
//
//   - Who has sealed two different messages where an honest member sends one is left out: of a replica of several nodes that member alone.
//   - Whose replica has ended a round before it was closed is left out: its coordinator seals the losses of all steps.
//   - A coordinator that shows something else than it has told the log, or nothing of it, is left out.
//   - One that does not answer, where the other one's word is proven, is noted, and left out the second time. Owners' nodes are not.
//   - One that was started again or is gone, with what it had to show, is neither left out nor noted for what it does not show.
//   - Where both are silent nobody can tell who is wrong. That is noted.
//
// Nobody is left out twice for one generation. Of a member that contradicts none but itself nothing is said.
func Dispute(s consensus.State, heard []Heard) (rulings []Ruling) {
	if s.Plan.Local == nil {
		return nil
	}
	step := s.Plan.Start
	if s.Round != nil {
		step = s.Round.From
	} else if s.Merged != nil {
		step = s.Merged.From
	}
	add := func(out bool, guilty, a, b plan.PeerID, detail string) {
		accuser := a
		if accuser == guilty {
			accuser = b
		}
		known := func(r Ruling) bool { return r.Peer == guilty && (r.Out || !out) }
		if accuser != guilty && !slices.ContainsFunc(rulings, known) {
			rulings = append(rulings, Ruling{Blame: consensus.Blame{Peer: guilty, Accuser: accuser, Kind: plan.BadSum, Step: step, Detail: detail}, Out: out})
		}
	}
	for _, h := range heard {
		by, of := coordinator(s, h.By), coordinator(s, h.Of)
		if h.Hasty() && h.ByShows == Proven {
			sealed := plan.CoordinatorOf(s.Plan, h.Of).Peer // not who speaks for it since
			add(true, sealed, by, sealed, fmt.Sprintf("it had ended its part of a round after %s, before the round was closed", plan.Count(int(h.Has.Steps), "inner step")))
		}
		for _, p := range h.Twofold {
			add(true, p, by, of, fmt.Sprintf("it has sealed two different messages of replica %d in a round", h.Of))
		}
		for _, one := range []struct {
			replica plan.Replica
			peer    plan.PeerID
			shows   Shown
			other   Shown
		}{{h.By, by, h.ByShows, h.OfShows}, {h.Of, of, h.OfShows, h.ByShows}} {
			switch {
			case !here(s, one.peer):
			case one.shows == Untrue:
				add(true, one.peer, by, of, fmt.Sprintf("it cannot show what it has told the log that replica %d has of replica %d", one.replica, h.Of))
			case one.shows == Silent && one.other == Proven:
				again := wasSilent(s, one.peer) && !slices.Contains(s.Owners, one.peer)
				add(again, one.peer, by, of, fmt.Sprintf("it does not show what it has told the log that replica %d has of replica %d", one.replica, h.Of))
			}
		}
	}
	if len(rulings) == 0 {
		i := slices.IndexFunc(heard, func(h Heard) bool { return coordinator(s, h.By) != coordinator(s, h.Of) })
		if i < 0 {
			return nil
		}
		detail := fmt.Sprintf("replicas %d and %d contradict each other on the messages of a round, and nobody can tell which of their nodes is wrong", heard[i].By, heard[i].Of)
		return []Ruling{{Blame: consensus.Blame{Kind: plan.BadSum, Step: step, Detail: detail}}}
	}
	return rulings
}

// coordinator returns who speaks for a replica.
func coordinator(s consensus.State, q plan.Replica) plan.PeerID {
	return s.Substitute.Carrier(plan.CoordinatorOf(s.Plan, q).Peer)
}

// here reports whether a member has been there since the plan began.
func here(s consensus.State, p plan.PeerID) bool {
	m, ok := s.Member(p)
	return ok && m.State != consensus.Gone && !s.Reborn(m)
}

// wasSilent reports whether a coordinator was noted for its silence in a plan before.
func wasSilent(s consensus.State, p plan.PeerID) bool {
	return slices.ContainsFunc(s.Blames, func(b consensus.Blame) bool {
		return b.Kind == plan.BadSum && b.Peer == p && b.Until == 0 && b.Generation < s.Plan.Generation
	})
}
