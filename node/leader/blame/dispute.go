package blame

import (
	"fmt"
	"slices"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Dispute rules on replicas with local steps that contradict each other on what was sent in a round: by the log, each has said what it has of all others.
// A contradiction of two is the word of one against the other's.
//
//   - Who is in one with two others or more that have most of a step's micro-batches is left out: either of its own messages it says what is not so, or of those of
//     others. Where liars have fewer than half of the micro-batches, as package rounds counts on, they convict nobody who is honest, however many they are.
//   - Of two where one is a node of an owner the other one is left out. Owners are believed.
//   - Of two of whom one has been in such a dispute with somebody else before, and the other has not, that one is left out.
//   - Else nobody can say which of the two is wrong. That is written down, and said.
//
// A replica speaks by its coordinator, which is blamed for it. Of several nodes any may have sent the messages: then it is written down, and nobody is left out of
// plans. It is not ok where nobody contradicts anybody but itself, or nobody new.
func Dispute(s consensus.State, found []plan.Contradiction) (r Ruling, ok bool) {
	if s.Plan.Local == nil {
		return r, false
	}
	peer := func(q plan.Replica) plan.PeerID { return plan.CoordinatorOf(s.Plan, q).Peer }
	found = slices.DeleteFunc(slices.Clone(found), func(c plan.Contradiction) bool { return peer(c.By) == peer(c.Of) })
	if len(found) == 0 {
		return r, false
	}
	with := map[plan.Replica][]plan.Replica{}
	for _, c := range found {
		for _, pair := range [][2]plan.Replica{{c.By, c.Of}, {c.Of, c.By}} {
			if !slices.Contains(with[pair[0]], pair[1]) {
				with[pair[0]] = append(with[pair[0]], pair[1])
			}
		}
	}
	step := s.Plan.Start
	if s.Round != nil {
		step = s.Round.From
	} else if s.Merged != nil {
		step = s.Merged.From
	}
	ruling := func(q, by plan.Replica, detail string) Ruling {
		alone := !slices.ContainsFunc(s.Plan.Replicas[q].Stages, func(at plan.Placement) bool { return at.Peer != peer(q) })
		if !alone {
			detail += "; it has several nodes, and nobody can tell which of them is wrong"
		}
		return Ruling{Blame: consensus.Blame{Peer: peer(q), Accuser: peer(by), Kind: plan.BadSum, Step: step, Detail: detail}, Out: alone}
	}
	all, against := 0, func(q plan.Replica) (micros int) {
		for _, o := range with[q] {
			micros += s.Plan.Replicas[o].Micros
		}
		return micros
	}
	for _, pipe := range s.Plan.Replicas {
		all += pipe.Micros
	}
	most := func(q plan.Replica) bool { return len(with[q]) >= 2 && 2*against(q) > all }
	for q := range s.Plan.Replicas {
		if q := plan.Replica(q); most(q) && !slices.ContainsFunc(with[q], most) {
			return ruling(q, slices.Min(with[q]), fmt.Sprintf("%s with most of the micro-batches contradict replica %d on the messages of a round", plan.Count(len(with[q]), "other replica"), q)), true
		}
	}
	a := found[0].By
	b := with[a][0]
	for _, pair := range [][2]plan.Replica{{a, b}, {b, a}} {
		one, other := pair[0], pair[1]
		if owner := slices.Contains(s.Owners, peer(other)); owner && !slices.Contains(s.Owners, peer(one)) {
			return ruling(one, other, fmt.Sprintf("replica %d contradicts replica %d, a node of an owner, on the messages of a round", one, other)), true
		}
		if wasDisputed(s, peer(one), peer(other)) && !wasDisputed(s, peer(other), peer(one)) {
			return ruling(one, other, fmt.Sprintf("replica %d contradicts another one again on the messages of a round", one)), true
		}
	}
	r = ruling(a, b, fmt.Sprintf("replicas %d and %d contradict each other on the messages of a round, and nobody can tell which of them is wrong", min(a, b), max(a, b)))
	r.Out = false
	return r, true
}

// wasDisputed reports whether a peer was in a dispute with another one than this before.
func wasDisputed(s consensus.State, peer, than plan.PeerID) bool {
	return slices.ContainsFunc(s.Blames, func(b consensus.Blame) bool {
		return b.Kind == plan.BadSum && b.Peer != b.Accuser && b.Until == 0 && b.Generation < s.Plan.Generation &&
			(b.Peer == peer && b.Accuser != than || b.Accuser == peer && b.Peer != than)
	})
}
