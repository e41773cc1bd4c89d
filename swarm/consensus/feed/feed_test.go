package feed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/planner/plan"
)

// TestOrder: followers spread over voters, the leader comes last, and of a voter that goes only its own followers move on.
func TestOrder(t *testing.T) {
	var voters []plan.PeerID
	for i := range 7 {
		voters = append(voters, plan.PeerID(fmt.Sprintf("voter%d", i)))
	}
	const followers = 1000
	fed, moved := map[plan.PeerID]int{}, 0
	for i := range followers {
		self := plan.PeerID(fmt.Sprintf("follower%d", i))
		order := Order(self, voters, "voter3")
		if len(order) != 7 || order[6] != "voter3" {
			t.Fatalf("%v, and voter3 leads", order)
		}
		fed[order[0]]++
		fewer := slices.DeleteFunc(slices.Clone(voters), func(p plan.PeerID) bool { return p == "voter5" })
		if next := Order(self, fewer, "voter3"); next[0] != order[0] {
			moved++
			if order[0] != "voter5" {
				t.Fatalf("without voter5 one moves from %s to %s", order[0], next[0])
			}
		}
	}
	for p, n := range fed {
		if n < followers/6*7/10 || n > followers/6*13/10 {
			t.Errorf("%s feeds %d of %d", p, n, followers)
		}
	}
	if moved != fed["voter5"] {
		t.Errorf("%d move on from voter5, which feeds %d", moved, fed["voter5"])
	}
	if order := Order("voter1", []plan.PeerID{"voter1", "voter2", "voter2"}, ""); !slices.Equal(order, []plan.PeerID{"voter2"}) {
		t.Errorf("one voter asks %v", order)
	}
	if order := Order("f", []plan.PeerID{"x"}, "x"); !slices.Equal(order, []plan.PeerID{"x"}) {
		t.Errorf("where the leader votes alone: %v", order)
	}
}

// follower is a log as raft keeps it: the term of each entry, and how much is known to be committed.
type follower struct {
	terms  []uint64 // of entry 1, 2, ...
	commit uint64
}

// take does what raft does with entries, and returns whether it took them and where the log ends.
func (f *follower) take(prev, prevTerm uint64, terms []uint64, commit uint64) (bool, uint64) {
	end := uint64(len(f.terms))
	if prev > end || prev > 0 && f.terms[prev-1] != prevTerm {
		return false, end
	}
	for i, term := range terms {
		at := prev + uint64(i)
		if at < uint64(len(f.terms)) && f.terms[at] != term {
			f.terms = f.terms[:at]
		}
		if at == uint64(len(f.terms)) {
			f.terms = append(f.terms, term)
		}
	}
	f.commit = max(f.commit, min(commit, uint64(len(f.terms))))
	return true, uint64(len(f.terms))
}

// TestCursor feeds random logs, which may have parted from the committed one, until they have it.
func TestCursor(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		var log []uint64
		term := uint64(1)
		for range r.IntN(80) {
			term += r.Uint64N(4) / 3
			log = append(log, term)
		}
		f := follower{terms: slices.Clone(log[:r.IntN(len(log)+1)])}
		f.commit = r.Uint64N(uint64(len(f.terms)) + 1)
		for range r.IntN(20) { // of a leader whose entries were never committed
			f.terms = append(f.terms, term+1)
		}
		commit := uint64(len(log))
		c := Begin(uint64(len(f.terms)), commit)
		messages := 0
		for {
			prev, last, due := c.Span(commit)
			if !due {
				break
			}
			if messages++; messages > 200 {
				t.Fatalf("seed %d: no end", seed)
			}
			if last > commit || last < prev || last-prev > maxEntries {
				t.Fatalf("seed %d: entries %d to %d of %d", seed, prev+1, last, commit)
			}
			prevTerm := uint64(0)
			if prev > 0 {
				prevTerm = log[prev-1]
			}
			if took, end := f.take(prev, prevTerm, log[prev:last], last); took {
				c.Took(last)
			} else {
				c.Refused(end)
			}
		}
		if !slices.Equal(f.terms[:commit], log) || f.commit != commit {
			t.Fatalf("seed %d: the follower has %v, %d of them committed; the log is %v", seed, f.terms, f.commit, log)
		}
	}
}

// FuzzOpening: whatever a peer says first is an opening that encodes to the same bytes, or refused.
func FuzzOpening(f *testing.F) {
	f.Add(Opening{Index: 7, Last: true}.Encode())
	f.Add(Opening{}.Encode())
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := Decode(b)
		if err == nil && !slices.Equal(o.Encode(), b) {
			t.Errorf("%x is %+v, which is %x", b, o, o.Encode())
		}
	})
}
