package consensus

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/planner/departures"
	"pnode/planner/plan"
)

// seeds are tried by each test of random seeds, and one alone by go test ./swarm/consensus -run TEST -seed N.
const seeds = 10_000

var oneSeed = flag.Uint64("seed", 0, "the only seed that tests of random seeds try; 0 is all")

// What entries are counted as besides their kinds.
const (
	laterSubstitute = "Substitute from a checkpoint"
	coordinatorLost = "Substitute of the coordinator"
	substituteEnds  = "Finish by the coordinator's substitute"
	inMemoryAlone   = "StageSaved of what is in memory alone"
	storedLater     = "StageSaved of what was in memory alone"
)

// besides returns what an entry is counted as besides its kind.
func besides(s State, e Entry) (as []string) {
	coordinator := s.Plan.Coordinator().Peer
	switch e := e.(type) {
	case Substitute:
		if e.Replays {
			as = append(as, laterSubstitute)
		}
		if e.Lost == coordinator {
			as = append(as, coordinatorLost)
		}
	case Finish:
		if s.Substitute.Carrier(coordinator) != coordinator {
			as = append(as, substituteEnds)
		}
	case StageSaved:
		if e.Unstored != 0 {
			as = append(as, inMemoryAlone)
		} else if slices.ContainsFunc(e.Layers, func(l LayerRef) bool { return e.stores(s, l.Layer, l.Holders[0]) }) {
			as = append(as, storedLater)
		}
	}
	return as
}

// eachSeed has a check tried with every seed, and names one that fails. It reports whether it tried them all.
func eachSeed(t *testing.T, check func(seed uint64) error) (all bool) {
	t.Helper()
	from, to := uint64(1), uint64(seeds)
	if testing.Short() {
		to = seeds / 20
	}
	if *oneSeed != 0 {
		from, to = *oneSeed, *oneSeed
	}
	for seed := from; seed <= to; seed++ {
		if err := check(seed); err != nil {
			t.Fatalf("seed %d: %v\ntry it alone: go test ./swarm/consensus -run '%s$' -seed %d", seed, err, t.Name(), seed)
		}
	}
	return to-from+1 == seeds
}

// TestRandomHistories plays 10,000 random histories of the log, each of a seed that fails the same way whenever it is tried.
func TestRandomHistories(t *testing.T) {
	made := inventory()
	accepted := map[string]int{}
	all := eachSeed(t, func(seed uint64) error { return playHistory(seed, made, accepted) })
	wanted := []string{laterSubstitute, coordinatorLost, substituteEnds, inMemoryAlone, storedLater}
	for _, kind := range kinds {
		if kind != nil {
			wanted = append(wanted, kind.Name())
		}
	}
	for _, name := range wanted { // a history in which nothing is accepted proves nothing
		if all && accepted[name] == 0 {
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
	term, at := plan.Term(1), time.Unix(1_000_000, 0)
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
		if goesOn := r.IntN(2) == 0 || s.Substitute != nil && r.IntN(4) > 0; goesOn && event > 1 {
			p.author, p.entry = nextEntry(r, s, p.author, p.entry, term, made, &epoch)
		}
		at = at.Add(time.Duration(r.Int64N(int64(20*time.Second))) - 2*time.Second) // a clock may be set back
		next, err := s.carryOut(p, term, at)
		again, _ := s.carryOut(p, term, at)
		b, encodeErr := EncodeState(next)
		if encodeErr != nil {
			return encodeErr
		}
		if !reflect.DeepEqual(again, next) {
			return fmt.Errorf("event %d, %T: the same entry gives two states", event, p.entry)
		}
		if err == nil {
			accepted[strings.TrimPrefix(fmt.Sprintf("%T", p.entry), "consensus.")]++
			for _, as := range besides(s, p.entry) {
				accepted[as]++
			}
			if twice, _ := Apply(next, p.entry); !equalStates(twice, next) {
				return fmt.Errorf("event %d, %T: twice is not the same as once", event, p.entry)
			}
		}
		wrong := follows(s, next, p.entry, err)
		if err == nil && wrong == nil {
			wrong = followsAuthor(s, p.author, p.entry)
		}
		if wrong != nil {
			return fmt.Errorf("event %d, %T by %s in term %d: %w", event, p.entry, p.author, term, wrong)
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
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := EncodeState(a)
	y, errY := EncodeState(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// follows returns what is wrong with a state that came after another one by an entry.
func follows(s, next State, e Entry, refused error) error {
	counters := func(s State) State { // a refused proposal is counted, time has passed, and nothing else changes
		s.Departures.Clock, s.Members = departures.Clock{}, slices.Clone(s.Members)
		for i := range s.Members {
			s.Members[i].Counter, s.Members[i].Window = 0, 0
		}
		return s
	}
	_, back := e.(Rollback)
	_, blamed := e.(Blame)
	_, extended := e.(Extend)
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
	case (lineage{Recovery: next.Recovery}).id() != (lineage{Recovery: s.Recovery}).id() && !slices.Equal(next.Partings, append(slices.Clone(s.Partings), plan.Parting{Recovery: next.Recovery.ID(), Generation: s.Plan.Generation})),
		(lineage{Recovery: next.Recovery}).id() == (lineage{Recovery: s.Recovery}).id() && !slices.Equal(next.Partings, s.Partings):
		return fmt.Errorf("partings %v after %v, in lineage %d", next.Partings, s.Partings, (lineage{Recovery: next.Recovery}).number())
	case s.Finished && !next.Finished && !extended || s.Run != nil && next.Run == nil || len(s.Owners) > 0 && len(next.Owners) == 0:
		return fmt.Errorf("the run, its end or its last owner is taken back")
	case s.Run != nil && next.Run.Train.Steps < s.Run.Train.Steps || next.Run != nil && next.Checkpoint.Step > next.Run.Train.Steps:
		return fmt.Errorf("the checkpoint of step %d in a run of %d steps", next.Checkpoint.Step, next.Run.Train.Steps)
	case next.Salvage != nil && next.Salvage.Generation != next.Plan.Generation:
		return fmt.Errorf("generation %d is salvaged while %d is the current one", next.Salvage.Generation, next.Plan.Generation)
	case next.Substitute != nil && !fitsPlan(*next.Substitute, next):
		return fmt.Errorf("%+v in generation %d with the checkpoint of step %d", *next.Substitute, next.Plan.Generation, next.Checkpoint.Step)
	case !slices.IsSortedFunc(next.Members, func(a, b Member) int { return strings.Compare(string(a.Peer), string(b.Peer)) }):
		return fmt.Errorf("the roster is not in order")
	case len(slices.DeleteFunc(slices.Clone(next.Members), func(m Member) bool { return !present(m) })) > MaxMembers:
		return fmt.Errorf("more than %d members", MaxMembers)
	}
	if err := errors.Join(followsSubstitute(s, next), followsDepartures(s, next), followsStored(s, next)); err != nil {
		return err
	}
	if next.Salvage != nil && next.Salvage != s.Salvage {
		if err := followsSalvage(next); err != nil {
			return err
		}
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

// fitsPlan reports whether a substitute could be of the current plan.
func fitsPlan(e Substitute, s State) bool {
	able := s.Plan.Substitutes(e.Lost)
	if e.Replays {
		able = s.Plan.Replayers(e.Lost)
	}
	return e.Generation == s.Plan.Generation && slices.Contains(able, e.By)
}

// followsSubstitute returns what is wrong with the substitute of the current plan after an entry: a plan has one at most, which stays until
// the next plan, and nothing else changes for the plan with it but who is gone.
func followsSubstitute(s, next State) error {
	was, is := s.Substitute, next.Substitute
	switch {
	case was == is || is == nil && next.Plan.Generation > s.Plan.Generation:
		return nil
	case was != nil || next.Plan.Generation != s.Plan.Generation:
		return fmt.Errorf("%+v in place of %+v, in generation %d after %d", is, was, next.Plan.Generation, s.Plan.Generation)
	}
	lost, _ := next.Member(is.Lost)
	by, _ := next.Member(is.By)
	coordinator := s.Plan.Coordinator().Peer
	if coordinator == is.Lost {
		coordinator = is.By
	}
	switch {
	case lost.State != Gone || lost.ProcessEpoch != is.ProcessEpoch:
		return fmt.Errorf("%+v, and %+v is not gone", *is, lost)
	case by.State != Active || next.Reborn(by) || is.By == is.Lost:
		return fmt.Errorf("%+v, and %+v does not carry out the plan", *is, by)
	case is.Coordinator(next.Plan) != coordinator:
		return fmt.Errorf("%+v, and %s coordinates the steps, not %s", *is, is.Coordinator(next.Plan), coordinator)
	case !reflect.DeepEqual(next.Plan, s.Plan) || !reflect.DeepEqual(next.Checkpoint, s.Checkpoint) || !reflect.DeepEqual(next.Pending, s.Pending):
		return fmt.Errorf("%+v changes the plan or what is saved", *is)
	case is.Replays && (is.From != s.Checkpoint.Step || is.From < s.Plan.Start):
		return fmt.Errorf("%+v after the checkpoint of step %d", *is, s.Checkpoint.Step)
	}
	return nil
}

// followsStored returns what is wrong with what members have in memory alone: who has stored a layer has it stored from then on, and what
// a process has in memory is lost with it, and makes no checkpoint secure.
func followsStored(s, next State) error {
	for _, c := range slices.Concat(Checkpoints(next), next.Pending) {
		for _, l := range c.Layers {
			for _, u := range l.Unstored {
				m, _ := next.Member(u.Peer)
				switch {
				case !slices.Contains(l.Holders, u.Peer):
					return fmt.Errorf("layer %d is in the memory of %s, which does not hold it", l.Layer, u.Peer)
				case m.ProcessEpoch != u.ProcessEpoch && slices.Contains(l.Holding(next), u.Peer):
					return fmt.Errorf("layer %d is held by process %d of %s, which is another one than %d", l.Layer, m.ProcessEpoch, u.Peer, u.ProcessEpoch)
				}
			}
			for _, was := range slices.Concat(Checkpoints(s), s.Pending) {
				if was.Step != c.Step || was.Generation != c.Generation {
					continue
				}
				for _, old := range was.Layers {
					for _, p := range old.Holders {
						if old.Layer == l.Layer && old.StoredBy(p) && slices.Contains(l.Holders, p) && !l.StoredBy(p) {
							return fmt.Errorf("layer %d of step %d was stored by %s", l.Layer, c.Step, p)
						}
					}
				}
			}
		}
	}
	return nil
}

// followsAuthor returns what is wrong with who proposed an entry that was accepted: once another member goes on in a lost one's place, that
// one alone saves its layers and ends the run in its name.
func followsAuthor(s State, by plan.PeerID, e Entry) error {
	switch e.(type) {
	case Finish:
		if coordinator := s.Substitute.Coordinator(s.Plan); by != coordinator {
			return fmt.Errorf("%s coordinates the steps", coordinator)
		}
	case StageSaved:
		if s.Substitute != nil && s.Substitute.Lost == by && s.Salvage == nil {
			return fmt.Errorf("%s computes its part", s.Substitute.By)
		}
	}
	return nil
}

// followsDepartures returns what is wrong with the departures that the log remembers after an entry.
func followsDepartures(s, next State) error {
	was, is := s.Departures, next.Departures
	ended := 0 // processes that have ended by the entry
	for _, m := range s.Members {
		if now, _ := next.Member(m.Peer); m.State != Gone && (now.State == Gone || now.ProcessEpoch != m.ProcessEpoch) {
			ended++
		}
	}
	switch {
	case is.Validate() != nil:
		return is.Validate()
	case is.Clock.Millis < was.Clock.Millis || is.Clock.Millis > was.Clock.Millis+18_000:
		return fmt.Errorf("the run's clock goes from %d to %d ms", was.Clock.Millis, is.Clock.Millis)
	case is.Lost < was.Lost || is.Lost > was.Lost+ended:
		return fmt.Errorf("%d members were lost after %d, and %d processes have ended", is.Lost, was.Lost, ended)
	case len(is.Newest) < len(was.Newest) || len(is.Newest) > len(was.Newest)+ended:
		return fmt.Errorf("%d departures after %d, and %d processes have ended", len(is.Newest), len(was.Newest), ended)
	}
	return nil
}

// followsSalvage returns what is wrong with a salvage that the log has just taken.
func followsSalvage(s State) error {
	saved := make([]int, s.Run.Model.Layers())
	for _, part := range s.Salvage.Parts {
		if m, _ := s.Member(part.By); m.State == "" || m.State == Gone {
			return fmt.Errorf("%s is to save layers, and is not in the run", part.By)
		}
		for l := part.Layers.First; l < part.Layers.End; l++ {
			saved[l]++
		}
	}
	if slices.ContainsFunc(saved, func(n int) bool { return n != 1 }) || s.Salvage.Step <= s.Checkpoint.Step {
		return fmt.Errorf("step %d after %d is saved, each layer so many times: %v", s.Salvage.Step, s.Checkpoint.Step, saved)
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
	switch r.IntN(31) {
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
