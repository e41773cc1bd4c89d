package swarm

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"pnode/planner/plan"
)

// TestConnectionsEnd: a member of a large run closes connections that no plan needs any more, if the other end does not need them
// either, until it has about as many as before. One that a plan names stays, however little it is used. Then nothing comes or goes.
func TestConnectionsEnd(t *testing.T) {
	const members, full, most = 24, 6, 12
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, newVirtualNet(t), members, full)
		c.untilHeard(30 * time.Second)
		var ended atomic.Int64
		for _, s := range c.all {
			s.host.Network().Notify(&network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) { ended.Add(1) }})
		}
		worker := c.all[0]
		for i, lasts := range []time.Duration{6*time.Minute + 30*time.Second, time.Minute} { // two plans, of which the second has other members
			first := 1 + 8*i
			var others []plan.PeerID
			for _, s := range c.all[first : first+14] {
				others = append(others, s.ID())
				s.Want([]plan.PeerID{worker.ID()})
			}
			worker.Want(others)
			time.Sleep(lasts) // virtual
			for _, p := range others {
				if !connected(worker, p) {
					t.Errorf("the plan of members %d and on has one that is not connected", first)
				}
			}
			for _, s := range c.all[1:] {
				s.Want(nil)
			}
		}
		worker.Want(nil)
		c.all[1].Want([]plan.PeerID{worker.ID()}) // the other end's wish alone
		c.all[1].mesh.Hurry()
		time.Sleep(13 * time.Minute)
		if !connected(worker, c.all[1].ID()) {
			t.Error("a connection ended that the other end needs")
		}
		sum := 0
		for i, s := range c.all {
			n := len(s.Members())
			if sum += n; n > most+1 {
				t.Errorf("member %d has %d connections, want at most %d", i, n, most)
			}
		}
		if sum < members*full {
			t.Errorf("%d connections at %d members, want %d each at least", sum, members, full)
		}
		t.Logf("%.1f connections each, %d in member 0, %d ended", float64(sum)/members, len(worker.Members()), ended.Load()/2)
		before := ended.Load()
		time.Sleep(6 * time.Minute)
		if n := ended.Load() - before; n > 0 {
			t.Errorf("%d connections ended without a change", n/2)
		}
		c.untilHeard(10 * time.Second)
	})
}

// connected reports whether a member is connected to another one.
func connected(s *Swarm, p plan.PeerID) bool {
	for _, c := range s.Members() {
		if c.Peer == p {
			return true
		}
	}
	return false
}
