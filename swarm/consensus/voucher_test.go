package consensus

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

// made returns a voucher that peers sign, one of whom may be the owner a.
func made(number uint64, term plan.Term, from, voters, by string) Voucher {
	v := Voucher{Number: number, Term: term, From: peersOf(from), Voters: peersOf(voters)}
	for _, p := range peersOf(by) {
		signature, _ := keyOf(p).Sign(v.message("run"))
		m := VoterMark{Peer: p, Signature: signature}
		if p == "a" {
			m.Owner = []byte("owner a")
		}
		v.Signatures = append(v.Signatures, m)
	}
	return v
}

// peersOf splits names that have commas between them.
func peersOf(names string) (peers []plan.PeerID) {
	for _, p := range list(names) {
		peers = append(peers, plan.PeerID(p))
	}
	return peers
}

// TestFollowVouchers: which vouchers make x a voter, for a node that knows the voters b, c, d.
func TestFollowVouchers(t *testing.T) {
	a := &author{Signer: keyOf("x"), self: "x", run: "run", owner: testOwner}
	here := trust{Sets: [][]plan.PeerID{peersOf("b,c,d")}, Newest: 4, Term: 9}
	signedBy := func(v Voucher, by string, name plan.PeerID) Voucher {
		signature, _ := keyOf(plan.PeerID(by)).Sign(v.message("run"))
		v.Signatures = append(v.Signatures, VoterMark{Peer: name, Signature: signature})
		return v
	}
	forged := made(5, 9, "b,c,d", "b,c,d,x", "")
	removed := here
	removed.Removed = peersOf("a")
	owned, foreign := here, here
	owned.Logged, owned.Owners = true, peersOf("a")
	foreign.Logged, foreign.Owners = true, peersOf("o")
	for name, c := range map[string]struct {
		known trust
		shown []Voucher
		taken bool
	}{
		"nothing":                           {here, nil, false},
		"an owner's":                        {here, []Voucher{made(5, 9, "e", "x", "a")}, true},
		"an owner's, joining":               {trust{}, []Voucher{made(5, 9, "e", "x", "a")}, true},
		"an owner's, who was removed":       {removed, []Voucher{made(5, 9, "e", "x", "a")}, false},
		"most voters', after such a one":    {removed, []Voucher{made(5, 9, "b,c,d", "b,c,d", "a"), made(6, 9, "b,c,d", "b,c,d,x", "b,c")}, true},
		"an owner's that the log has":       {owned, []Voucher{made(5, 9, "e", "x", "a")}, true},
		"an owner's that the log has not":   {foreign, []Voucher{made(5, 9, "e", "x", "a")}, false},
		"and far ahead":                     {foreign, []Voucher{made(5, 1<<41, "b,c,d", "b,c,d,x", "a,b,c")}, false},
		"of most voters, too":               {foreign, []Voucher{made(5, 9, "a,b", "a,b", "a,b"), made(6, 9, "b,c,d", "b,c,d,x", "a,b,c")}, true},
		"an owner's of before":              {here, []Voucher{made(4, 9, "e", "x", "a")}, false},
		"most voters'":                      {here, []Voucher{made(5, 9, "b,c,d", "b,c,d,x", "b,c")}, true},
		"most voters', joining":             {trust{}, []Voucher{made(5, 9, "b,c,d", "b,c,d,x", "b,c")}, false},
		"one voter's":                       {here, []Voucher{made(5, 9, "b,c,d", "b,c,d,x", "b")}, false},
		"its own":                           {here, []Voucher{made(5, 9, "x", "x", "x")}, false},
		"as an owner, who it is not":        {here, []Voucher{{Number: 5, From: peersOf("x"), Voters: peersOf("x"), Signatures: []VoterMark{{Peer: "x", Signature: made(5, 0, "x", "x", "x").Signatures[0].Signature, Owner: []byte("owner x")}}}}, false},
		"with the signatures of others":     {here, []Voucher{signedBy(signedBy(forged, "x", "b"), "x", "c")}, false},
		"signed twice by one":               {here, []Voucher{signedBy(signedBy(forged, "b", "b"), "b", "b")}, false},
		"a chain":                           {here, []Voucher{made(5, 9, "b,c,d", "c,d,e", "b,c"), made(6, 9, "c,d,e", "d,e,x", "d,e")}, true},
		"a chain with a gap":                {here, []Voucher{made(5, 9, "b,c,d", "c,d,e", "b,c"), made(6, 9, "d,e,f", "e,f,x", "d,e")}, false},
		"a chain that ends without it":      {here, []Voucher{made(5, 9, "b,c,d", "c,d,x", "b,c"), made(6, 9, "c,d,x", "c,d", "c,d"), made(7, 9, "c,d", "c,d", "c,d")}, false},
		"a chain in disorder":               {here, []Voucher{made(6, 9, "c,d,e", "d,e,x", "d,e"), made(5, 9, "b,c,d", "c,d,e", "b,c")}, false},
		"in a term far ahead":               {here, []Voucher{made(5, 1<<41, "b,c,d", "b,c,d,x", "b,c")}, false},
		"in a term far ahead, by the owner": {here, []Voucher{made(5, 1<<41, "b,c,d", "b,c,d,x", "a")}, true},
		"changed":                           {here, []Voucher{func() Voucher { v := made(5, 9, "e", "y", "a"); v.Voters = peersOf("x"); return v }()}, false},
	} {
		shown, err := a.follow("x", c.shown, c.known)
		if (err == nil) != c.taken || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %+v, %v", name, shown, err)
		}
		if err == nil && shown.Newest != c.shown[len(c.shown)-1].Number {
			t.Errorf("%s: %+v", name, shown)
		}
	}
}

// forge has a node send entries of a term with its own client patched: it shows what it likes.
func (n *Node) forge(victim plan.PeerID, shown []Voucher, term uint64) error {
	b, err := json.Marshal(shown)
	if err != nil {
		return err
	}
	shows := n.engine.Load().layer.shows
	n.engine.Load().layer.shows = func() []byte { return b }
	defer func() { n.engine.Load().layer.shows = shows }()
	q := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.self), Addr: []byte(n.self)},
		Term:      term, LeaderCommitIndex: 1 << 20,
	}
	var r raft.AppendEntriesResponse
	n.engine.Load().transport.CloseStreams()
	return n.engine.Load().transport.NetworkTransport.AppendEntries(raft.ServerID(victim), raft.ServerAddress(victim), q, &r)
}

// pushes has a member without a vote try to lead a node that cannot know the voters now, and wants it to fail.
func (c *cluster) pushes(liar *Node, victim *Node) {
	c.t.Helper()
	before := victim.engine.Load().raft.CurrentTerm()
	real := liar.State().Vouchers
	own := made(1<<30, 9, string(liar.self), string(liar.self), string(liar.self))
	owner := own
	owner.Signatures = slices.Clone(own.Signatures)
	owner.Signatures[0].Owner = []byte("owner a")
	for name, shown := range map[string][]Voucher{
		"nothing": nil, "those of the run": real, "its own": {own}, "its own as the owner": {owner}, "both": append(slices.Clone(real), own, owner),
	} {
		for _, term := range []uint64{before + 1, 1 << 41} {
			if err := liar.forge(victim.self, shown, term); err == nil {
				c.t.Errorf("showing %s, in term %d: taken", name, term)
			}
		}
	}
	if after := victim.engine.Load().raft.CurrentTerm(); after != before {
		c.t.Errorf("the term went from %d to %d", before, after)
	}
	if leader, _, _ := victim.Leader(); leader == liar.self {
		c.t.Error("the liar leads")
	}
}

// A member without a vote finds a node that joins, and knows nobody yet.
func TestForgedAppendEntriesToOneThatJoins(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		liar := c.spare()
		c.net.partition(liar.self, "e")
		n := c.start("e")
		c.pushes(liar, n)
		c.net.partition()
		c.join("f")
		c.epochs++
		c.letIn("e")
		c.must(n, Join{Peer: "e", ProcessEpoch: c.epochs})
		c.until("the run at the new node", func() bool { return n.State().Run != nil })
	})
}

// A member without a vote finds a node that starts and does not reach the voters yet, and one that has lost them.
func TestForgedAppendEntriesToALonelyNode(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		liar := c.spare()
		victim := c.nodes["c"]
		if victim == liar {
			victim = c.nodes["b"]
		}
		c.net.partition(liar.self, victim.self)
		c.until("that no leader is known", func() bool { l, _, _ := victim.Leader(); return l == "" })
		time.Sleep(time.Minute)
		c.pushes(liar, victim)
		c.crash(victim.self)
		victim = c.start(victim.self)
		c.pushes(liar, victim)
		c.net.partition()
		c.until("the run at the node that starts", func() bool { _, ok := victim.State().Member(victim.self); return ok })
		c.goesOn(victim)
	})
}

// A voter sends messages of raft in the name of the leader: the stream ends, and nobody takes them.
func TestMessageInAnothersName(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		l := c.leader()
		var others []*Node
		for _, p := range c.peers {
			if p != l.self {
				others = append(others, c.nodes[p])
			}
		}
		term := l.engine.Load().raft.CurrentTerm()
		for _, as := range []struct{ id, addr plan.PeerID }{{l.self, l.self}, {others[0].self, l.self}, {l.self, others[0].self}} {
			q := &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(as.id), Addr: []byte(as.addr)},
				Term:      term, LeaderCommitIndex: 1 << 20,
			}
			var r raft.AppendEntriesResponse
			to := others[1].self
			if err := others[0].engine.Load().transport.NetworkTransport.AppendEntries(raft.ServerID(to), raft.ServerAddress(to), q, &r); err == nil {
				t.Errorf("as %v: %+v", as, r)
			}
		}
		c.goesOn(others[1])
	})
}

// A node comes back to a run whose voters have all changed, and whose owner has left before the last ones did.
func TestReturnAfterAllVotersChanged(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		away := c.spare().self
		if away == "a" {
			t.Fatal("the founder has no vote")
		}
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		before := votersOf(c.leader().Servers())
		c.crash(away)
		c.gone(away)
		for _, p := range []plan.PeerID{"e", "f", "g"} {
			c.join(p)
		}
		for _, p := range before {
			if err := c.nodes[p].Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.crash(p)
			c.until("the next leader", func() bool { return c.leader() != nil })
		}
		c.settle(3)
		s := c.leader().State()
		if v := s.Vouchers[len(s.Vouchers)-1]; v.byOwner() || !slices.Equal(v.Voters, peersOf("e,f,g")) {
			t.Errorf("the newest voucher is %+v", v)
		}
		n := c.join(away)
		c.until("the state at the node that was away", func() bool { return len(n.State().Vouchers) == len(s.Vouchers) })
		c.goesOn(n)
		j := c.join("x")
		c.goesOn(j)
	})
}

// An owner that comes back vouches for the voters: nodes that know nobody need no longer a chain.
func TestOwnerVouchesAgain(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.crash("a")
		c.until("the next leader", func() bool { return c.leader() != nil })
		time.Sleep(2 * DeadAfter) // another votes in its place
		s := c.leader().State()
		if v := s.Vouchers[len(s.Vouchers)-1]; v.byOwner() || slices.Contains(v.Voters, "a") {
			t.Fatalf("the newest voucher is %+v", v)
		}
		c.start("a")
		time.Sleep(ownerVoucherEvery)
		c.until("the owner's voucher", func() bool {
			s := c.leader().State()
			return len(s.Vouchers) == 1 && s.Vouchers[0].byOwner() && s.Vouchers[0].byVoters() // for who does not know the owner, too
		})
	})
}

// Of the marks of two owners and a voter, the oldest owner's proof stays, and each voter's signature.
func TestChosenMarks(t *testing.T) {
	v := Voucher{From: peersOf("b,c")}
	mark := func(p, owner string) VoterMark {
		return VoterMark{Peer: plan.PeerID(p), Signature: []byte{1}, Owner: []byte(owner)}
	}
	left := chosen(v, []VoterMark{mark("b", "later"), mark("c", ""), {}, mark("x", "later"), mark("z", "first")}, peersOf("z,b,x"))
	v.Signatures = left
	if len(left) != 3 || !v.byVoters() || !slices.Equal(v.owners(), peersOf("z")) {
		t.Errorf("%+v", left)
	}
}

// A voter signs for its leader alone, and one change at a time of voters that it knows.
func TestVotersSign(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		l, f := c.leader(), c.follower()
		c.everywhere("vouchers", func(s State) bool { return len(s.Vouchers) > 0 && slices.Equal(s.Vouchers[0].Voters, peersOf("a,b,c")) })
		number, term := l.State().Vouchers[0].Number, plan.Term(l.engine.Load().raft.CurrentTerm())
		for name, q := range map[string]struct {
			from plan.PeerID
			v    Voucher
			code byte
		}{
			"the next":           {l.self, made(number+1, term, "a,b,c", "a,b,c,d", ""), codeDone},
			"of a term to come":  {l.self, made(number+1, term+1, "a,b,c", "a,b,c,d", ""), codeRejected},
			"of another":         {f.self, made(number+1, term, "a,b,c", "a,b,c,d", ""), codeRejected},
			"two at once":        {l.self, made(number+1, term, "a,b,c", "a,b,c,d,e", ""), codeRetry},
			"others":             {l.self, made(number+1, term, "a,b,c", "a,b,d", ""), codeRetry},
			"far ahead":          {l.self, made(1<<63, term, "a,b,c", "a,b,c,d", ""), codeRetry},
			"one left out":       {l.self, made(number+2, term, "a,b,c", "a,b,c,d", ""), codeRetry},
			"of before":          {l.self, made(number, term, "a,b,c", "a,b,c,d", ""), codeRetry},
			"after none of them": {l.self, made(number+1, term, "b", "a,b,c", ""), codeRetry},
		} {
			body, _ := json.Marshal(q.v)
			r := f.handle(t.Context(), q.from, request{op: opVouch, body: body})
			if r.code != q.code {
				t.Errorf("%s: %d %s", name, r.code, r.body)
			}
		}
		if r := f.handle(t.Context(), f.self, request{op: opVouch, body: []byte("[")}); !errors.Is(r.err(), ErrRejected) || !strings.Contains(string(r.body), "does not lead") {
			t.Errorf("nonsense of another is read: %d %s", r.code, r.body)
		}
		if _, err := readRequest(bytes.NewReader(appendRequest(nil, request{op: opVouch, body: make([]byte, maxVoucherBytes+1)}))); !errors.Is(err, ErrMalformed) {
			t.Errorf("a voucher of %d bytes: %v", maxVoucherBytes+1, err)
		}
		if r := f.handle(t.Context(), l.self, request{op: opVouch, body: []byte(`{"number":`)}); r.code != codeRejected {
			t.Errorf("nonsense: %d %s", r.code, r.body)
		}
	})
}

// A leader puts vouchers into the log that nobody signed.
func TestForgedVoucher(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		l := c.leader()
		number := l.State().Vouchers[len(l.State().Vouchers)-1].Number
		bad := made(number+1, 1, "a,b,c", "x", "b,c")
		bad.Signatures[0].Signature[7]++
		for name, v := range map[string]Voucher{
			"a wrong signature": bad, "too few": made(number+1, 1, "a,b,c", "x", "b"), "voters who never were": made(number+1, 1, "x", "x", "x"),
			"many voters": made(number+1, 1, "a,b,c", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o", "b,c"), "of before": made(number, 1, "a,b,c", "x", "b,c"), "the one before the first": made(0, 1, "a,b,c", "x", "b,c"),
		} {
			if err := l.commit(t.Context(), l.signed(t, Vouch{v})); !errors.Is(err, ErrRejected) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := l.commit(t.Context(), l.signed(t, Vouch{made(number+1, 1<<41, "a,b,c", "a,b,c", "b,c")})); !errors.Is(err, ErrForbidden) {
			t.Errorf("of a term far ahead: %v", err)
		}
		if s := l.State(); s.Vouchers[len(s.Vouchers)-1].Number != number {
			t.Errorf("they count: %+v", s.Vouchers)
		}
		if err := c.follower().Propose(t.Context(), Vouch{made(number+1, 1, "a,b,c", "b,c,x", "b,c")}); !errors.Is(err, ErrRejected) {
			t.Errorf("another than the leader puts one into the log: %v", err)
		}
	})
}

// FuzzDecodeVouchers: what is accepted is within its bounds.
func FuzzDecodeVouchers(f *testing.F) {
	good, _ := json.Marshal([]Voucher{made(1, 2, "a", "a,b", "a")})
	f.Add(good)
	f.Add([]byte("[]"))
	f.Add([]byte(`[{"number":1,"from":[""]}]`))
	a := &author{Signer: keyOf("x"), self: "x", run: "run", owner: testOwner}
	f.Fuzz(func(t *testing.T, b []byte) {
		shown, err := decodeVouchers(b)
		if err != nil && !errors.Is(err, ErrMalformed) || len(shown) > maxVouchers {
			t.Errorf("%d, %v", len(shown), err)
		}
		if _, err := a.follow("z", shown, trust{}); err == nil && !strings.Contains(string(b), `"z"`) {
			t.Error("nobody made it a voter")
		}
	})
}
