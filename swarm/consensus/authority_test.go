package consensus

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// testKey signs as a peer of a test, whose key is made from its name.
type testKey struct{ private ed25519.PrivateKey }

func keyOf(p plan.PeerID) testKey {
	if key, ok := testKeys.Load(p); ok {
		return key.(testKey)
	}
	seed := sha256.Sum256([]byte(p))
	key := testKey{ed25519.NewKeyFromSeed(seed[:])}
	testKeys.Store(p, key)
	return key
}

// testKeys holds keys that were made, by peer.
var testKeys sync.Map

func (k testKey) Sign(message []byte) ([]byte, error) { return ed25519.Sign(k.private, message), nil }

// Verify checks the same signature once for all nodes of a process.
func (testKey) Verify(peer plan.PeerID, message, signature []byte) error {
	public := keyOf(peer).private.Public().(ed25519.PublicKey)
	digest := sha256.New()
	digest.Write(public)
	fmt.Fprintf(digest, "%d ", len(signature))
	digest.Write(signature)
	digest.Write(message)
	sum := [sha256.Size]byte(digest.Sum(nil))
	good, known := testVerdicts.Load(sum)
	if !known {
		good = ed25519.Verify(public, message, signature)
		testVerdicts.Store(sum, good)
	}
	if !good.(bool) {
		return errors.New("the signature is not the peer's")
	}
	return nil
}

// testVerdicts holds verdicts on signatures, by a digest of key, signature and message.
var testVerdicts sync.Map

// signed returns an entry as this node proposes it.
func (n *Node) signed(t *testing.T, e Entry) []byte {
	t.Helper()
	p, err := n.author.sign(n.State(), e)
	if err != nil {
		t.Fatal(err)
	}
	return p.encode()
}

// TestAuthority replays testdata/authority.txt: who may propose what.
func TestAuthority(t *testing.T) {
	scenario(t, "authority.txt", func(t *testing.T) func(string) string {
		var s State
		return func(line string) string {
			_, pairs := fields(line)
			e := parseEntry(t, line)
			if err := Authorize(s, Author{plan.PeerID(pairs["by"]), plan.Term(number(t, pairs["in"]))}, e); err != nil {
				return strings.ReplaceAll(err.Error(), "consensus.", "")
			}
			next, err := Apply(s, e)
			if err != nil {
				return "allowed; " + refusal(t, err)
			}
			s = next
			return "allowed"
		}
	})
}

// A member with a patched client signs what only others may propose. It is refused, by whichever node it asks,
// and changes nothing.
func TestMemberProposesWhatOnlyOthersMay(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		liar := c.follower()
		if liar.self == "a" {
			t.Fatal("the founder follows")
		}
		state := func() State { return c.leader().State() }
		before := state()
		victim, _ := before.Member("a")
		layer := []LayerRef{{SizeBytes: 1, Chunks: make([]plan.Hash, 1), Holders: []plan.PeerID{liar.self}}}
		for name, e := range map[string]Entry{
			"finish":            Finish{},
			"ghost":             Join{Peer: "ghost", ProcessEpoch: 1},
			"gone":              SetMemberState{Peer: "a", ProcessEpoch: victim.ProcessEpoch, State: Gone},
			"draining":          SetMemberState{Peer: "a", ProcessEpoch: victim.ProcessEpoch, State: Draining},
			"update":            Update{Peer: "a", ProcessEpoch: victim.ProcessEpoch},
			"plan":              SetPlan{Plan: plan.Plan{Run: "run", Generation: 1}, Term: 9, Epoch: before.Epoch},
			"saved":             StageSaved{Step: 1, Layers: layer},
			"another's copy":    KeptWhole{Peer: "a", Step: 1, Generation: 1},
			"a copy of its own": KeptWhole{Peer: liar.self, Step: 1, Generation: 1},
			"another's copies":  CopyFailed{Peer: "a", Holder: "b"},
			"rollback":          Rollback{From: 0, To: 0},
			"pause":             WantPause{Count: 1},
			"substitute":        Substitute{Generation: 1, Lost: "a", ProcessEpoch: victim.ProcessEpoch, By: liar.self},
			"salvage":           Salvage{Generation: 1, Step: 1},
			"stop":              WantStop{},
			"gathered":          Gathered{Generation: 1, Parts: make([]plan.Part, 2)},
			"close":             CloseRound{Generation: 1},
			"leave out":         LeaveOut{Generation: 1},
			"shown":             Shown{Generation: 1, Members: []ShownMember{{Peer: liar.self, FLOPS: 1e15, Held: true}}},
			"blame":             Blame{Peer: "a", Kind: plan.BadTensor, Generation: 1, Until: 60},
			"run":               SetRun{Owner: "a", Spec: testRun().Spec},
			"lead":              Lead{Peer: liar.self, Term: 1 << 41},
			"invite":            fresh(testInvite(7, liar.self, 64, true)),
			"owner's invite":    fresh(testInvite(7, "a", 64, true)),
			"revoke":            Revoke{By: liar.self, Peer: "a"},
			"owner's revoke":    Revoke{By: "a", Peer: "b"},
			"lead for another":  Lead{Peer: "a", Term: 1 << 41},
		} {
			err := liar.insist(t, e)
			if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), ErrForbidden.Error()) || !strings.Contains(err.Error(), liar.self.Short()) {
				t.Errorf("%s: %v", name, err)
			}
		}
		after := state()
		m, _ := after.Member(liar.self)
		old, _ := before.Member(liar.self)
		if m.Counter <= old.Counter {
			t.Error("refused proposals are not counted")
		}
		if after.Epoch != before.Epoch || after.Finished || after.StopWanted || after.PauseWanted != 0 || len(after.Members) != 3 || after.LeaderTerm != before.LeaderTerm {
			t.Errorf("the state changed: %s", describe(after))
		}
	})
}

// insist proposes an entry without asking itself whether it may.
func (n *Node) insist(t *testing.T, e Entry) error {
	return n.try(t.Context(), request{op: opPropose, hops: 1, body: n.signed(t, e)}, 0)
}

// Bytes that a member sends past its own client: signed by another, for another run, changed, and repeated.
func TestForgedProposals(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		l, f := c.leader(), c.follower()
		stop := WantStop{}
		other := &author{Signer: keyOf("mallory"), self: f.self, run: "run"}
		elsewhere := &author{Signer: keyOf(l.self), self: l.self, run: "another run"}
		forge := func(a *author, as plan.PeerID, e Entry) []byte {
			p, err := a.sign(l.State(), e)
			if err != nil {
				t.Fatal(err)
			}
			p.author = as
			return p.encode()
		}
		bare, _ := EncodeEntry(stop)
		changed := l.signed(t, stop)
		changed[len(changed)-len("{}")-SignatureBytes-8]++ // its counter
		for name, b := range map[string][]byte{
			"another's name":      forge(f.author, "a", stop),
			"another's key":       forge(other, "a", stop),
			"of another run":      forge(elsewhere, l.self, stop),
			"unsigned":            bare,
			"with another number": changed,
		} {
			if r := f.handle(t.Context(), "c", request{op: opPropose, hops: 1, body: b}); r.code != codeRejected {
				t.Errorf("%s: %d %s", name, r.code, r.body)
			}
		}

		c.must(l, WantStop{})
		again := l.signed(t, Resume{Incarnation: 2})
		if r := f.handle(t.Context(), "c", request{op: opPropose, hops: 1, body: again}); r.code != codeDone {
			t.Fatalf("%d %s", r.code, r.body)
		}
		c.everywhere("the resume", func(s State) bool { return s.Incarnation == 2 })
		if r := f.handle(t.Context(), "c", request{op: opPropose, hops: 1, body: again}); r.code == codeDone {
			t.Error("an entry of the incarnation before counts again")
		}
		once := l.signed(t, WantPause{Count: 1})
		for i, want := range []byte{codeDone, codeRejected} {
			if r := f.handle(t.Context(), "c", request{op: opPropose, hops: 1, body: once}); r.code != want {
				t.Errorf("time %d: %d %s", i+1, r.code, r.body)
			}
		}
		if s := l.State(); s.StopWanted {
			t.Error("a forged stop counts")
		}
	})
}

// Proposals of one node overtake one another on their way; each counts once.
func TestCountersOutOfOrder(t *testing.T) {
	s := State{Members: []Member{{Peer: "a", Counter: 1000, Window: 1}}}
	for _, step := range []struct {
		counter uint64
		ok      bool
	}{
		{1000, false},
		{999, true},
		{999, false},
		{1002, true},
		{1001, true},
		{1001, false},
		{1000, false},
		{1065, true},
		{1001, false},
		{1002, false},
		{1003, true},
		{1003, false},
		{1004, true},
		{5000, true},
		{1065, false},
		{4937, true},
		{4936, false},
		{4937, false},
	} {
		next, err := s.carryOut(proposal{author: "a", counter: step.counter, entry: WantStop{}}, 1, time.Time{})
		if errors.Is(err, ErrForbidden) == step.ok { // else it is refused since there is no run, and counted
			t.Errorf("counter %d: %v", step.counter, err)
		}
		s = next
	}
}

// Entries that a node proposes at once are all taken, whichever comes first; so are those of a node whose clock was
// set back.
func TestProposalsAtOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		f := c.follower()
		m, _ := f.State().Member(f.self)
		var late [][]byte
		for range 20 {
			late = append(late, f.signed(t, Update{Peer: f.self, ProcessEpoch: m.ProcessEpoch}))
			time.Sleep(time.Second)
		}
		for _, i := range []int{19, 0, 18, 1, 10} {
			if r := f.handle(t.Context(), "c", request{op: opPropose, hops: 1, body: late[i]}); r.code != codeDone {
				t.Errorf("number %d: %d %s", i, r.code, r.body)
			}
		}
		f.author.mu.Lock()
		f.author.last = 1 // as after a start with another clock
		f.author.mu.Unlock()
		c.everywhere("the counter", func(s State) bool { m, _ := s.Member(f.self); return m.Window != 0 })
		c.must(f, Update{Peer: f.self, ProcessEpoch: m.ProcessEpoch})
	})
}

// A leader elected while entries of the leader before are under way counts as the leader for its own term alone.
func TestTheLeaderBeforeHasNoSay(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		old := c.leader()
		late := old.signed(t, WantPause{Count: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := old.engine.Load().raft.LeadershipTransfer().Error(); err != nil {
			t.Fatal(err)
		}
		c.until("another leader", func() bool { l := c.leader(); return l != nil && l != old && l.State().Leader == l.self })
		before, _ := c.leader().State().Member(old.self)
		for _, e := range []Entry{WantPause{Count: 1}, SetMemberState{Peer: "c", State: Gone}} {
			if err := old.Propose(ctx, e); !errors.Is(err, ErrStale) || errors.Is(err, ErrForbidden) {
				t.Errorf("%T: %v", e, err)
			}
		}
		if m, _ := c.leader().State().Member(old.self); m.Counter != before.Counter {
			t.Error("what only the leader may propose was sent to the next one")
		}
		if r := old.handle(ctx, "c", request{op: opPropose, hops: 1, body: late}); r.code != codeRejected || c.leader().State().PauseWanted != 0 {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// A member that proposes large entries in a loop is held to its share; the others go on.
func TestFloodOfProposals(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		l, f := c.leader(), c.follower()
		m, _ := l.State().Member(f.self)
		large := Update{Peer: f.self, ProcessEpoch: m.ProcessEpoch, Addrs: []string{strings.Repeat("x", maxText)}}
		for i := range plan.MaxLinks {
			large.Profile.Links = append(large.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprint("p", i))})
		}
		const seconds = 20
		begin, taken := time.Now(), 0
		for time.Since(begin) < seconds*time.Second {
			b := f.signed(t, large)
			switch r := l.handle(t.Context(), f.self, request{op: opPropose, body: b}); r.code {
			case codeDone:
				taken++
			case codeRetry:
				time.Sleep(100 * time.Millisecond)
			default:
				t.Fatalf("%d %s", r.code, r.body)
			}
		}
		if taken < proposalsBurst || taken > proposalsBurst+(seconds+1)*proposalsPerS {
			t.Errorf("%d entries in %d s, want %d and %d a second", taken, seconds, proposalsBurst, proposalsPerS)
		}
		if _, err := EncodeEntry(Finish{Sample: strings.Repeat("x", 8*MaxSampleBytes)}); !errors.Is(err, ErrMalformed) {
			t.Errorf("a long sample is encoded: %v", err)
		}
		if err := checkSize(kindOf(WantPause{}), maxSmallBytes+1); !errors.Is(err, ErrMalformed) {
			t.Errorf("an entry without a body that large: %v", err)
		}
		b := f.signed(t, large)
		if r := l.handle(t.Context(), "b", request{op: opPropose, body: b}); f.self != "b" && r.code != codeDone {
			t.Errorf("another member: %d %s", r.code, r.body)
		}
	})
}

// A node that was gone while the run was resumed knows an older incarnation, and gets the log only once it joins.
func TestJoinFromAnEarlierIncarnation(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		const away = "b"
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		if err := c.nodes[away].engine.Load().raft.Snapshot().Error(); err != nil { // from which it knows the incarnation
			t.Fatal(err)
		}
		c.crash(away)
		c.gone(away)
		c.must(c.leader(), WantStop{})
		c.must(c.leader(), Resume{Incarnation: 2})
		n := c.join(away)
		if s := n.State(); s.Incarnation != 2 {
			t.Errorf("it knows incarnation %d", s.Incarnation)
		}
	})
}

// A member makes keys of its own and joins with each of them, so that the roster is full. Only those come in whom an
// owner's invite lets in.
func TestGhostsWithKeysOfTheirOwn(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.must(c.nodes["a"], fresh(testInvite(9, "a", 1, false)))
		liar := c.follower()
		for i := range 3 {
			ghost := plan.PeerID(rune('x' + i))
			p, err := (&author{Signer: keyOf(ghost), self: ghost, run: "run"}).sign(liar.State(), Join{Peer: ghost, ProcessEpoch: 1})
			if err != nil {
				t.Fatal(err)
			}
			if r := c.leader().handle(t.Context(), liar.self, request{op: opPropose, body: p.encode()}); r.code != codeRejected {
				t.Errorf("%s: %d %s", ghost, r.code, r.body)
			}
		}
		c.must(liar, testRedeem(9, "d", "d"))
		c.join("d")
		if s := c.leader().State(); len(s.Members) != 4 {
			t.Errorf("%d members", len(s.Members))
		}
	})
}

// A member joins again and again, which makes every plan out of date that is being searched for.
func TestJoinInALoop(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		l, f := c.leader(), c.follower()
		before, begin := l.State().Epoch, time.Now()
		for time.Since(begin) < time.Minute {
			c.epochs++
			l.handle(t.Context(), f.self, request{op: opPropose, body: f.signed(t, Join{Peer: f.self, ProcessEpoch: c.epochs})})
			time.Sleep(100 * time.Millisecond)
		}
		if joins := l.State().Epoch - before; joins < joinsBurst || joins > joinsBurst+7 {
			t.Errorf("%d joins in a minute, want %d and one in %v", joins, joinsBurst, joinEvery)
		}
		c.must(c.nodes["a"], WantPause{Count: 1})
	})
}

// leaderAndOthers returns the node that leads, and all others.
func (c *cluster) leaderAndOthers() (l *Node, others []*Node) {
	l = c.leader()
	for _, p := range c.peers {
		if p != l.self {
			others = append(others, c.nodes[p])
		}
	}
	return l, others
}

// A member floods the leader through another node: it is held to its own share, and the other's is left to that one.
func TestFloodThroughAnother(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		l, others := c.leaderAndOthers()
		flooder, through := others[0], others[1]
		m, _ := l.State().Member(flooder.self)
		refused := 0
		for range 2 * proposalsBurst {
			b := flooder.signed(t, Update{Peer: flooder.self, ProcessEpoch: m.ProcessEpoch})
			if r := l.handle(t.Context(), through.self, request{op: opPropose, body: b}); r.code == codeRetry {
				refused++
			}
		}
		if refused == 0 {
			t.Error("nothing is refused")
		}
		m, _ = l.State().Member(through.self)
		b := through.signed(t, Update{Peer: through.self, ProcessEpoch: m.ProcessEpoch})
		if r := l.handle(t.Context(), through.self, request{op: opPropose, body: b}); r.code != codeDone {
			t.Errorf("the one it went through: %d %s", r.code, r.body)
		}
	})
}

// A member sends again what another has signed, to the leader and through a third: that is on its own account.
func TestFloodOfAnothersOldProposals(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		l, others := c.leaderAndOthers()
		author, liar, through := others[0], others[1].self, others[2]
		update := func(n *Node) []byte {
			m, _ := l.State().Member(n.self)
			return n.signed(t, Update{Peer: n.self, ProcessEpoch: m.ProcessEpoch})
		}
		old := update(author)
		if r := l.handle(t.Context(), author.self, request{op: opPropose, body: old}); r.code != codeDone {
			t.Fatalf("%d %s", r.code, r.body)
		}
		p, _ := l.author.open(old)
		c.everywhere("the entry", func(s State) bool { m, _ := s.Member(author.self); return m.Counter == p.counter })
		written := l.engine.Load().raft.LastIndex()
		for range 2 * proposalsBurst {
			if r := l.handle(t.Context(), liar, request{op: opPropose, body: old}); r.code == codeDone {
				t.Fatal("an old entry counts again")
			}
			if r := through.handle(t.Context(), liar, request{op: opPropose, hops: 1, body: old}); r.code == codeDone {
				t.Fatal("an old entry counts again, through another")
			}
		}
		if now := l.engine.Load().raft.LastIndex(); now > written+proposalsBurst {
			t.Errorf("%d entries are written", now-written)
		}
		for _, n := range []*Node{author, through} {
			if r := l.handle(t.Context(), n.self, request{op: opPropose, body: update(n)}); r.code != codeDone {
				t.Errorf("%s pays for it: %d %s", n.self, r.code, r.body)
			}
		}
	})
}

// A member floods the leader in the names of keys that it makes: that is on its own account.
func TestFloodWithKeysOfItsOwn(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		l, f := c.leader(), c.follower()
		taken := 0
		for i := range 2 * proposalsBurst {
			ghost := plan.PeerID(fmt.Sprint("ghost", i))
			p, err := (&author{Signer: keyOf(ghost), self: ghost, run: "run"}).sign(l.State(), WantStop{})
			if err != nil {
				t.Fatal(err)
			}
			if r := l.handle(t.Context(), f.self, request{op: opPropose, body: p.encode()}); r.code != codeRetry {
				taken++
			}
		}
		if taken > proposalsBurst+proposalsPerS*20 || taken == 2*proposalsBurst {
			t.Errorf("%d of %d are taken", taken, 2*proposalsBurst)
		}
	})
}

// countingKey counts the signatures that it checks.
type countingKey struct {
	Signer
	checked int
}

func (k *countingKey) Verify(peer plan.PeerID, message, signature []byte) error {
	k.checked++
	return k.Signer.Verify(peer, message, signature)
}

// The leader checks the signature of what a member proposes once, and of what is beyond the member's quota never. What does not hold
// is not remembered.
func TestSignaturesAreCheckedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the quota fills with time
		key := &countingKey{Signer: keyOf("a")}
		leader, member := &author{Signer: key, self: "a", run: "run"}, &author{Signer: keyOf("b"), self: "b", run: "run"}
		s := State{Members: []Member{{Peer: "a"}, {Peer: "b"}, {Peer: "c"}}}
		var q quotas
		signed := func() []byte {
			t.Helper()
			p, err := member.sign(s, WantStop{})
			if err != nil {
				t.Fatal(err)
			}
			return p.encode()
		}
		for range proposalsBurst {
			b := signed()
			if _, err := q.open(leader, s, "b", b); err != nil {
				t.Fatal(err)
			}
			if _, err := leader.open(b); err != nil { // as it is committed
				t.Fatal(err)
			}
		}
		if key.checked != proposalsBurst {
			t.Errorf("%d signatures are checked for %d proposals", key.checked, proposalsBurst)
		}
		b := signed()
		if _, err := q.open(leader, s, "c", b); !errors.Is(err, errRetry) || key.checked != proposalsBurst {
			t.Errorf("beyond the quota: %v, and %d signatures are checked", err, key.checked-proposalsBurst)
		}
		time.Sleep(time.Second)
		b[2+len("b")+16] ^= 1 // in the signature
		for range 2 {
			before := key.checked
			if _, err := q.open(leader, s, "c", b); !errors.Is(err, ErrRejected) || key.checked == before {
				t.Errorf("a forged one: %v, %d signatures are checked", err, key.checked-before)
			}
		}
		for range 3 * len(leader.held.order) {
			if _, err := leader.open(signed()); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(leader.held.of); n != len(leader.held.order) {
			t.Errorf("%d are remembered, want %d", n, len(leader.held.order))
		}
	})
}

// A member holds every request that a node serves at a time; the others are still served.
func TestSlotsOfOnePeer(t *testing.T) {
	s := newSlots()
	take := func(p plan.PeerID) bool { return s.take(p, false) }
	for i := range maxRequestsOfOne {
		if !take("liar") {
			t.Fatalf("request %d is refused", i+1)
		}
	}
	if take("liar") {
		t.Error("one peer has more than its share")
	}
	if !take("b") {
		t.Error("another is not served")
	}
	s.release("liar", false)
	if !take("liar") {
		t.Error("a place that is free again is not given")
	}
	for take(plan.PeerID(fmt.Sprint("p", len(s.of)))) { // one each
	}
	if served := len(s.of) - 2; served != maxRequests-maxRequestsOfOne-1 {
		t.Errorf("%d others are served", served)
	}
}

// Members hold all requests that a node serves at a time, with streams that send nothing: a voter's new stream of raft is
// served all the same.
func TestVotersStreamsHaveSlotsOfTheirOwn(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		f, l := c.follower(), c.leader()
		for i := 0; f.requests.take(plan.PeerID(fmt.Sprint("p", i/maxRequestsOfOne)), f.votes("p")); i++ {
			defer f.requests.release(plan.PeerID(fmt.Sprint("p", i/maxRequestsOfOne)), false)
		}
		_, term, _ := f.Leader()
		l.engine.Load().layer.mu.Lock()
		for s := range l.engine.Load().layer.conns {
			s.Reset()
		}
		l.engine.Load().layer.mu.Unlock()
		time.Sleep(20 * heartbeatTimeout)
		if leader, now, _ := f.Leader(); leader != l.self || now != term {
			t.Errorf("%q leads in term %d, before %s in %d", leader, now, l.self, term)
		}
	})
}

// A member signs the largest counter: that shuts out itself, and nobody else.
func TestLargestCounter(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		l, f := c.leader(), c.follower()
		m, _ := l.State().Member(f.self)
		f.author.mu.Lock()
		f.author.last = math.MaxUint64 - 1
		f.author.mu.Unlock()
		c.must(f, Update{Peer: f.self, ProcessEpoch: m.ProcessEpoch})
		if err := f.Propose(t.Context(), Update{Peer: f.self, ProcessEpoch: m.ProcessEpoch}); !errors.Is(err, ErrRejected) {
			t.Errorf("after the largest counter: %v", err)
		}
		c.must(l, WantPause{Count: 1})
	})
}

// TestALateReportOfAPlanBeforeIsStale: whose layers another worker has by now was at work when the plan changed, and lies to
// nobody.
func TestALateReportOfAPlanBeforeIsStale(t *testing.T) {
	layers := []LayerRef{{SizeBytes: 1, Chunks: make([]plan.Hash, 1), Holders: []plan.PeerID{"a"}}}
	s := State{
		Members: []Member{{Peer: "a", State: Active}, {Peer: "b", State: Active}},
		Plan: plan.Plan{Generation: 2, Replicas: []plan.Pipeline{
			{Stages: []plan.Placement{{Peer: "b", Layers: plan.LayerRange{End: 1}}}},
		}},
	}
	for g, want := range map[plan.Generation]error{1: ErrStale, 2: ErrForbidden, 3: ErrForbidden} {
		if err := Authorize(s, Author{Peer: "a"}, StageSaved{Step: 5, Generation: g, Layers: layers}); !errors.Is(err, want) {
			t.Errorf("generation %d: %v", g, err)
		}
	}
}
