package consensus

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"pnode/planner/plan"
)

// randomEntry returns what a peer may propose next, mostly something that fits the state.
func randomEntry(r *rand.Rand, s State, by plan.PeerID, term plan.Term, made []Entry, event int, epoch *uint64) Entry {
	peers := peersOf("a,b,c,d,e")
	other := peers[r.IntN(len(peers))]
	if r.IntN(2) == 0 {
		other = by
	}
	m, _ := s.Member(other)
	near := func(v uint64) uint64 { return v + 1 - min(v, r.Uint64N(8)/6) } // mostly the next one
	switch event {
	case 0:
		return Lead{Peer: by, Term: term}
	case 1:
		return SetRun{Spec: shortRun(), Owner: by}
	}
	switch r.IntN(32) {
	case 0, 1:
		return Lead{Peer: by, Term: term}
	case 2:
		return SetRun{Spec: shortRun(), Owner: other}
	case 3, 4, 5:
		*epoch++
		return Join{Peer: by, ProcessEpoch: *epoch}
	case 6, 7, 8:
		return SetMemberState{Peer: other, ProcessEpoch: m.ProcessEpoch, State: []MemberState{Active, Active, Draining, Gone}[r.IntN(4)]}
	case 9:
		return Update{Peer: other, ProcessEpoch: m.ProcessEpoch, Addrs: []string{fmt.Sprint(r.IntN(9))}}
	case 10:
		return WantPause{Count: near(s.PauseWanted)}
	case 11:
		return WantStop{}
	case 12:
		return Resume{Incarnation: near(s.Incarnation)}
	case 13:
		return Revoke{By: by, Peer: other, Reason: "why"}
	case 14, 15, 16:
		return made[r.IntN(len(made))]
	case 17:
		return Recover{recoveryAfter(s, by)}
	case 18:
		return Blame{Peer: other, Accuser: by, Kind: plan.BadTensor, Generation: s.Plan.Generation, Step: s.Checkpoint.Step + 1, Detail: "not finite", Until: 60}
	case 19:
		return Rollback{From: s.Checkpoint.Step, To: 0, Term: term}
	case 20:
		return Finish{}
	case 21, 22:
		return onePlan(s, other, term, plan.Generation(near(uint64(s.Plan.Generation))))
	case 23:
		return randomSalvage(r, s, other)
	case 24:
		return Shown{
			Generation: plan.Generation(near(uint64(s.Plan.Generation)) - 1),
			Members:    []ShownMember{{Peer: other, FLOPS: r.Int64N(1000), Held: r.IntN(2) == 0}},
		}
	case 25:
		if s.Run != nil {
			return Extend{Steps: s.Run.Train.Steps + plan.Step(r.IntN(3))}
		}
	case 26:
		of := s.Checkpoint
		if len(s.Older) > 0 && r.IntN(3) == 0 {
			of = s.Older[0]
		}
		return KeptWhole{Peer: by, Step: of.Step, Generation: plan.Generation(near(uint64(of.Generation)) - 1)}
	case 27:
		return CopyFailed{Peer: by, Holder: other}
	}
	return inMemory(r, s, layersSaved(s, s.Checkpoint.Step+plan.Step(r.IntN(2))+1, by), by)
}

// inMemory has a third of what is saved in memory alone, by this process or another one, and another third be what a checkpoint already has.
func inMemory(r *rand.Rand, s State, saved StageSaved, by plan.PeerID) StageSaved {
	switch m, _ := s.Member(by); r.IntN(3) {
	case 0:
		saved.Unstored = m.ProcessEpoch + r.Uint64N(8)/7
	case 1:
		of := Checkpoints(s)[r.IntN(1+len(s.Older))]
		saved.Step, saved.Generation = of.Step, of.Generation
	}
	return saved
}

// nextEntry returns what comes next in a run that goes well: members, a plan, its checkpoints, and its end. It returns
// another entry, and who was to propose that one, where nothing fits.
func nextEntry(r *rand.Rand, s State, by plan.PeerID, other Entry, term plan.Term, made []Entry, epoch *uint64) (plan.PeerID, Entry) {
	active := slices.DeleteFunc(slices.Clone(s.Members), func(m Member) bool { return m.State != Active })
	leader, leads := s.Member(s.Leader)
	switch {
	case s.Run == nil || len(s.Owners) == 0:
		return by, other
	case len(active) == 0:
		*epoch++
		owner, known := s.Member(s.Owners[0])
		if !known || owner.State != Joining {
			return s.Owners[0], Join{Peer: s.Owners[0], ProcessEpoch: *epoch}
		}
		return owner.Peer, SetMemberState{Peer: owner.Peer, ProcessEpoch: owner.ProcessEpoch, State: Active}
	case !leads || leader.State == Gone || s.LeaderTerm != term:
		return active[0].Peer, Lead{Peer: active[0].Peer, Term: term}
	case s.StopWanted:
		return s.Owners[0], Resume{Incarnation: s.Incarnation + 1}
	case s.Plan.Generation == 0:
		return s.Leader, onePlan(s, active[r.IntN(len(active))].Peer, term, s.Plan.Generation+1)
	}
	worker := s.Substitute.Coordinator(s.Plan)
	switch { // few histories come so far by chance
	case s.Substitute != nil && s.Checkpoint.Step == s.Run.Train.Steps && slices.ContainsFunc(s.Checkpoint.Layers, func(l LayerRef) bool { return !l.StoredBy(l.Holders[0]) }):
		return worker, layersSaved(s, s.Checkpoint.Step, worker)
	case s.Substitute != nil && s.Checkpoint.Step == s.Run.Train.Steps:
		return worker, Finish{}
	case s.Substitute == nil && len(s.Plan.Replicas) > 1 && r.IntN(2) == 0:
		return s.Leader, randomSubstitute(r, s)
	case s.Substitute == nil && len(s.Plan.Replicas) == 1 && len(active) > 1 && r.IntN(2) == 0:
		return s.Leader, twoReplicas(s, active[0].Peer, active[1].Peer, term)
	case len(active) == 1 && s.Owner("a") && r.IntN(2) == 0:
		return secondMember(s, made, epoch)
	case s.Substitute != nil && r.IntN(8) > 0:
		return worker, layersSaved(s, s.Checkpoint.Step+1, worker)
	}
	switch r.IntN(16) {
	case 0:
		peers := peersOf("a,b,c,d,e")
		return s.Owners[0], Revoke{By: s.Owners[0], Peer: peers[r.IntN(len(peers))], Reason: "why"}
	case 1, 2, 3:
		return s.Leader, randomSalvage(r, s, active[r.IntN(len(active))].Peer)
	case 4, 5, 6:
		return s.Leader, Shown{Generation: s.Plan.Generation, Members: []ShownMember{{Peer: worker, FLOPS: 1 + r.Int64N(1000), Held: r.IntN(2) == 0}}}
	case 7, 8:
		return worker, Finish{}
	case 9, 10, 11, 12, 13:
		switch {
		case s.Substitute != nil && r.IntN(4) > 0: // the steps go on
		case len(s.Plan.Replicas) > 1:
			return s.Leader, randomSubstitute(r, s)
		case len(active) > 1:
			return s.Leader, twoReplicas(s, active[0].Peer, active[1].Peer, term)
		case s.Owner("a"):
			return secondMember(s, made, epoch)
		}
	case 14:
		if holder := s.Holder(plan.StageID{}); holder != "" {
			return worker, CopyFailed{Peer: worker, Holder: holder}
		}
	}
	saved := layersSaved(s, s.Checkpoint.Step+1, worker)
	if r.IntN(8) == 0 {
		saved = inMemory(r, s, saved, worker)
	}
	return worker, saved
}

// randomSubstitute has a member of the plan go on in the place of any other one.
func randomSubstitute(r *rand.Rand, s State) Substitute {
	members := s.Plan.Peers()
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	lost, _ := s.Member(members[0])
	e := Substitute{Generation: s.Plan.Generation, Lost: lost.Peer, ProcessEpoch: lost.ProcessEpoch, By: members[len(members)-1], Reason: "why"}
	if e.Replays = r.IntN(3) > 0; e.Replays {
		e.From = s.Checkpoint.Step - min(s.Checkpoint.Step, plan.Step(r.IntN(8)/7)) // mostly the newest one
	}
	return e
}

// secondMember has b come in by the first invite of a, which are the first two entries of the inventory.
func secondMember(s State, made []Entry, epoch *uint64) (plan.PeerID, Entry) {
	invite, known := s.Grant(1)
	m, _ := s.Member("b")
	switch {
	case !known:
		return "a", made[0]
	case !slices.Contains(invite.Peers, "b"):
		return "a", made[1]
	case m.State == Joining:
		return "b", SetMemberState{Peer: "b", ProcessEpoch: m.ProcessEpoch, State: Active}
	}
	*epoch++
	return "b", Join{Peer: "b", ProcessEpoch: *epoch}
}

// twoReplicas has two peers compute all layers each.
func twoReplicas(s State, first, second plan.PeerID, term plan.Term) SetPlan {
	e := onePlan(s, first, term, s.Plan.Generation+1)
	replica := func(on plan.PeerID, micro plan.Micro) plan.Pipeline {
		return plan.Pipeline{FirstMicro: micro, Micros: 1, Warmups: []int{0}, Stages: []plan.Placement{{Peer: on, Device: "cpu", Layers: plan.LayerRange{End: 3}}}}
	}
	e.Plan.Replicas = []plan.Pipeline{replica(first, 0), replica(second, 1)}
	return e
}

// onePlan has one peer compute all layers.
func onePlan(s State, on plan.PeerID, term plan.Term, g plan.Generation) SetPlan {
	return SetPlan{Epoch: s.Epoch, Term: term, Plan: plan.Plan{
		Run: "run", Generation: g, Start: s.Checkpoint.Step, Schedule: "1f1b", Replicas: []plan.Pipeline{{
			Micros: 2, Warmups: []int{0}, Stages: []plan.Placement{{Peer: on, Device: "cpu", Layers: plan.LayerRange{End: 3}}},
		}},
	}}
}

// layersSaved reports all layers of a step.
func layersSaved(s State, step plan.Step, by plan.PeerID) StageSaved {
	saved := StageSaved{Step: step, Generation: s.Plan.Generation}
	for layer := range 3 {
		saved.Layers = append(saved.Layers, LayerRef{Layer: layer, SizeBytes: 1, Chunks: []plan.Hash{{byte(layer)}}, Holders: []plan.PeerID{by}})
	}
	return saved
}

// randomSalvage has some peers save the next step's layers, mostly all of them and each once.
func randomSalvage(r *rand.Rand, s State, by plan.PeerID) Salvage {
	e := Salvage{Generation: s.Plan.Generation, Step: s.Checkpoint.Step + plan.Step(r.IntN(3))}
	for next := 0; next < 3; {
		part := SalvagePart{Layers: plan.LayerRange{First: next, End: min(3, next+1+r.IntN(3))}, By: by}
		if r.IntN(8) == 0 {
			part.From = plan.Step(r.IntN(3))
		}
		next = part.Layers.End + r.IntN(8)/7
		e.Parts = append(e.Parts, part)
	}
	return e
}

// shortRun is a run of two steps.
func shortRun() plan.RunSpec {
	spec := testRun().Spec
	spec.Train.Steps = 2
	return spec
}

// recoveryAfter is the next recovery of a run, by a peer without whom b and c are no majority.
func recoveryAfter(s State, by plan.PeerID) Recovery {
	now := lineage{Recovery: s.Recovery}
	r := Recovery{Number: now.number() + 1, After: now.id(), By: by, Voters: peersOf("a,b,c"), Dead: peersOf("b,c")}
	if slices.Contains(r.Dead, by) {
		r.Dead = slices.DeleteFunc(peersOf("a,b,c"), func(p plan.PeerID) bool { return p == by })
	}
	return r
}
