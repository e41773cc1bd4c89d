package swarm

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
)

// Messages go on between two members after streams of gossip broke at one end or at both, once or more often than
// GossipSub itself opens a stream again.
func TestGossipSurvivesItsStreams(t *testing.T) {
	for _, c := range []struct {
		name  string
		ends  int // that lose their outgoing stream
		times int
		least int // streams to end, at the least: there may be none while it is opened again
	}{{"one end", 1, 1, 1}, {"both ends", 2, 1, 2}, {"one end, ten times", 1, 10, 6}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newVirtualNet(t)
				all := n.cluster(t, 2)
				heard := listeners(t, all)
				gossipVirtual(t, testContext(t), all, heard)
				ended := 0
				for range c.times {
					for _, s := range all[:c.ends] {
						ended += endGossip(s)
					}
					time.Sleep(3 * time.Second) // virtual
				}
				if ended < c.least {
					t.Errorf("%d streams ended, want at least %d", ended, c.least)
				}
				time.Sleep(10 * time.Second) // virtual
				gossipVirtual(t, testContext(t), all, heard)
			})
		})
	}
}

// endGossip ends the outgoing streams of gossip of a swarm, and returns how many there were.
func endGossip(s *Swarm) (ended int) {
	for _, c := range s.host.Network().Conns() {
		for _, stream := range c.GetStreams() {
			if stream.Stat().Direction == network.DirOutbound && strings.HasPrefix(string(stream.Protocol()), "/meshsub/") {
				stream.Reset()
				ended++
			}
		}
	}
	return ended
}
