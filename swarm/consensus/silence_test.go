package consensus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/planner/plan"
)

func TestSilenceOfLateHeartbeats(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var s silence
	s.begin(at(10))
	if s.failed("b", at(9)) || s.of("b", at(20)) != 0 {
		t.Error("a heartbeat of an earlier term counts")
	}
	if !s.failed("b", at(10)) || s.failed("b", at(10)) || s.of("b", at(20)) != 10*time.Second {
		t.Errorf("silent for %v", s.of("b", at(20)))
	}
	s.removed("b")
	s.failed("b", at(11)) // the heartbeats stop a little later than the server is removed
	s.added("b", at(21))
	if s.failed("b", at(12)) || s.of("b", at(30)) != 0 {
		t.Error("a heartbeat from before the server was added counts")
	}
	if !s.failed("b", at(22)) || s.of("b", at(30)) != 8*time.Second {
		t.Errorf("silent for %v", s.of("b", at(30)))
	}
	if !s.resumed("b") || s.resumed("b") || s.of("b", at(30)) != 0 {
		t.Error("still silent after an answer")
	}
	if s.of("b", at(30)) != 0 || s.of("c", at(30)) != 0 {
		t.Error("a server never heard to fail is silent")
	}
}

// gone marks a crashed node as gone and waits until it is no server any more.
func (c *cluster) gone(p plan.PeerID) {
	c.t.Helper()
	l := c.leader()
	m, _ := l.State().Member(p)
	c.must(l, SetMemberState{Peer: p, ProcessEpoch: m.ProcessEpoch, State: Gone, Reason: "it died"})
	c.until(string(p)+" removed", func() bool {
		for _, s := range l.Servers() {
			if s.Peer == p {
				return false
			}
		}
		return true
	})
}

// A node that was killed, removed, and came back under its name can take over the run.
func TestComesBackAndTakesOver(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *cluster) {
		a := c.leader()
		c.must(a, testRun())
		c.crash("b")
		c.until("its silence", func() bool { return a.Silence("b") > 0 })
		c.gone("b")
		b := c.join("b")
		c.settle(2)
		if s := a.Silence("b"); s != 0 {
			t.Errorf("a server that answers is silent for %v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := a.Leave(ctx); err != nil {
			t.Fatal(err)
		}
		c.crash("a")
		c.until("the other to lead", func() bool { return c.leader() == b })
		c.must(b, WantPause{Count: 1})
	})
}

// The same with three voters, one of which comes back before anybody removes it.
func TestComesBackAtOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		victim := c.follower().self
		c.crash(victim)
		c.until("its silence", func() bool { return l.Silence(victim) > 0 })
		c.join(victim)
		c.until("its answer", func() bool { return l.Silence(victim) == 0 })
		c.settle(3)
	})
}

func TestLeaveNamesTheSilent(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *cluster) {
		a := c.leader()
		c.crash("b")
		c.until("its silence", func() bool { return a.Silence("b") > 0 })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err := a.Leave(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer from b") {
			t.Errorf("leaving with a silent heir gives %v", err)
		}
		if took := time.Since(began); took > 6*time.Second { // virtual
			t.Errorf("it took %v", took)
		}
	})
}

// A vote is not taken where that leaves too few that answer, though raft has not noticed yet
// who was cut off: the leader asks.
func TestLeaveWhileAnotherIsCutOff(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.must(l, testRun())
		leaver, lost := c.follower(), plan.PeerID("")
		for _, p := range c.peers {
			if p != l.self && p != leaver.self {
				lost = p
			}
		}
		c.net.partition(lost)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := leaver.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("leaving gives %v: the vote is needed", err)
		}
		c.must(l, WantPause{Count: 1})
		c.gone(lost)
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := leaver.Leave(ctx); err != nil {
			t.Errorf("leaving once the other is gone: %v", err)
		}
		c.must(l, WantPause{Count: 2})
	})
}

// A node without a vote leaves while the leader is about to give it one, in place of another that leaves: it ends with no vote.
func TestWhoHasLeftHasNoVote(t *testing.T) {
	about := 0 // times that the leader vouched for its vote while it left
	for after := 150 * time.Millisecond; after < 300*time.Millisecond; after += 5 * time.Millisecond {
		inBubble(t, 4, func(t *testing.T, c *cluster) {
			l := c.leader()
			c.must(l, testRun())
			var voter *Node
			spare := c.spare()
			c.everywhere("the run", func(s State) bool { return s.Run != nil })
			for _, s := range l.Servers() {
				if s.Peer != l.self {
					voter = c.nodes[s.Peer]
				}
			}
			newest := func() uint64 { vouchers := l.State().Vouchers; return vouchers[len(vouchers)-1].Number }
			before := newest()
			m, _ := l.State().Member(voter.self)
			go voter.Propose(t.Context(), SetMemberState{Peer: voter.self, ProcessEpoch: m.ProcessEpoch, State: Draining})
			time.Sleep(after)
			hasNone := !slices.Contains(l.Servers(), Server{Peer: spare.self, Voter: true})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := spare.Leave(ctx); err != nil {
				t.Fatal(err)
			}
			if hasNone && newest() > before+1 { // one for its vote, and another without it
				about++
			}
			c.crash(spare.self)
			for range 30 {
				if slices.Contains(l.Servers(), Server{Peer: spare.self, Voter: true}) {
					t.Fatalf("%s, which left %v after another one began to, has a vote: %v", spare.self, after, l.Servers())
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	if about == 0 {
		t.Error("the leader was never about to give it a vote")
	}
	t.Logf("%d times the leader was about to give it a vote", about)
}

// TestNoVoucherForWhoHasLeft: a leader that looked before another node left neither gives it a vote nor has others sign that it has one.
func TestNoVoucherForWhoHasLeft(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.must(l, testRun())
		spare := c.spare().self
		c.gone(spare)
		if err := l.carryOut(t.Context(), Action{Kind: Promote, Peer: spare}); err == nil || !strings.Contains(err.Error(), "gone by now") {
			t.Errorf("it gets a vote: %v", err)
		}
		if slices.ContainsFunc(l.State().Vouchers, func(v Voucher) bool { return slices.Contains(v.Voters, spare) }) {
			t.Errorf("the log says that %s votes: %+v", spare, l.State().Vouchers)
		}
	})
}

// TestNoVoucherForWhoLeavesWhileItIsSigned: one voter's signature takes long, and meanwhile the node that is to vote is gone.
func TestNoVoucherForWhoLeavesWhileItIsSigned(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.must(l, testRun())
		spare := c.spare().self
		var deaf plan.PeerID
		for _, s := range l.Servers() {
			if s.Peer != l.self {
				deaf = s.Peer
			}
		}
		c.net.partition(deaf)
		promoted := make(chan error)
		go func() { promoted <- l.carryOut(t.Context(), Action{Kind: Promote, Peer: spare}) }()
		m, _ := l.State().Member(spare)
		c.must(l, SetMemberState{Peer: spare, ProcessEpoch: m.ProcessEpoch, State: Gone, Reason: "it died"})
		select {
		case err := <-promoted:
			t.Fatalf("it was not being signed any more: %v", err)
		default:
		}
		if err := <-promoted; err == nil || !strings.Contains(err.Error(), "gone by now") {
			t.Errorf("it gets a vote: %v", err)
		}
		if slices.ContainsFunc(l.State().Vouchers, func(v Voucher) bool { return slices.Contains(v.Voters, spare) }) {
			t.Errorf("the log says that %s votes: %+v", spare, l.State().Vouchers)
		}
	})
}

// A leader that hears from nobody for a second, as on a machine that is busy, stays in office.
func TestAPauseIsNoReasonForAnElection(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.must(l, testRun())
		_, before, _ := l.Leader()
		for range 5 {
			c.net.partition(l.self)
			time.Sleep(time.Second)
			c.net.partition()
			time.Sleep(time.Second)
		}
		if _, term, self := l.Leader(); !self || term != before {
			t.Errorf("term %d, leads %v; it was term %d", term, self, before)
		}
	})
}
