package consensus

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// wantFailure wants a node to tell once that its store failed, to refuse proposals for it,
// and to close at once.
func (c *cluster) wantFailure(p plan.PeerID) {
	c.t.Helper()
	failed := c.nodes[p].Failed()
	select {
	case err := <-failed:
		if !errors.Is(err, ErrStore) {
			c.t.Errorf("%s tells %v", p, err)
		}
		c.t.Log(err)
	case <-time.After(time.Minute):
		c.t.Errorf("%s does not tell that its store failed", p)
	}
	within(c.t, "Propose", 3*time.Second, func() {
		if err := c.nodes[p].Propose(c.t.Context(), WantStop{}); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrStore) {
			c.t.Errorf("a proposal to %s gives %v", p, err)
		}
	})
	if _, _, self := c.nodes[p].Leader(); self {
		c.t.Errorf("%s still leads", p)
	}
	within(c.t, "Close", 2*time.Second, func() { c.crash(p) })
	select {
	case err := <-failed:
		c.t.Errorf("%s tells again: %v", p, err)
	default:
	}
}

// Whoever's store fails ends alone; the other two go on.
func TestStoreFails(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		victim := c.leader().self
		c.kv[victim].breakDown()
		c.must(c.follower(), WantPause{Count: 1})
		c.wantFailure(victim)
	})
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		victim := c.follower().self
		c.kv[victim].breakDown()
		c.must(c.leader(), testRun())
		c.wantFailure(victim)
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
	})
}

// A term that cannot be saved is where raft itself would panic: in an election, in the
// answer to another's, and in a new leader's first heartbeat.
func TestStoreFailsInAnElection(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		victims := []plan.PeerID{}
		for _, p := range c.peers {
			if c.nodes[p] != c.leader() {
				c.kv[p].breakDown()
				victims = append(victims, p)
			}
		}
		c.crash(c.leader().self)
		for _, p := range victims {
			c.wantFailure(p)
		}
	})
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		victim := c.follower().self
		c.kv[victim].breakDown()
		c.net.partition(victim)
		old := c.leader().self
		c.crash(old)
		c.start(old) // so that there is a majority without the victim, in a newer term
		c.until("a leader", func() bool { return c.leader() != nil })
		c.net.partition()
		c.wantFailure(victim)
		c.must(c.leader(), testRun())
	})
}

// A lone node ends with its store too, in the middle of what it was asked.
func TestStoreFailsAlone(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *cluster) {
		c.kv["a"].breakDown()
		if err := c.leader().Propose(t.Context(), testRun()); !errors.Is(err, ErrStore) {
			t.Errorf("a proposal that cannot be stored gives %v", err)
		}
		c.wantFailure("a")
	})
}

// A store that fails from the start, or after any number of writes, is an error of Start or
// told by Failed, and never the end of the process.
func TestStartWithABrokenStore(t *testing.T) {
	for writes := range 8 {
		synctest.Test(t, func(t *testing.T) {
			n, err := Start(t.Context(), Config{
				Transport: newMemoryNet(0).join("a"), KV: &failingKV{newMemoryKV(), writes}, Bootstrap: true,
				Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			})
			if err != nil && writes < 3 && errors.Is(err, ErrStore) {
				return
			}
			if err != nil {
				t.Fatalf("start with %d writes left: %v", writes, err)
			}
			for err == nil { // a founder writes on when it is asked to
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				err = n.Propose(ctx, testRun())
				cancel()
			}
			if told := <-n.Failed(); !errors.Is(told, ErrStore) || !errors.Is(err, ErrStore) {
				t.Errorf("after %d writes: %v, %v", writes, err, told)
			}
			n.Close()
		})
	}
}

// Raft stores its term when it starts again, too.
func TestStartWithoutRoomForTheTerm(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		c.crash("a")
		c.kv["a"].broken = true
		if _, err := Start(t.Context(), Config{Transport: c.net.join("a"), KV: c.kv["a"]}); !errors.Is(err, ErrStore) {
			t.Errorf("start: %v", err)
		}
		c.kv["a"].broken = false
		c.start("a")
		c.until("leading again", func() bool { return c.leader() != nil })
	})
}

// A log that cannot be read ends the node which needs it, whether it follows or leads, and is
// an error of its start. Raft itself would panic.
func TestLogCannotBeRead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		victim := c.follower().self
		c.kv[victim].damage(true)
		c.must(c.leader(), testRun())
		c.wantFailure(victim)
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
	})
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		behind := c.follower().self
		c.net.partition(behind)
		c.must(c.leader(), testRun())
		victim := c.leader().self
		c.kv[victim].damage(true)
		c.net.partition() // now it has to send what it cannot read
		c.wantFailure(victim)
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
	})
	inBubble(t, 1, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		c.crash("a")
		c.kv["a"].damage(true)
		if _, err := Start(t.Context(), Config{Transport: c.net.join("a"), KV: c.kv["a"]}); err == nil {
			t.Error("a node starts without its log")
		}
		c.kv["a"].damage(false)
		c.start("a")
		c.until("leading again", func() bool { return c.leader() != nil })
	})
}
