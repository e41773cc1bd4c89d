package consensus

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A node that cannot store its term takes no part any more: it tells so once, answers
// proposals, and the others go on.
func TestTermThatCannotBeStored(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		inBubble(t, nodes, func(t *testing.T, c *cluster) {
			old := c.leader()
			c.must(old, testRun())
			kv := c.kv[old.self]
			kv.mu.Lock()
			kv.broken = true
			kv.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := old.Propose(ctx, WantStop{}); err == nil && nodes == 1 {
				t.Error("a proposal that is not stored was committed")
			}
			select {
			case err := <-old.Failed():
				if !strings.Contains(err.Error(), "no space left") {
					t.Errorf("failed with %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the node does not tell that it failed")
			}
			if err := old.fence.Write(nil); err == nil {
				t.Error("the fence lets a write through")
			}
			c.crash(old.self) // Close must return
			if nodes == 1 {
				return
			}
			c.until("a new leader", func() bool { return c.leader() != nil })
			c.must(c.leader(), WantStop{})
		})
	}
}

// Raft stores its term when it starts, too.
func TestStartWithoutRoomForTheTerm(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.must(l, testRun())
		c.crash(l.self)
		kv := c.kv[l.self]
		kv.broken = true
		_, err := Start(t.Context(), Config{Transport: c.net.join(l.self), KV: kv})
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("start: %v", err)
		}
		kv.broken = false
		c.start(l.self)
		c.until("leading again", func() bool { return c.leader() != nil })
	})
}
