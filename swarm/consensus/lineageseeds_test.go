package consensus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pnode/planner/plan"
)

// TestRandomRecoveries splits the voters and members of a run at random, and has each part try to recover it: nobody does
// where a majority answers, nothing that the living have committed is lost, and of two recoveries every node takes the same.
func TestRandomRecoveries(t *testing.T) {
	recovered, rivals := 0, 0
	eachSeed(t, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 11))
		s, voters, now := randomRun(r)
		parts := make([][]plan.PeerID, 1+r.IntN(3))
		for _, m := range s.Members {
			if at := r.IntN(len(parts) + 1); at < len(parts) { // else it is dead
				parts[at] = append(parts[at], m.Peer)
			}
		}
		var made []Recovery
		for _, living := range parts {
			looks := randomLooks(r, living, voters, now)
			for _, self := range living {
				got, err := agree(s, now, voters, self, looks)
				if err = checkAgreed(got, err, now, voters, living, looks); err != nil {
					return fmt.Errorf("%s of %v, voters %v: %w", self, living, voters, err)
				}
				if got.Number > 0 {
					for _, p := range living {
						got.Signatures = append(got.Signatures, VoterMark{Peer: p, Signature: make([]byte, SignatureBytes)})
					}
					made = append(made, got)
					recovered++
					break
				}
			}
		}
		if len(made) > 1 {
			rivals++
		}
		return checkRivals(s, now, made)
	})
	if *oneSeed == 0 && (recovered == 0 || rivals == 0) {
		t.Errorf("%d recoveries, %d times more than one of a run", recovered, rivals)
	}
}

// randomRun returns a run of 2 to 9 members without an owner, some of whom vote, and the lineage of its log.
func randomRun(r *rand.Rand) (s State, voters []plan.PeerID, now lineage) {
	run := shortRun()
	s.Run = &run
	for _, p := range peersOf("a,b,c,d,e,f,g,h,i")[:2+r.IntN(8)] {
		s = s.withMember(Member{Peer: p, State: Active})
	}
	for _, i := range r.Perm(len(s.Members))[:min(len(s.Members), 1+r.IntN(5))] {
		voters = append(voters, s.Members[i].Peer)
	}
	slices.Sort(voters)
	if r.IntN(3) == 0 {
		now = lineage{Recovery: &Recovery{Number: 1, By: "a", Voters: peersOf("a,b"), Dead: peersOf("b")}}
	}
	return s, voters, now
}

// randomLooks returns what the living say: mostly that nobody leads, and that they have not heard of the others for long.
func randomLooks(r *rand.Rand, living, voters []plan.PeerID, now lineage) map[plan.PeerID]Look {
	looks := map[plan.PeerID]Look{}
	for _, p := range living {
		l := Look{Lineage: now.id(), Number: now.number(), Term: plan.Term(1 + r.IntN(2)), Index: r.Uint64N(4)}
		if r.IntN(40) == 0 {
			l.Leader = voters[0]
		}
		if r.IntN(20) == 0 {
			l.Lineage = "another" // one that this node does not know
		}
		for _, v := range voters {
			silent := RecoverAfter + time.Duration(r.IntN(1000))*time.Second
			if r.IntN(60) == 0 {
				silent = RecoverAfter - time.Millisecond
			}
			if r.IntN(4) > 0 && v != p {
				l.Silent = append(l.Silent, Silence{v, silent.Milliseconds()})
			}
		}
		looks[p] = l
	}
	return looks
}

// checkAgreed returns what is wrong with a recovery that the living agreed on, or with the refusal of one.
func checkAgreed(got Recovery, refused error, now lineage, voters, living []plan.PeerID, looks map[plan.PeerID]Look) error {
	alive, led, recent := 0, false, false
	for _, v := range voters {
		if slices.Contains(living, v) {
			alive++
		}
	}
	for _, l := range looks {
		led = led || l.Leader != ""
		for _, s := range l.Silent {
			recent = recent || s.Millis < RecoverAfter.Milliseconds() && !slices.Contains(living, s.Peer)
		}
	}
	if lost := alive < majority(len(voters)) && !led && !recent; lost != (refused == nil) {
		return fmt.Errorf("%d of %d voters alive, led %v, heard lately %v: refused %w", alive, len(voters), led, recent, refused)
	}
	if refused != nil {
		if !errors.Is(refused, ErrNotLost) {
			return refused
		}
		return nil
	}
	if err := got.check(); err != nil {
		return err
	}
	for _, p := range living {
		if l := looks[p]; slices.Contains(got.Dead, p) || l.Lineage == now.id() && newer(l.Term, l.Index, got.Term, got.Index) {
			return fmt.Errorf("%+v, though %s lives with a log up to %d of term %d", got, p, l.Index, l.Term)
		}
	}
	if got.Number != now.number()+1 || got.After != now.id() || !slices.Contains(living, got.By) {
		return fmt.Errorf("%+v after lineage %d", got, now.number())
	}
	return nil
}

// checkRivals returns what is wrong with recoveries of one run by parts that did not know of each other. Nodes that meet
// one take it in place of their own where it counts for more; so all end with the same, and two can never have to be believed.
func checkRivals(s State, now lineage, made []Recovery) error {
	strong := 0
	for _, a := range made {
		if a.strong(s) {
			strong++
		}
		next := lineage{Recovery: &a}
		if !now.before(next) || next.before(now) {
			return fmt.Errorf("lineage %d does not come after %d", a.Number, a.Number-1)
		}
		for _, b := range made {
			other := lineage{Recovery: &b}
			if a.ID() != b.ID() && next.before(other) == other.before(next) {
				return fmt.Errorf("neither or both of two lineages count before the other: %+v and %+v", a, b)
			}
			if a.ID() != b.ID() && next.conversion(other, "z", 0, 0) != discarded {
				return fmt.Errorf("a log of lineage %+v goes on as one of %+v", a, b)
			}
		}
		if got := now.conversion(next, "z", a.Term, a.Index+1); got != discarded {
			return fmt.Errorf("a log that is newer than the one that goes on is %s", got)
		}
		if got := now.conversion(next, "z", a.Term, a.Index); got != kept {
			return fmt.Errorf("a log that is no newer than the one that goes on is %s", got)
		}
		after, err := Apply(State{Run: s.Run, Members: s.Members, Incarnation: 1, Recovery: now.Recovery}, Recover{a})
		if err != nil {
			return err
		}
		for _, p := range a.Dead {
			if m, _ := after.Member(p); m.State != Gone {
				return fmt.Errorf("%s is %q after it was said to be dead", p, m.State)
			}
		}
	}
	if strong > 1 {
		return fmt.Errorf("%d recoveries of one run have to be believed", strong)
	}
	return nil
}

// TestRandomSuccessions has the processes of random members end, told once and again: one voter stands at once, the others
// after each other, and nobody without a vote, in place of one that does not lead, or twice within endedAgain.
func TestRandomSuccessions(t *testing.T) {
	stood := 0
	eachSeed(t, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 13))
		_, voters, _ := randomRun(r)
		peers := peersOf("a,b,c,d,e,f,g,h,i")
		nodes := make([]succession, len(peers))
		last := map[plan.PeerID]time.Time{} // when somebody stood in place of a leader
		now := time.Unix(1000, 0)
		for range 12 {
			leader, ended := voters[r.IntN(len(voters))], peers[r.IntN(len(peers))]
			if r.IntN(2) == 0 {
				ended = leader
			}
			now = now.Add(time.Duration(r.Int64N(int64(endedAgain))))
			turns := map[int]plan.PeerID{}
			for i, self := range peers {
				turn, stands := nodes[i].due(ended, leader, self, voters, now)
				if !stands {
					continue
				}
				if ended != leader || self == ended || !slices.Contains(voters, self) {
					return fmt.Errorf("%s stands in place of %s, where %s leads and %v vote", self, ended, leader, voters)
				}
				if other, taken := turns[turn]; taken {
					return fmt.Errorf("%s and %s stand at the same time", self, other)
				}
				turns[turn] = self
			}
			again := now.Sub(last[ended]) < endedAgain
			heirs := len(slices.DeleteFunc(slices.Clone(voters), func(p plan.PeerID) bool { return p == ended }))
			if _, first := turns[0]; ended == leader && (again && len(turns) > 0 || !again && (len(turns) != heirs || heirs > 0 && !first)) {
				return fmt.Errorf("in place of %s stand %v of %v, again %v", ended, turns, voters, again)
			}
			if len(turns) > 0 {
				last[ended] = now
				stood++
			}
		}
		return nil
	})
	if stood == 0 {
		t.Error("nobody stood")
	}
}
