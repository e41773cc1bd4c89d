package consensus

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

func TestCheckPeer(t *testing.T) {
	servers := []Server{{"a", true}, {"b", true}, {"d", false}}
	s := State{Vouchers: []Voucher{{Number: 7, From: []plan.PeerID{"a", "b", "c"}, Voters: []plan.PeerID{"a", "b", "e"}}}}
	owned := s
	owned.Owners = peersOf("o")
	removed := s
	removed.Revoked = []Revocation{{Peer: "o", By: "a"}}
	for _, c := range []struct {
		name    string
		peer    plan.PeerID
		servers []Server
		state   State
		shown   uint64
		owners  string // whose marks that rests on
		taken   bool
	}{
		{"a voter", "a", servers, s, 0, "", true},
		{"a member without a vote", "d", servers, s, 0, "", false},
		{"one that was never added", "x", servers, s, 0, "", false},
		{"one that is about to vote", "e", servers, s, 0, "", true},
		{"one that has lost its vote", "c", servers, s, 0, "", false},
		{"and shows a voucher of before", "c", servers, s, 7, "", false},
		{"one that shows a newer voucher", "x", servers, s, 8, "", true},
		{"of an owner", "x", servers, s, 8, "o", true},
		{"of an owner in the log", "x", servers, owned, 8, "o", true},
		{"of one that the log does not have as an owner", "x", servers, owned, 8, "o,p", false},
		{"of an owner that was removed since", "x", servers, removed, 8, "o", false},
		{"joining: without a voucher", "a", nil, State{}, 0, "", false},
		{"joining: with one", "a", nil, State{}, 1, "", true},
	} {
		if err := checkPeer(c.peer, c.servers, c.state, len(c.state.Owners) > 0, proof{Newest: c.shown, Owners: peersOf(c.owners)}); (err == nil) != c.taken || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestCheckMessage(t *testing.T) {
	header := func(p string) raft.RPCHeader { return raft.RPCHeader{ID: []byte(p), Addr: []byte(p)} }
	for name, c := range map[string]struct {
		message any
		taken   bool
	}{
		"entries":                        {&raft.AppendEntriesRequest{RPCHeader: header("b"), Term: 9}, true},
		"as another":                     {&raft.AppendEntriesRequest{RPCHeader: header("a"), Term: 9}, false},
		"with another's address":         {&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ID: []byte("b"), Addr: []byte("a")}, Term: 9}, false},
		"without a name":                 {&raft.AppendEntriesRequest{Term: 9}, false},
		"in a term far ahead":            {&raft.AppendEntriesRequest{RPCHeader: header("b"), Term: 1 << 41}, false},
		"in a later term":                {&raft.AppendEntriesRequest{RPCHeader: header("b"), Term: 9 + maxTermRaise}, true},
		"a snapshot far ahead":           {&raft.InstallSnapshotRequest{RPCHeader: header("b"), Term: 1 << 41}, false},
		"a vote far ahead":               {&raft.RequestVoteRequest{RPCHeader: header("b"), Term: 1 << 41}, false},
		"a vote for another":             {&raft.RequestVoteRequest{RPCHeader: header("a"), Term: 10}, false},
		"a question for votes far ahead": {&raft.RequestPreVoteRequest{RPCHeader: header("b"), Term: 1 << 41}, false},
		"a question for votes":           {&raft.RequestPreVoteRequest{RPCHeader: header("b"), Term: 10}, true},
		"leadership of another":          {&raft.TimeoutNowRequest{RPCHeader: header("b")}, false},
	} {
		if err := checkMessage("b", "a", c.message, 9); (err == nil) != c.taken || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkMessage("a", "a", &raft.TimeoutNowRequest{RPCHeader: header("a")}, 9); err != nil {
		t.Errorf("the leader hands over: %v", err)
	}
}

// spare returns the one of four nodes that has no vote, once the other three have.
func (c *cluster) spare() *Node {
	c.t.Helper()
	c.until("three voters", func() bool { return len(c.leader().Servers()) == 3 && len(c.spares()) == 1 })
	return c.spares()[0]
}

// A member without a vote forges messages of raft, in a term far ahead: nobody listens, and the leader stays.
func TestForgedAppendEntries(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		liar, l := c.spare(), c.leader()
		_, term, _ := l.Leader()
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		for _, victim := range c.peers {
			if victim == liar.self {
				continue
			}
			q := &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(liar.self), Addr: []byte(liar.self)},
				Term:      1 << 41, LeaderCommitIndex: 1 << 20,
			}
			var r raft.AppendEntriesResponse
			if err := liar.engine.Load().transport.NetworkTransport.AppendEntries(raft.ServerID(victim), raft.ServerAddress(victim), q, &r); err == nil {
				t.Errorf("%s answers: %+v", victim, r)
			}
		}
		time.Sleep(2 * heartbeatTimeout)
		if now, _, self := l.Leader(); now != l.self || !self {
			t.Errorf("%s leads", now)
		}
		if _, after, _ := l.Leader(); after != term {
			t.Errorf("the term went from %d to %d", term, after)
		}
		c.must(l, WantPause{Count: 1})
	})
}

// A member without a vote answers the leader in a term far ahead, again and again.
func TestAnswerOfAForgedTerm(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		spare, l := raft.ServerID(c.spare().self), c.leader()
		if err := l.engine.Load().transport.checkTerm(spare, 5, 1<<41); !errors.Is(err, ErrForbidden) {
			t.Errorf("a term far ahead: %v", err)
		}
		clear(l.engine.Load().transport.raised)
		for i, ok := range []bool{true, false, false} {
			if err := l.engine.Load().transport.checkTerm(spare, 5, 6); (err == nil) != ok {
				t.Errorf("time %d: %v", i+1, err)
			}
		}
		other := slices.IndexFunc(c.peers, func(p plan.PeerID) bool { return p != l.self && raft.ServerID(p) != spare })
		for _, later := range []uint64{6, 7, 5 + maxTermRaise} {
			if err := l.engine.Load().transport.checkTerm(raft.ServerID(c.peers[other]), 5, later); err != nil {
				t.Errorf("a voter in term %d: %v", later, err)
			}
		}
		if err := l.engine.Load().transport.checkTerm(raft.ServerID(c.peers[other]), 5, 1<<41); !errors.Is(err, ErrForbidden) {
			t.Errorf("a voter in a term far ahead: %v", err)
		}
	})
}

// Who loses its vote is not listened to any more, on streams of before either.
func TestStreamsOfBeforeAreClosed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l, f := c.leader(), c.follower()
		incoming := func() (conns []*conn) {
			f.engine.Load().layer.mu.Lock()
			defer f.engine.Load().layer.mu.Unlock()
			for s := range f.engine.Load().layer.conns {
				if s.shown != nil {
					conns = append(conns, s)
				}
			}
			return conns
		}
		c.until("a stream of the leader", func() bool { return len(incoming()) > 0 })
		before := incoming()
		f.engine.Load().layer.prune(func(*conn) error { return ErrForbidden })
		c.until("the end of all of before", func() bool {
			return !slices.ContainsFunc(incoming(), func(s *conn) bool { return slices.Contains(before, s) })
		})
		m, _ := l.State().Member(l.self)
		c.must(l, Update{Peer: l.self, ProcessEpoch: m.ProcessEpoch}) // over new ones
		c.until("a new stream", func() bool { return len(incoming()) > 0 })
	})
}

// An owner that was removed makes nobody a voter, of a node whose log has the removal, on streams of before either.
func TestVouchersOfARemovedOwner(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		liar := c.spare()
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		c.must(c.nodes["a"], fresh(testInvite(77, "a", 1, true)))
		c.must(c.nodes["a"], testRedeem(77, "b", "b"))
		number := c.leader().State().Vouchers[0].Number
		b, err := json.Marshal([]Voucher{made(number+50, 1, string(liar.self), string(liar.self), "a")})
		if err != nil {
			t.Fatal(err)
		}
		before, err := c.nodes["c"].engine.Load().transport.greet(liar.self, b)
		if err != nil {
			t.Fatalf("while it is an owner: %v", err)
		}
		c.must(c.nodes["b"], Revoke{By: "b", Peer: "a"})
		c.until("the removal", func() bool { return !c.nodes["c"].State().Owner("a") })
		if shown, err := c.nodes["c"].engine.Load().transport.greet(liar.self, b); !errors.Is(err, ErrForbidden) {
			t.Errorf("afterwards: %+v, %v", shown, err)
		}
		if err := c.nodes["c"].takes(liar.self, before); !errors.Is(err, ErrForbidden) {
			t.Errorf("on a stream of before: %v", err)
		}
	})
}

// Who has the secret of an invite for owners that is used up, ended or revoked binds a key to a good proof that it is an
// owner, and vouches for a member: no node whose log has the owners takes it, nor on a stream of before.
func TestVoucherByADeadInviteForOwners(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		liar := c.spare()
		v := Voucher{Number: math.MaxUint64, Term: 1 << 60, From: []plan.PeerID{liar.self}, Voters: []plan.PeerID{liar.self}}
		signature, _ := keyOf("z").Sign(v.message("run"))
		v.Signatures = []VoterMark{{Peer: "z", Signature: signature, Owner: []byte("owner z")}}
		b, err := json.Marshal([]Voucher{v})
		if err != nil {
			t.Fatal(err)
		}
		c.everywhere("the run", func(s State) bool { return s.Run != nil && len(s.Members) == 4 })
		for _, p := range c.peers {
			n := c.nodes[p]
			if p == liar.self {
				continue
			}
			n.author.owner = func(plan.PeerID, []byte) error { return nil }
			if shown, err := n.engine.Load().transport.greet(liar.self, b); !errors.Is(err, ErrForbidden) {
				t.Errorf("%s: %+v, %v", p, shown, err)
			}
			before := proof{Newest: v.Number, Term: v.Term, Owners: []plan.PeerID{"z"}}
			if err := n.takes(liar.self, before); !errors.Is(err, ErrForbidden) {
				t.Errorf("%s: on a stream of before: %v", p, err)
			}
		}
	})
}
