package node

import (
	"context"
	"time"

	"pnode/node/gossip"
)

// heartbeats gossips a heartbeat every second until ctx ends, and tells when nothing moves.
func (n *Node) heartbeats(ctx context.Context) {
	tick := time.NewTicker(gossip.Every)
	defer tick.Stop()
	for {
		n.beat()
		n.monitor.ShowWaiting(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// beat gossips this node's heartbeat and notes it here.
func (n *Node) beat() {
	b := n.monitor.Heartbeat()
	n.leader.Fill(&b)
	b.Links = n.meter.Rates()
	if state := n.raft.State(); state.Finished {
		b.Finished = state.Checkpoint.Step
	}
	if err := n.beats.Send(n.base, n.swarm.Topics(), b); err != nil {
		n.log.Debug("heartbeat", "cause", err)
	}
}
