package consensus

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// seeds are tried by TestRandomHistories, and one alone by go test ./swarm/consensus -run RandomHistories -seed N.
const seeds = 10_000

var oneSeed = flag.Uint64("seed", 0, "the only seed that TestRandomHistories tries; 0 is all")

// TestRandomHistories plays 10,000 random histories of the log, each of a seed that fails the same way whenever it is tried.
func TestRandomHistories(t *testing.T) {
	from, to := uint64(1), uint64(seeds)
	if testing.Short() {
		to = seeds / 20
	}
	if *oneSeed != 0 {
		from, to = *oneSeed, *oneSeed
	}
	made := inventory()
	accepted := map[string]int{}
	for seed := from; seed <= to; seed++ {
		if err := playHistory(seed, made, accepted); err != nil {
			t.Fatalf("seed %d: %v\ntry it alone: go test ./swarm/consensus -run RandomHistories -seed %d", seed, err, seed)
		}
	}
	for _, kind := range kinds { // a history in which nothing is accepted proves nothing
		if kind == nil || to < seeds || *oneSeed != 0 || slices.Contains([]string{"Shown", "Extend", "Salvage"}, kind.Name()) { // not made here
			continue
		}
		if name := kind.Name(); accepted[name] == 0 {
			t.Errorf("no %s was accepted in %d histories", name, seeds)
		}
	}
}

// inventory makes entries whose signatures take long, once: invites 1 to 3 by a, and who comes by them.
func inventory() (made []Entry) {
	for serial := range uint64(3) {
		invite := testInvite(serial+1, "a", 2, serial == 1)
		invite.Made, invite.RedeemBefore = 1_000_000, 2_000_000 // the same whenever a seed is tried
		made = append(made, invite)
		for _, p := range peersOf("b,c,d,e") {
			made = append(made, testRedeem(serial+1, p, p))
		}
	}
	for _, voters := range []string{"a", "a,b", "a,b,c"} {
		made = append(made, Vouch{Voucher{Number: 1, Term: 1, From: peersOf("a"), Voters: peersOf(voters), Signatures: []VoterMark{{Peer: "a", Signature: make([]byte, SignatureBytes)}}}})
	}
	return made
}

// playHistory has random peers propose random entries, and looks at each state that follows.
func playHistory(seed uint64, made []Entry, accepted map[string]int) error {
	r := rand.New(rand.NewPCG(seed, 7))
	peers := peersOf("a,b,c,d,e")
	var s State
	var counter, epoch uint64
	term := plan.Term(1)
	type moment struct {
		state State
		sum   [sha256.Size]byte
	}
	var past []moment
	for event := range 24 {
		p := proposal{author: peers[r.IntN(len(peers))], incarnation: s.Incarnation}
		if r.IntN(8) == 0 {
			term++
		}
		if s.Leader != "" && r.IntN(3) > 0 {
			p.author = s.Leader
		}
		counter += 1 + r.Uint64N(3)
		p.counter = counter
		if r.IntN(10) == 0 {
			p.counter -= min(counter, r.Uint64N(100)) // late, or repeated
		}
		p.entry = randomEntry(r, s, p.author, term, made, event, &epoch)
		next, err := s.carryOut(p, term)
		again, _ := s.carryOut(p, term)
		b, encodeErr := EncodeState(next)
		if encodeErr != nil {
			return encodeErr
		}
		if c, _ := EncodeState(again); !bytes.Equal(b, c) {
			return fmt.Errorf("event %d, %T: the same entry gives two states", event, p.entry)
		}
		if err == nil {
			accepted[strings.TrimPrefix(fmt.Sprintf("%T", p.entry), "consensus.")]++
			if twice, _ := Apply(next, p.entry); !equalStates(twice, next) {
				return fmt.Errorf("event %d, %T: twice is not the same as once", event, p.entry)
			}
		}
		if err := follows(s, next, p.entry, err); err != nil {
			return fmt.Errorf("event %d, %T by %s in term %d: %w", event, p.entry, p.author, term, err)
		}
		s = next
		past = append(past, moment{s, sha256.Sum256(b)})
	}
	for i, m := range past {
		if b, err := EncodeState(m.state); err != nil || sha256.Sum256(b) != m.sum {
			return fmt.Errorf("the state after event %d was changed later", i)
		}
	}
	b, err := EncodeState(s)
	if err != nil {
		return err
	}
	back, err := DecodeState(bytes.NewReader(b))
	if err != nil || !equalStates(back, s) {
		return fmt.Errorf("the last state does not come back from its bytes: %v", err)
	}
	return nil
}

func equalStates(a, b State) bool {
	x, errX := EncodeState(a)
	y, errY := EncodeState(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// follows returns what is wrong with a state that came after another one by an entry.
func follows(s, next State, e Entry, refused error) error {
	counters := func(s State) State { // a refused proposal is counted, and changes nothing else
		s.Members = slices.Clone(s.Members)
		for i := range s.Members {
			s.Members[i].Counter, s.Members[i].Window = 0, 0
		}
		return s
	}
	_, back := e.(Rollback)
	_, blamed := e.(Blame)
	present := func(m Member) bool { return m.State != Gone }
	switch {
	case refused != nil && !equalStates(counters(s), counters(next)):
		return fmt.Errorf("refused (%w), and it changes the state", refused)
	case next.Incarnation < s.Incarnation || next.Epoch < s.Epoch || next.LeaderTerm < s.LeaderTerm || next.PauseWanted < s.PauseWanted:
		return fmt.Errorf("a counter goes back: incarnation %d to %d, epoch %d to %d, term %d to %d", s.Incarnation, next.Incarnation, s.Epoch, next.Epoch, s.LeaderTerm, next.LeaderTerm)
	case next.Plan.Generation < s.Plan.Generation || next.Plan.Generation > s.Plan.Generation+1:
		return fmt.Errorf("generation %d after %d", next.Plan.Generation, s.Plan.Generation)
	case next.Checkpoint.Step < s.Checkpoint.Step && !back && !blamed:
		return fmt.Errorf("the checkpoint goes back from step %d to %d", s.Checkpoint.Step, next.Checkpoint.Step)
	case (lineage{Recovery: next.Recovery}).number() < (lineage{Recovery: s.Recovery}).number():
		return fmt.Errorf("lineage %d after %d", next.Recovery.Number, s.Recovery.Number)
	case s.Finished && !next.Finished || s.Run != nil && next.Run == nil || len(s.Owners) > 0 && len(next.Owners) == 0:
		return fmt.Errorf("the run, its end or its last owner is taken back")
	case !slices.IsSortedFunc(next.Members, func(a, b Member) int { return strings.Compare(string(a.Peer), string(b.Peer)) }):
		return fmt.Errorf("the roster is not in order")
	case len(slices.DeleteFunc(slices.Clone(next.Members), func(m Member) bool { return !present(m) })) > MaxMembers:
		return fmt.Errorf("more than %d members", MaxMembers)
	}
	for _, m := range next.Members {
		if old, known := s.Member(m.Peer); known && m.Counter < old.Counter {
			return fmt.Errorf("%s is counted back from %d to %d", m.Peer, old.Counter, m.Counter)
		}
		if _, revoked := next.Revocation(m.Peer); revoked && present(m) {
			return fmt.Errorf("%s was removed and is %s", m.Peer, m.State)
		}
	}
	return nil
}

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
	switch r.IntN(26) {
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
		return SetPlan{Epoch: s.Epoch, Term: term, Plan: plan.Plan{
			Run: "run", Generation: plan.Generation(near(uint64(s.Plan.Generation))), Start: s.Checkpoint.Step, Schedule: "1f1b", Replicas: []plan.Pipeline{{
				Micros: 2, Warmups: []int{0}, Stages: []plan.Placement{{Peer: other, Device: "cpu", Layers: plan.LayerRange{End: 3}}},
			}},
		}}
	}
	saved := StageSaved{Step: s.Checkpoint.Step + plan.Step(r.IntN(2)) + 1, Generation: s.Plan.Generation}
	for layer := range 3 {
		saved.Layers = append(saved.Layers, LayerRef{Layer: layer, SizeBytes: 1, Chunks: []plan.Hash{{byte(layer)}}, Holders: []plan.PeerID{by}})
	}
	return saved
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
