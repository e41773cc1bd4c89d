package consensus

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

// withLocal are kinds of entries of runs with local steps, whose histories TestLocalHistories plays.
var withLocal = []string{"Gathered", "CloseRound", "LeaveOut"}

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
		if kind != nil && !slices.Contains(withLocal, kind.Name()) {
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
