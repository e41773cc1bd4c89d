package consensus

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

func TestCheckRaft(t *testing.T) {
	now := time.Unix(1000, 0)
	servers := []Server{{"a", true}, {"b", true}, {"c", true}, {"d", false}}
	led, electing := reign{leader: "a", known: true}, reign{known: true, lostSince: now.Add(-5 * time.Second)}
	lost := reign{known: true, lostSince: now.Add(-strangersAfter)}
	for _, c := range []struct {
		name    string
		peer    plan.PeerID
		servers []Server
		reign   reign
		taken   bool
	}{
		{"the leader", "a", servers, led, true},
		{"another voter, a candidate", "b", servers, led, true},
		{"a member without a vote", "d", servers, led, false},
		{"one that was never added", "x", servers, led, false},
		{"no vote, in an election", "d", servers, electing, false},
		{"voters may have changed while nobody led", "x", servers, lost, true},
		{"started a moment ago", "x", servers, reign{lostSince: now}, true},
		{"joining", "a", nil, reign{lostSince: now}, true},
	} {
		if err := checkRaft(c.peer, c.servers, c.reign, now); (err == nil) != c.taken || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// spare returns the one of four nodes that has no vote, once the other three have.
func (c *cluster) spare() *Node {
	c.t.Helper()
	var spare plan.PeerID
	c.until("three voters", func() bool {
		servers := c.leader().Servers()
		votes := 0
		for _, s := range servers {
			if s.Voter {
				votes++
			} else {
				spare = s.Peer
			}
		}
		return len(servers) == 4 && votes == 3
	})
	return c.nodes[spare]
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
				Term:      1 << 41, Leader: []byte(liar.self), LeaderCommitIndex: 1 << 20,
			}
			var r raft.AppendEntriesResponse
			if err := liar.transport.NetworkTransport.AppendEntries(raft.ServerID(victim), raft.ServerAddress(victim), q, &r); err == nil {
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
		if err := l.transport.checkTerm(spare, 5, 1<<41); !errors.Is(err, ErrForbidden) {
			t.Errorf("a term far ahead: %v", err)
		}
		clear(l.transport.raised)
		for i, ok := range []bool{true, false, false} {
			if err := l.transport.checkTerm(spare, 5, 6); (err == nil) != ok {
				t.Errorf("time %d: %v", i+1, err)
			}
		}
		other := slices.IndexFunc(c.peers, func(p plan.PeerID) bool { return p != l.self && raft.ServerID(p) != spare })
		if err := l.transport.checkTerm(raft.ServerID(c.peers[other]), 5, 6); err != nil {
			t.Errorf("a voter in a later term: %v", err)
		}
	})
}

// Who loses its vote is not listened to any more, on streams of before either.
func TestStreamsOfBeforeAreClosed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l, f := c.leader(), c.follower()
		incoming := func() (conns []*conn) {
			f.layer.mu.Lock()
			defer f.layer.mu.Unlock()
			for s := range f.layer.conns {
				if s.incoming {
					conns = append(conns, s)
				}
			}
			return conns
		}
		c.until("a stream of the leader", func() bool { return len(incoming()) > 0 })
		before := incoming()
		f.layer.prune(func(plan.PeerID) error { return ErrForbidden })
		c.until("the end of all of before", func() bool {
			return !slices.ContainsFunc(incoming(), func(s *conn) bool { return slices.Contains(before, s) })
		})
		m, _ := l.State().Member(l.self)
		c.must(l, Update{Peer: l.self, ProcessEpoch: m.ProcessEpoch}) // over new ones
		c.until("a new stream", func() bool { return len(incoming()) > 0 })
	})
}
