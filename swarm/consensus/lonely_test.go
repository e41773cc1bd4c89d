package consensus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pnode/planner/plan"
)

// within wants f to end after at most d of virtual time.
func within(t *testing.T, what string, d time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > d {
		t.Errorf("%s took %v, want at most %v", what, took, d)
	}
}

// lonely takes all voters but one from a cluster of three: by their end, or by a cut.
var lonely = map[string]func(c *cluster, last plan.PeerID){
	"crashed": func(c *cluster, last plan.PeerID) {
		for _, p := range c.peers {
			if p != last {
				c.crash(p)
			}
		}
	},
	"cut off": func(c *cluster, last plan.PeerID) { c.net.partition(last) },
}

// Without a majority everything ends with its context, and Close within two seconds: for
// the one who leads still, for one who follows, at once and when all is settled.
func TestWithoutQuorum(t *testing.T) {
	for name, take := range lonely {
		for _, leads := range []bool{true, false} {
			for _, pause := range []time.Duration{0, leaseTimeout / 2, time.Minute} {
				t.Run(fmt.Sprintf("%s, leads %v, after %v", name, leads, pause), func(t *testing.T) {
					inBubble(t, 3, func(t *testing.T, c *cluster) {
						c.must(c.leader(), testRun())
						last := c.leader()
						if !leads {
							last = c.follower()
						}
						take(c, last.self)
						time.Sleep(pause)
						endsInTime(t, last)
						within(t, "Close", 2*time.Second, func() { last.Close() })
					})
				})
			}
		}
	}
}

// endsInTime wants a proposal and a leave of a node without a majority to end with their
// contexts.
func endsInTime(t *testing.T, n *Node) {
	t.Helper()
	for what, f := range map[string]func(context.Context) error{
		"Propose": func(ctx context.Context) error { return n.Propose(ctx, WantStop{}) },
		"Leave":   n.Leave,
	} {
		within(t, what, 1100*time.Millisecond, func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := f(ctx); !errors.Is(err, ErrNoLeader) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s without a majority gives %v", what, err)
			}
		})
	}
}

// Close does not wait for the proposals, which end with it.
func TestCloseWithoutQuorum(t *testing.T) {
	for name, take := range lonely {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *cluster) {
				l := c.leader()
				take(c, l.self)
				refused := make(chan error, 1)
				go func() { refused <- l.Propose(t.Context(), testRun()) }()
				time.Sleep(leaseTimeout / 4)
				within(t, "Close", 2*time.Second, func() { l.Close() })
				if err := <-refused; !errors.Is(err, ErrClosed) {
					t.Errorf("a proposal to a node that is closed gives %v", err)
				}
			})
		})
	}
}

// TestAnswers: who lives says so, who is cut off or has crashed does not, and asking takes no
// longer than readyTimeout.
func TestAnswers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l, f := c.leader(), c.follower()
		if !l.Answers(context.Background(), f.self) {
			t.Error("a follower that lives does not answer")
		}
		c.net.partition(f.self)
		within(t, "asking one who is cut off", readyTimeout+time.Millisecond, func() {
			if l.Answers(context.Background(), f.self) {
				t.Error("one who is cut off answers")
			}
		})
	})
}
