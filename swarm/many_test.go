package swarm

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/topics"
)

// crowd is a run with more members than are connected to each other.
type crowd struct {
	*testing.T
	ctx  context.Context
	all  []*Swarm
	join func()

	mu    sync.Mutex // guards what follows
	round string
	heard []map[plan.PeerID]bool // this round, by node
}

// newCrowd returns a run of so many members, all of which are connected where there are up to full.
func newCrowd(t *testing.T, n *virtualNet, members, full int) *crowd {
	t.Helper()
	n.host = n.Direct
	o := testOwner(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	c := &crowd{T: t, ctx: ctx}
	c.join = func() {
		t.Helper()
		cfg := testMember(t, o, testRun)
		cfg.Simulated, cfg.MaxMesh = n.host(), full
		if len(c.all) > 0 {
			cfg.Bootstrap = c.all[len(c.all)/2].Addrs()
		}
		s, i := start(t, cfg), len(c.all)
		c.all, c.heard = append(c.all, s), append(c.heard, nil)
		if err := s.Topics().Subscribe(topics.Events, asItIs, func(from plan.PeerID, said any) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if string(said.([]byte)) == c.round {
				c.heard[i][from] = true
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range members {
		c.join()
	}
	return c
}

// speak has every node publish once, and returns at least how many of these messages each node has heard after a time.
func (c *crowd) speak(wait time.Duration) (least int) {
	c.Helper()
	c.mu.Lock()
	c.round = fmt.Sprint(time.Now().UnixNano())
	for i := range c.heard {
		c.heard[i] = map[plan.PeerID]bool{}
	}
	c.mu.Unlock()
	for _, s := range c.all {
		if err := s.Topics().Publish(c.ctx, topics.Events, []byte(c.round)); err != nil {
			c.Fatal(err)
		}
	}
	time.Sleep(wait) // virtual
	c.mu.Lock()
	defer c.mu.Unlock()
	least = len(c.all)
	for _, from := range c.heard {
		least = min(least, len(from))
	}
	return least
}

// untilHeard has every node publish once a second until everybody hears everybody within a second.
func (c *crowd) untilHeard(limit time.Duration) {
	c.Helper()
	for began := time.Now(); ; {
		least := c.speak(time.Second)
		if least == len(c.all) {
			c.Logf("all %d hear all after %v", least, time.Since(began))
			return
		}
		if time.Since(began) > limit {
			c.Fatalf("a node hears %d members of %d after %v", least, len(c.all), limit)
		}
	}
}

// TestManyMembers: in a run with more members than are connected to each other every node has a few connections, and soon hears all
// others: whoever hears a stranger asks who it is. So it is with one that comes later.
func TestManyMembers(t *testing.T) {
	members, full := 36, 8
	if testing.Short() {
		members, full = 20, 6
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, newVirtualNet(t), members, full)
		c.untilHeard(30 * time.Second)
		connections := 0
		for _, s := range c.all {
			connections += len(s.Members())
		}
		if mean := float64(connections) / float64(members); mean < float64(full) || mean > float64(3*full) {
			t.Errorf("%.1f connections a node, want %d to %d", mean, full, 3*full)
		}
		c.join()
		c.untilHeard(2 * time.Minute)
		st, err := c.all[3].Open(c.ctx, c.all[members].ID(), "/pnode/alive/1")
		if err != nil {
			t.Fatalf("a member that is not connected cannot be reached: %v", err)
		}
		st.Close()
	})
}

// TestManyMembersMeetAgain: the members of a large run that were cut off from the others for minutes find them again.
func TestManyMembersMeetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		c := newCrowd(t, n, 20, 6)
		c.untilHeard(30 * time.Second)
		n.cut.Store(true) // nodes 0 and 1 from the others
		time.Sleep(3 * time.Minute)
		if least := c.speak(time.Second); least > 2 {
			t.Fatalf("not cut: %d", least)
		}
		n.cut.Store(false)
		c.untilHeard(2 * time.Minute)
	})
}
