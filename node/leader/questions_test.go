package leader

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// countedHosts say that a process has ended, and count how often they were asked.
type countedHosts struct{ asked atomic.Int64 }

func (c *countedHosts) Refuses(context.Context, plan.PeerID) bool {
	c.asked.Add(1)
	time.Sleep(time.Millisecond) // a round trip
	return true
}

// TestTheEndOfAProcessIsAskedForOnce: a member dies when the run has finished. The log still names it, since there is nothing left to
// plan, and its host is not asked again and again.
func TestTheEndOfAProcessIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := rehearsedRun()
		log := &oneLeader{state: consensus.State{Run: &run, Epoch: 1, Finished: true, Members: []consensus.Member{
			{Peer: "a", State: consensus.Active, Profile: withDevices(1)},
			{Peer: "dead", State: consensus.Active, Profile: withDevices(1)},
		}}}
		hosts := &countedHosts{}
		l := New(Config{Self: "a", Consensus: log, Peers: hosts, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		time.Sleep(DeadAfter + time.Minute)
		cancel()
		<-ended
		if got := hosts.asked.Load(); got != 1 {
			t.Errorf("the host of a process that has ended was asked %d times in a minute, want once", got)
		}
	})
}
