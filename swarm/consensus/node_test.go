package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

func TestOneNodeLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: newMemoryNet(0), kv: map[plan.PeerID]*memoryKV{}, nodes: map[plan.PeerID]*Node{}, wires: map[plan.PeerID]*memoryTransport{}}
		n := c.start("a")
		took := c.until("leading", func() bool { _, _, self := n.Leader(); return self })
		if took > 200*time.Millisecond {
			t.Errorf("led after %v", took)
		}
		c.must(n, testRun())
		c.crash("a")

		n = c.start("a")
		took = c.until("leading again", func() bool { _, _, self := n.Leader(); return self })
		if took > 200*time.Millisecond {
			t.Errorf("led after %v", took)
		}
		if n.State().Run == nil {
			t.Error("a leader that may plan does not have what was committed before")
		}
		c.crash("a")
	})
}

func TestFollowerProposes(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		f := c.follower()
		c.must(f, runOf(f.self))
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		err := f.Propose(context.Background(), Resume{Incarnation: 9})
		if !errors.Is(err, ErrStale) || !errors.Is(err, ErrRejected) {
			t.Errorf("a stale entry through a follower gives %v", err)
		}
		if err := f.Propose(context.Background(), Revoke{By: "x", Peer: f.self}); !errors.Is(err, ErrRejected) || errors.Is(err, ErrStale) {
			t.Errorf("a refused entry through a follower gives %v", err)
		}
	})
}

func TestLeaderCrash(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, n, func(t *testing.T, c *cluster) {
				old := c.leader()
				c.must(old, testRun())
				_, term, _ := old.Leader()
				c.crash(old.self)
				took := c.until("a new leader", func() bool { return c.leader() != nil })
				t.Logf("new leader after %v", took)
				l := c.leader()
				if _, next, _ := l.Leader(); next <= term {
					t.Errorf("term %d after %d", next, term)
				}
				if l.State().Run == nil {
					t.Error("the new leader lost the run")
				}
				c.goesOn(c.follower())
			})
		})
	}
}

func TestPartition(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		old := c.leader()
		voters := slices.DeleteFunc(old.Servers(), func(s Server) bool { return !s.Voter })
		if len(voters) != Voters(5) {
			t.Fatalf("voters %v", voters)
		}
		c.net.partition(old.self)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- old.Propose(ctx, WantStop{}) }()
		var l *Node
		c.until("a leader of the majority", func() bool {
			l = c.leader()
			return l != nil && l != old
		})
		c.must(l, WantPause{Count: 1})
		if err := <-done; !errors.Is(err, ErrNoLeader) {
			t.Errorf("the minority's proposal gives %v", err)
		}
		if s := old.State(); s.StopWanted || s.PauseWanted != 0 {
			t.Error("the minority changed its state")
		}
		if _, _, self := old.Leader(); self {
			t.Error("the minority has a leader")
		}
		c.net.partition()
		c.everywhere("one history", func(s State) bool { return s.PauseWanted == 1 && !s.StopWanted })
	})
}

func TestLostQuorumElectsNobody(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.crash("b")
		c.crash("c")
		time.Sleep(5 * time.Minute)
		if l := c.leader(); l != nil {
			t.Fatal("one of three voters leads")
		}
		c.start("b")
		c.until("a leader with two of three", func() bool { return c.leader() != nil })
		c.must(c.nodes["b"], runOf("b"))
	})
}

func TestAllRestart(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		for _, p := range c.peers {
			c.crash(p)
		}
		time.Sleep(time.Hour)
		for _, p := range c.peers {
			c.start(p)
		}
		c.settle(3)
		c.everywhere("the run", func(s State) bool { return s.Run != nil && len(s.Members) == 3 })
	})
}

func TestJoinThroughSnapshot(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		for i := range uint64(trailingLogs + 2) {
			c.must(c.leader(), WantPause{Count: i + 1})
		}
		l := c.leader()
		for _, n := range c.nodes {
			if err := n.engine.Load().raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
		if first, _ := (logStore{l.config.KV}).FirstIndex(); first < 2 {
			t.Fatalf("the log still begins at %d", first)
		}
		n := c.join("d")
		c.until("the state at the new node", func() bool { return n.State().PauseWanted == trailingLogs+2 })
		if head, err := (&snapshotStore{kv: c.kv["d"]}).head(); err != nil || head.Number == 0 {
			t.Errorf("it came without a snapshot: %v", err)
		}
		c.crash("d")
		c.start("d")
		c.until("the state after a restart", func() bool { return c.nodes["d"].State().PauseWanted == trailingLogs+2 })
	})
}

func TestLeave(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, n, func(t *testing.T, c *cluster) {
				c.must(c.leader(), testRun())
				for left := n - 1; left >= 1; left-- {
					l := c.leader()
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					if err := l.Leave(ctx); err != nil {
						t.Fatal(err)
					}
					cancel()
					c.crash(l.self)
					c.settle(left)
				}
				last := c.leader()
				if err := last.Leave(context.Background()); err != nil {
					t.Fatal(err)
				}
				if m, _ := last.State().Member(last.self); m.State != Active {
					t.Errorf("the last node is %s", m.State)
				}
				c.must(last, WantPause{Count: 1})
			})
		})
	}
}

// TestAVoterThatIsFarAwayLeaves: it is further from the leader than the others, who agree on the change of its vote and on the next one while a
// message to it is under way. It hears of both.
func TestAVoterThatIsFarAwayLeaves(t *testing.T) {
	net := newMemoryNet(5 * time.Millisecond)
	net.far = map[plan.PeerID]time.Duration{"c": 100 * time.Millisecond}
	inBubbleOf(t, net, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		ctx, cancel := context.WithTimeout(t.Context(), deafAfter/2)
		defer cancel()
		if err := c.nodes["c"].Leave(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestDeadVoterIsReplaced(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		l, spare := c.leader(), c.spare().self
		var victim plan.PeerID
		for _, s := range l.Servers() {
			if s.Peer != l.self {
				victim = s.Peer
			}
		}
		c.crash(victim)
		time.Sleep(DeadAfter / 2)
		if s := l.Servers(); slices.Contains(s, Server{spare, true}) {
			t.Fatalf("replaced too early: %v", s)
		}
		time.Sleep(DeadAfter)
		want := []Server{{l.self, true}, {spare, true}}
		for _, s := range want {
			if !slices.Contains(l.Servers(), s) {
				t.Errorf("%v lacks %v", l.Servers(), s)
			}
		}
		if slices.Contains(l.Servers(), Server{victim, true}) {
			t.Errorf("the dead voter still votes: %v", l.Servers())
		}
	})
}

// Of five nodes any two may be lost at once. From then on one after the other may go, once the roster has it, down to the
// last one: votes follow within seconds.
func TestDownToOneNode(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		bury := func(p plan.PeerID) { // as node/leader does
			m, _ := c.leader().State().Member(p)
			c.must(c.leader(), SetMemberState{Peer: p, ProcessEpoch: m.ProcessEpoch, State: Gone})
		}
		left := 5
		for _, together := range [][]plan.PeerID{{c.leader().self, c.follower().self}, {""}, {""}} {
			for i, p := range together {
				if p == "" {
					together[i] = c.follower().self
				}
				c.crash(together[i])
				left--
			}
			c.until("a leader", func() bool { return c.leader() != nil })
			for _, p := range together {
				bury(p)
			}
			time.Sleep(DeadAfter) // nobody can replace them
			c.settle(left)
		}
		c.goesOn(c.leader())
	})
}

// A voter that the roster has as gone is replaced within a second or two, where another node can.
func TestGoneVoterIsReplacedAtOnce(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		l := c.leader()
		victim := c.follower().self
		for _, s := range l.Servers() {
			if s.Voter && s.Peer != l.self {
				victim = s.Peer
			}
		}
		c.crash(victim)
		c.until("its silence", func() bool { return l.Silence(victim) > 0 })
		m, _ := l.State().Member(victim)
		c.must(l, SetMemberState{Peer: victim, ProcessEpoch: m.ProcessEpoch, State: Gone})
		within(t, "the replacement", 2*time.Second, func() { c.settle(3) })
		c.crash(c.follower().self) // which a majority of two of three survives
		c.until("a leader", func() bool { return c.leader() != nil })
		c.goesOn(c.leader())
	})
}

func TestSevenNodes(t *testing.T) {
	inBubble(t, 7, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		for range 2 {
			c.crash(c.leader().self)
			c.until("the next leader", func() bool { return c.leader() != nil })
		}
		c.goesOn(c.follower())
	})
}

func TestSilence(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		victim := c.follower().self
		if s := l.Silence(victim); s != 0 {
			t.Errorf("a follower that answers is silent for %v", s)
		}
		c.crash(victim)
		time.Sleep(20 * time.Second)
		if s := l.Silence(victim); s < 19*time.Second || s > 21*time.Second {
			t.Errorf("a follower that died 20 s ago is silent for %v", s)
		}
		c.start(victim)
		c.until("it is heard again", func() bool { return l.Silence(victim) == 0 })
	})
}

// Streams with nonsense, half a request or nothing at all are closed and harm nobody.
func TestHostileStreams(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		wire := c.net.join("x")
		for name, b := range map[string][]byte{
			"nothing":        nil,
			"unknown type":   []byte("zzz"),
			"half a request": {streamRequest, opPropose, 1, 200},
			"too long":       {streamRequest, opPropose, 1, 255, 255, 255, 255},
			"raft nonsense":  append([]byte{streamRaft}, bytes.Repeat([]byte{0xff}, 300)...),
		} {
			s, err := wire.Open(t.Context(), l.self)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 0 {
				if _, err := s.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			s.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := s.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%s: the stream ends with %v", name, err)
			}
			s.Close()
		}
		wire.crash()
	})
}

// A well-formed request with nonsense inside is refused, and streams that ask for nothing
// do not keep the others from being served for longer than they may take.
func TestUselessRequests(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		wire := c.net.join("x")
		s, err := wire.Open(t.Context(), l.self)
		if err != nil {
			t.Fatal(err)
		}
		s.Write(appendRequest([]byte{streamRequest}, request{op: opPropose, body: []byte("no entry")}))
		r, err := readResponse(s)
		if err != nil || !errors.Is(r.err(), ErrRejected) {
			t.Errorf("a proposal that is no entry gives %v, %v", r.err(), err)
		}
		s.Close()
		for range 2 * maxRequests {
			if _, err := wire.Open(t.Context(), l.self); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * requestTimeout)
		f := c.follower()
		c.must(f, runOf(f.self))
		wire.crash()
	})
}

func TestNewsOfAnEarlierBoot(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		m, _ := c.leader().State().Member("c")
		c.crash("c")
		n := c.join("c")
		err := n.Propose(context.Background(), SetMemberState{Peer: "c", ProcessEpoch: m.ProcessEpoch, State: Gone})
		if !errors.Is(err, ErrStale) {
			t.Errorf("declaring the earlier process gone gives %v", err)
		}
	})
}

func TestProposeAfterClose(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *cluster) {
		n := c.leader()
		n.Close()
		if err := n.Propose(context.Background(), testRun()); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed node's proposal gives %v", err)
		}
	})
}

// Closing a node closes its streams, at once, even those whose other end does not answer.
func TestCloseEndsStreams(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.net.partition(c.leader().self)
		time.Sleep(leaseTimeout / 2)
		for _, p := range c.peers {
			began := time.Now()
			c.nodes[p].Close()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("closing %s took %v", p, took)
			}
			c.wires[p].mu.Lock()
			if n := len(c.wires[p].streams); n > 0 {
				t.Errorf("%s left %d streams open", p, n)
			}
			c.wires[p].mu.Unlock()
		}
	})
}

// A follower passes a proposal on once, so that two who take each other for the leader do
// not send it to and fro.
func TestOneHop(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		f := c.follower()
		c.until("the follower knows the leader", func() bool { l, _, _ := f.Leader(); return l != "" })
		q := request{op: opPropose, body: f.signed(t, runOf(f.self))}
		if r := f.handle(t.Context(), "c", q); r.code != codeRetry {
			t.Errorf("without a hop left: %d %s", r.code, r.body)
		}
		q.hops = 1
		if r := f.handle(t.Context(), "c", q); r.code != codeDone {
			t.Errorf("with a hop left: %d %s", r.code, r.body)
		}
	})
}
